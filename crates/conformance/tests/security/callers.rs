//! Shared setup: users that have only the permissions of a test.

use std::time::Duration;

use conformance::{Client, accepts, eventually};
use serde_json::json;

pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Grants alice and bob all verbs on config maps, and returns their clients.
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

/// The value of a metric whose labels contain `labels`.
pub(crate) async fn metric(admin: &Client, name: &str, labels: &str) -> Option<f64> {
    // The server may just have closed the connection to free a descriptor.
    let page = eventually(SOON, async || admin.get("/metrics").await).await.unwrap().text();
    let line = page.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{'])) && line.contains(labels)
    })?;
    line.rsplit(' ').next()?.parse().ok()
}
