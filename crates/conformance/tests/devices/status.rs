//! Permissions for the parts of a claim's status.

use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::claims::{REFUSED, V1, claim};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn allocation_result(admin: bool) -> Value {
    let mut result = json!({"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"});
    if admin {
        result["adminAccess"] = json!(true);
    }
    json!({"devices": {"results": [result]}})
}

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
async fn each_part_of_a_claim_status_needs_its_own_permission() {
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
    let allocate = |claim: &mut Value| claim["status"] = json!({"allocation": allocation_result(false)});
    let status = rejects(with(&allocate).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \"alice\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
    );
    grant(&admin, "alice", "bind", json!([rule("resourceclaims/binding", &["update"])])).await;
    accepts(with(&allocate).await).unwrap();

    // The status of a device may be written by its driver.
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
    // An update that changes neither part needs no such permission.
    accepts(with(&|_| ()).await).unwrap();
    // The first result with admin access needs the label, whichever user writes it.
    let mut now = accepts(admin.get(&path).await).unwrap();
    now["status"] = json!({});
    accepts(admin.json(Method::PUT, &path, &now).await).unwrap();
    let mut now = accepts(admin.get(&path).await).unwrap();
    now["status"] = json!({"allocation": allocation_result(true)});
    let status = rejects(admin.json(Method::PUT, &path, &now).await, 422, "Invalid").unwrap();
    let words = format!("status.allocation.devices.results[0].adminAccess: Forbidden: {REFUSED}");
    assert!(status["message"].as_str().unwrap().contains(&words), "{status}");
}
