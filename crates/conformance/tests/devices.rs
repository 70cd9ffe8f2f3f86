//! Devices of `resource.k8s.io` over the wire: who may ask for admin access, and who may write which part of a claim's status.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

const V1: &str = "/apis/resource.k8s.io/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn request(admin: bool) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    if admin {
        exactly["adminAccess"] = json!(true);
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

fn claim(name: &str, admin: bool) -> Value {
    json!({"metadata": {"name": name}, "spec": request(admin)})
}

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"spec": request(true)}})
}

async fn label(client: &Client, labels: Value) {
    let patch = json!({"metadata": {"labels": labels}});
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&patch).unwrap();
    accepts(client.send(Method::PATCH, "/api/v1/namespaces/default", &headers, body.into()).await).unwrap();
}

const REFUSED: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

#[tokio::test]
async fn admin_access_is_asked_for_in_labelled_namespaces_only() {
    let betas = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true";
    let server = Server::serve(&[betas]).await.unwrap();
    let client = server.client().unwrap();
    let old = json!({"metadata": {"name": "old"}, "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu", "adminAccess": true}]}}});
    let cases = [
        (format!("{V1}/resourceclaims"), claim("c", true)),
        (format!("{V1}/resourceclaimtemplates"), template("t")),
        ("/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims".to_owned(), old),
        ("/apis/resource.k8s.io/v1beta2/namespaces/default/resourceclaims".to_owned(), claim("newer", true)),
    ];
    for (path, object) in &cases {
        let status = rejects(client.post(path, object).await, 422, "Invalid").unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("spec.devices.requests[0].adminAccess: Forbidden: {REFUSED}")),
            "{message}"
        );
    }
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("plain", false)).await).unwrap();
    // A label with another value is none.
    label(&client, json!({"resource.kubernetes.io/admin-access": "false"})).await;
    rejects(client.post(&cases[0].0, &cases[0].1).await, 422, "Invalid").unwrap();
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    for (path, object) in &cases {
        let answer = client.post(path, object).await.unwrap();
        assert!(!answer.header("warning").contains("admin access"), "{path}");
        accepts(Ok(answer)).unwrap();
    }
    let stored = accepts(client.get(&format!("{V1}/resourceclaims/old")).await).unwrap();
    assert_eq!(stored["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"], true);
    // The label goes, and the next request meets that; the KEP's own label does it, too, with a word about it.
    label(&client, json!({"resource.kubernetes.io/admin-access": null})).await;
    rejects(client.post(&cases[0].0, &claim("late", true)).await, 422, "Invalid").unwrap();
    label(&client, json!({"kubernetes.io/dra-admin-access": "true"})).await;
    let answer = client.post(&cases[0].0, &claim("late", true)).await.unwrap();
    assert!(answer.header("warning").contains("use resource.kubernetes.io/admin-access instead"));
    accepts(Ok(answer)).unwrap();
    let metrics = client.get("/metrics").await.unwrap().text();
    assert!(
        metrics.contains("apiserver_device_admin_access_total{allowed=\"true\",kind=\"ResourceClaim\"} 4"),
        "{metrics}"
    );
}

fn allocated(admin: bool) -> Value {
    let mut result = json!({"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"});
    if admin {
        result["adminAccess"] = json!(true);
    }
    json!({"devices": {"results": [result]}})
}

/// Lets a user do something.
async fn grant(admin: &Client, user: &str, name: &str, rules: Value) {
    accepts(
        admin
            .post(&format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules}))
            .await,
    )
    .unwrap();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
}

fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs})
}

#[tokio::test]
async fn each_part_of_a_status_needs_its_own_right() {
    let server = Server::serve(&["--authorization-mode=RBAC"]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(&format!("{V1}/resourceclaims"), &claim("c", false)).await).unwrap();
    let alice = admin.as_token(Some("alicetoken"));
    grant(&admin, "alice", "status", json!([rule("resourceclaims/status", &["update", "get"])])).await;
    let path = format!("{V1}/resourceclaims/c/status");
    let with = async |change: &dyn Fn(&mut Value)| {
        let mut now = accepts(admin.get(&path).await).unwrap();
        change(&mut now);
        alice.json(Method::PUT, &path, &now).await
    };
    let allocate = |claim: &mut Value| claim["status"] = json!({"allocation": allocated(false)});
    let status = rejects(with(&allocate).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \"alice\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
    );
    grant(&admin, "alice", "bind", json!([rule("resourceclaims/binding", &["update"])])).await;
    accepts(with(&allocate).await).unwrap();

    // What is said about a device is its driver's.
    let describe = |claim: &mut Value| {
        claim["status"]["devices"] =
            json!([{"driver": "gpu.example.com", "pool": "p", "device": "d", "conditions": []}]);
    };
    let status = rejects(with(&describe).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:update]\" permission: resourceclaims.resource.k8s.io \"gpu.example.com\" is forbidden: User \"alice\" cannot arbitrary-node:update resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\""
    );
    let mut driver = rule("resourceclaims/driver", &["arbitrary-node:update"]);
    driver["resourceNames"] = json!(["gpu.example.com"]);
    grant(&admin, "alice", "driver", json!([driver])).await;
    accepts(with(&describe).await).unwrap();
    // An update that touches neither needs neither.
    accepts(with(&|_| ()).await).unwrap();
    // The first result with admin access needs the label, whoever writes it.
    let mut now = accepts(admin.get(&path).await).unwrap();
    now["status"] = json!({});
    accepts(admin.json(Method::PUT, &path, &now).await).unwrap();
    let mut now = accepts(admin.get(&path).await).unwrap();
    now["status"] = json!({"allocation": allocated(true)});
    let status = rejects(admin.json(Method::PUT, &path, &now).await, 422, "Invalid").unwrap();
    let words = format!("status.allocation.devices.results[0].adminAccess: Forbidden: {REFUSED}");
    assert!(status["message"].as_str().unwrap().contains(&words), "{status}");
}
