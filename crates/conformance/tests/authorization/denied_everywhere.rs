//! The server does not do for a user what an authorizer denies: neither snapshots nor built-in controllers are a way around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conformance::{Client, Hook, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use super::chain::{AuthorizerWebhook, Files, status};

const SNAPSHOT: &str = "/portcullis/snapshot";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PATIENCE: Duration = Duration::from_mins(1);

/// Denies requests whose resource attributes satisfy `is_denied`, and has no opinion on others.
async fn denying(is_denied: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Hook {
    Hook::start(move |asked| {
        let attributes = &asked.body["spec"]["resourceAttributes"];
        status(
            asked,
            &json!({"allowed": false, "denied": is_denied(attributes), "reason": "it is off limits"}),
        )
    })
    .await
    .unwrap()
}

/// Lets the user Bob do this.
async fn grant(admin: &Client, rules: &Value) {
    let role = json!({"metadata": {"name": "of-bob"}, "rules": rules});
    accepts(admin.post(&format!("{RBAC}/clusterroles"), &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "of-bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "of-bob"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
}

#[tokio::test]
async fn a_snapshot_needs_the_right_to_list_each_stored_resource() {
    let hook = denying(|attributes| attributes["group"] == "example.com").await;
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("hook", &hook)]).await;
    let admin = server.client().unwrap();
    let bob = admin.as_token(Some("bobtoken"));
    grant(
        &admin,
        &json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]},
            {"nonResourceURLs": [SNAPSHOT], "verbs": ["post"]},
        ]),
    )
    .await;
    let save = async || bob.send(Method::POST, SNAPSHOT, &[], bytes::Bytes::new()).await;
    assert_eq!(save().await.unwrap().code, 200);
    let asked = hook.take();
    for resource in ["*", "secrets", "configmaps", "clusterroles", "customresourcedefinitions", "leases"] {
        let is_about =
            |attributes: &Value| attributes["verb"] == "list" && attributes["resource"] == resource;
        assert!(asked.iter().any(|asked| is_about(&asked.body["spec"]["resourceAttributes"])), "{resource}");
    }
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    accepts(admin.post(CRDS, &crd).await).unwrap();
    eventually(PATIENCE, async || accepts(admin.get("/apis/example.com/v1/widgets").await)).await.unwrap();
    let refused = rejects(save().await, 403, "Forbidden").unwrap();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("widgets") && message.ends_with("it is off limits"), "{message}");
    assert_eq!(admin.send(Method::POST, SNAPSHOT, &[], bytes::Bytes::new()).await.unwrap().code, 200);
}

#[tokio::test]
async fn the_garbage_collector_deletes_nothing_that_an_authorizer_denies() {
    let is_protected = Arc::new(AtomicBool::new(true));
    let protected = Arc::clone(&is_protected);
    let hook = denying(move |attributes| {
        let is_delete = attributes["verb"] == "delete" && attributes["resource"] == "configmaps";
        is_delete && protected.load(Ordering::SeqCst)
    })
    .await;
    let files = Files::new();
    let ttl = ["unauthorizedTTL: 1ms"];
    files.put(
        "authz.yaml",
        &files.configuration(&[AuthorizerWebhook { fields: &ttl, ..AuthorizerWebhook::new("hook", &hook) }]),
    );
    let server = Server::serve(&[&files.flag()]).await.unwrap();
    let admin = server.client().unwrap();
    let bob = admin.as_token(Some("bobtoken"));
    grant(&admin, &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}])).await;
    accepts(bob.post(MAPS, &json!({"metadata": {"name": "protected"}})).await).unwrap();
    let path = format!("{MAPS}/protected");
    rejects(bob.delete(&path).await, 403, "Forbidden").unwrap();
    // Bob makes it depend on an object that does not exist.
    hook.take();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0000"});
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    let headers = [("content-type", "application/merge-patch+json")];
    accepts(bob.send(Method::PATCH, &path, &headers, patch.to_string().into()).await).unwrap();
    eventually(PATIENCE, async || {
        let asked = hook.take();
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        let is_refused = asked.iter().any(|asked| {
            let spec = &asked.body["spec"];
            spec["user"] == collector && spec["resourceAttributes"]["verb"] == "delete"
        });
        if is_refused { Ok(()) } else { Err(Problem::new("the garbage collector did not try")) }
    })
    .await
    .unwrap();
    accepts(admin.get(&path).await).unwrap();
    is_protected.store(false, Ordering::SeqCst);
    eventually(PATIENCE, async || rejects(admin.get(&path).await, 404, "NotFound")).await.unwrap();
}
