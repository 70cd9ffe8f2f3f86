//! Authorization and audit of saving a snapshot.

use conformance::server::audit_flags;
use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PATH, post};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

async fn grant(admin: &Client, name: &str, user: &str, rules: &Value) {
    accepts(admin.post(ROLES, &json!({"metadata": {"name": name}, "rules": rules})).await).unwrap();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    accepts(admin.post(BINDINGS, &binding).await).unwrap();
}

#[tokio::test]
async fn a_snapshot_needs_the_path_and_the_right_to_list_everything() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = (admin.as_token(Some("alicetoken")), admin.as_token(Some("bobtoken")));
    let denied = async |who: &Client, why: &str| {
        let status = rejects(post(who).await, 403, "Forbidden").unwrap();
        assert!(status["message"].as_str().unwrap().contains(why), "{status}");
    };
    denied(&admin.as_token(None), "cannot post path").await;
    rejects(post(&admin.as_token(Some("wrong"))).await, 401, "Unauthorized").unwrap();
    denied(&alice, "User \"alice\" cannot post path \"/portcullis/snapshot\"").await;
    // All paths, as monitoring often has, and every resource but not every group.
    let paths = json!([{"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    grant(&admin, "all-paths", "alice", &paths).await;
    denied(&alice, "cannot list resource \"*\" in API group \"*\"").await;
    let most = json!([{"apiGroups": ["", "apps", "example.com"], "resources": ["*"], "verbs": ["*"]}]);
    grant(&admin, "most-groups", "alice", &most).await;
    denied(&alice, "cannot list resource \"*\" in API group \"*\"").await;
    let get = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "watch"]}]);
    grant(&admin, "get-all", "alice", &get).await;
    denied(&alice, "cannot list resource \"*\" in API group \"*\"").await;
    // Every object, but not the path: a reader of the whole cluster. Reading all paths does not change that.
    let reader = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]);
    grant(&admin, "reader", "bob", &reader).await;
    denied(&bob, "cannot post path").await;
    rejects(bob.get(PATH).await, 405, "MethodNotAllowed").unwrap();
    // A role for backups.
    let backup = json!([{"nonResourceURLs": [PATH], "verbs": ["post"]}]);
    grant(&admin, "backup", "bob", &backup).await;
    for allowed in [&bob, &admin] {
        let saved = post(allowed).await.unwrap();
        assert_eq!(saved.code, 200, "{}", saved.text());
        assert!(saved.body.starts_with(b"portcullis snap\n"));
    }
    // An impersonated user has its own permissions.
    let headers = [("impersonate-user", "alice")];
    let impersonated = admin.send(Method::POST, PATH, &headers, bytes::Bytes::new()).await;
    rejects(impersonated, 403, "Forbidden").unwrap();
    // There is one spelling of the path, and one method.
    for other in ["/portcullis/snapshot/", "/portcullis//snapshot", "/portcullis/snapshot/x", "/portcullis"] {
        let answer = admin.send(Method::POST, other, &[], bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.code, 404, "{other}");
    }
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        let answer = admin.send(method.clone(), PATH, &[], bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.code, 405, "{method}");
    }
}

#[tokio::test]
async fn saved_and_refused_snapshots_are_in_the_audit_log() {
    let folder = TempDir::new().unwrap();
    let [policy, log] = audit_flags(folder.path(), "rules: [{level: Metadata}]").unwrap();
    let server = Server::serve(&[&policy, &log]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(post(&admin).await).unwrap();
    grant(&admin, "all-paths", "alice", &json!([{"nonResourceURLs": ["*"], "verbs": ["*"]}])).await;
    rejects(post(&admin.as_token(Some("alicetoken"))).await, 403, "Forbidden").unwrap();
    // The last event is written after the body.
    let events = conformance::eventually(super::PATIENCE, async || {
        let text = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        let events = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let events: Vec<Value> = events.filter(|event| event["requestURI"] == PATH).collect();
        let ends = events.iter().filter(|event| event["stage"] == "ResponseComplete").count();
        if ends < 2 { Err(conformance::Problem::new(format!("{events:?}"))) } else { Ok(events) }
    })
    .await
    .unwrap();
    let of = |user: &str| {
        let events = events.iter().filter(|event| event["user"]["username"] == user);
        events
            .map(|event| {
                let decision =
                    event["annotations"]["authorization.k8s.io/decision"].as_str().unwrap_or_default();
                let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
                (event["verb"].as_str().unwrap(), event["stage"].as_str().unwrap(), code, decision)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("admin"),
        [
            ("post", "RequestReceived", 0, ""),
            ("post", "ResponseStarted", 200, "allow"),
            ("post", "ResponseComplete", 200, "allow"),
        ]
    );
    assert_eq!(
        of("alice"),
        [
            ("post", "RequestReceived", 0, ""),
            ("post", "ResponseStarted", 403, "forbid"),
            ("post", "ResponseComplete", 403, "forbid"),
        ]
    );
}
