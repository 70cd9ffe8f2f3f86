//! The policy in `docs/examples` that guards the labels for admin access.

use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const POLICY: &str = include_str!("../../../../docs/examples/guard-admin-access-labels.yaml");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn only_users_with_the_permission_may_change_admin_access_labels() {
    let folder = TempDir::new().unwrap();
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(policies.join("guard.yaml"), POLICY).unwrap();
    let config = folder.path().join("admission.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionPolicy\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: ValidatingAdmissionPolicyConfiguration\n    staticManifestsDir: {}\n",
        policies.display()
    );
    std::fs::write(&config, text).unwrap();
    let flag = format!("--admission-control-config-file={}", config.display());
    let server = Server::serve(&[&flag]).await.unwrap();
    let admin = server.client().unwrap();
    let alice = admin.as_token(Some("alicetoken"));
    let grant = async |name: &str, rule: Value| {
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        accepts(admin.post(&format!("{RBAC}/clusterroles"), &role).await).unwrap();
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
        });
        accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
    };
    let namespaces = json!(["namespaces", "namespaces/status", "namespaces/finalize"]);
    grant("namespaces", json!({"apiGroups": [""], "resources": namespaces, "verbs": ["*"]})).await;
    let labeled = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let patch = async |subresource: &str, labels: Value| {
        let body = serde_json::to_vec(&json!({"metadata": {"labels": labels}})).unwrap();
        let headers = [("content-type", "application/merge-patch+json")];
        let path = format!("/api/v1/namespaces/plain{subresource}");
        alice.send(Method::PATCH, &path, &headers, body.into()).await
    };
    let words = "may not change the labels that allow admin access to devices";
    let refused = |status: Value| assert!(status["message"].as_str().unwrap().contains(words), "{status}");
    let both = ["resource.kubernetes.io/admin-access", "kubernetes.io/dra-admin-access"];

    // Users who may write namespaces may change other labels.
    accepts(alice.post("/api/v1/namespaces", &labeled("plain", json!({"team": "a"}))).await).unwrap();
    accepts(patch("", json!({"team": "b"})).await).unwrap();
    for label in both {
        let new = labeled("new", json!({label: "true"}));
        refused(rejects(alice.post("/api/v1/namespaces", &new).await, 403, "Forbidden").unwrap());
        for subresource in ["", "/status"] {
            let outcome = patch(subresource, json!({label: "true"})).await;
            refused(rejects(outcome, 403, "Forbidden").unwrap());
        }
        let mut now = accepts(admin.get("/api/v1/namespaces/plain").await).unwrap();
        now["metadata"]["labels"][label] = json!("true");
        let outcome = alice.json(Method::PUT, "/api/v1/namespaces/plain/finalize", &now).await;
        refused(rejects(outcome, 403, "Forbidden").unwrap());
    }
    // She may not remove a label that another user set, and that label does not prevent her other changes.
    let body = |labels: Value| serde_json::to_vec(&json!({"metadata": {"labels": labels}})).unwrap();
    let headers = [("content-type", "application/merge-patch+json")];
    for (name, label) in ["debug", "debug-kep"].into_iter().zip(both) {
        accepts(admin.post("/api/v1/namespaces", &labeled(name, json!({label: "true"}))).await).unwrap();
        let path = format!("/api/v1/namespaces/{name}");
        let gone = alice.send(Method::PATCH, &path, &headers, body(json!({label: null})).into()).await;
        refused(rejects(gone, 403, "Forbidden").unwrap());
        accepts(alice.send(Method::PATCH, &path, &headers, body(json!({"team": "c"})).into()).await).unwrap();
    }

    // A user with the permission may change the labels.
    grant(
        "granting",
        json!({"apiGroups": ["resource.k8s.io"], "resources": ["adminaccess"], "verbs": ["grant"]}),
    )
    .await;
    for label in both {
        accepts(patch("", json!({label: "true"})).await).unwrap();
        accepts(patch("/status", json!({label: null})).await).unwrap();
    }
}
