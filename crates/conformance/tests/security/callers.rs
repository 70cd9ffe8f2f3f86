//! Users without any privilege but those that a test gives them.

use std::time::Duration;

use conformance::{Client, accepts, eventually};
use serde_json::json;

pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Lets alice and bob do anything with config maps; gives their clients.
pub(crate) async fn alice_and_bob(admin: &Client) -> (Client, Client) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "maps"}, "rules": rules});
    accepts(admin.post(&format!("{rbac}/clusterroles"), &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}],
    });
    accepts(admin.post(&format!("{rbac}/clusterrolebindings"), &binding).await).unwrap();
    let (alice, bob) = (admin.as_token(Some("alicetoken")), admin.as_token(Some("bobtoken")));
    for client in [&alice, &bob] {
        eventually(SOON, async || accepts(client.get(MAPS).await)).await.unwrap();
    }
    (alice, bob)
}

/// The value of a metric, whose labels must contain `labels`.
pub(crate) async fn metric(admin: &Client, name: &str, labels: &str) -> Option<f64> {
    // The connection may just have been closed for others.
    let page = eventually(SOON, async || admin.get("/metrics").await).await.unwrap().text();
    let line = page.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{'])) && line.contains(labels)
    })?;
    line.rsplit(' ').next()?.parse().ok()
}
