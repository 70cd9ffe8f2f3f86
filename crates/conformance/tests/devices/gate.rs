//! The feature gate DRAAdminAccess: off, on, and off again with stored objects.

use conformance::{Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::claims::{
    PODS, SOON, V1, claim, label, node, pod, template, wait_for_node, wait_for_refused_claim,
};

#[tokio::test]
async fn without_the_gate_new_objects_lose_admin_access_and_stored_ones_are_not_allocated() {
    let folder = TempDir::new().unwrap();
    let emulated = "--emulated-version=1.35";
    let off = [emulated, "--feature-gates=DRAAdminAccess=false", "--enable-scheduler"];
    let on = ["--enable-scheduler"];
    let claims = format!("{V1}/resourceclaims");
    let access = |claim: &Value| claim.pointer("/spec/devices/requests/0/exactly/adminAccess").cloned();
    // Gate on: the field is stored. The pods wait, because there is no node.
    let mut server = Server::serve_at(folder.path(), &on).await.unwrap();
    let client = server.client().unwrap();
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    accepts(client.post(&claims, &claim("kept", true)).await).unwrap();
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &template("kept")).await).unwrap();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    server.terminate().unwrap();
    server.wait(SOON).await.unwrap();

    // Gate off: new objects lose the field in any namespace, stored ones keep it, and it is not allocated.
    let mut server = Server::serve_at(folder.path(), &off).await.unwrap();
    let client = server.client().unwrap();
    let version = accepts(client.get("/version").await).unwrap();
    assert_eq!((&version["minor"], &version["emulationMinor"]), (&json!("37"), &json!("35")));
    let dropped = accepts(client.post(&claims, &claim("dropped", true)).await).unwrap();
    assert_eq!(access(&dropped), None);
    let mut stored = accepts(client.get(&format!("{claims}/kept")).await).unwrap();
    stored["metadata"]["labels"] = json!({"a": "b"});
    let stored = accepts(client.json(Method::PUT, &format!("{claims}/kept"), &stored).await).unwrap();
    assert_eq!(access(&stored), Some(json!(true)));
    node(&client, "one").await;
    accepts(client.post(PODS, &pod("direct", &json!({"resourceClaimName": "kept"}))).await).unwrap();
    accepts(client.post(PODS, &pod("made", &json!({"resourceClaimTemplateName": "kept"}))).await).unwrap();
    let why = eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/direct")).await)?;
        let said = pod.pointer("/status/conditions/0/message").and_then(Value::as_str).map(str::to_owned);
        said.ok_or_else(|| Problem::new(pod.to_string()))
    })
    .await
    .unwrap();
    assert_eq!(why, "claim default/kept, request r: admin access is requested, but the feature is disabled");
    let event = wait_for_refused_claim(&client).await;
    assert_eq!(
        event["message"],
        "PodResourceClaim gpu: admin access is requested, but the feature is disabled"
    );
    server.terminate().unwrap();
    server.wait(SOON).await.unwrap();

    // Gate on again: both pods are scheduled.
    let server = Server::serve_at(folder.path(), &on).await.unwrap();
    let client = server.client().unwrap();
    for name in ["direct", "made"] {
        assert_eq!(wait_for_node(&client, name).await, Ok("one".to_owned()));
    }
}
