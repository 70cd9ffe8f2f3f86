//! Pods that wait for binding conditions of devices, and claims that no pod uses.

use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::claims::{PODS, SOON, V1, node, pod, wait_for_node};

const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c";

async fn patch_status(client: &Client, status: Value) {
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&json!({"status": status})).unwrap();
    accepts(client.send(Method::PATCH, &format!("{CLAIM}/status"), &headers, body.into()).await).unwrap();
}

/// The device status that a driver reports.
fn device_status(kind: &str) -> Value {
    let condition = json!({"type": kind, "status": "True", "reason": "Driver", "message": "it says so",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!([{"driver": "fabric.example.com", "pool": "fabric", "device": "nic-0", "conditions": [condition]}])
}

async fn class_and_claim(client: &Client, driver: &str, claim: Value) {
    let class = json!({"metadata": {"name": "any"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{driver}'")}}]}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim).await).unwrap();
}

fn claim(metadata: &Value) -> Value {
    json!({"metadata": metadata, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}}})
}

/// Waits until the claim is allocated and its driver has not reported a status for that allocation.
async fn wait_for_new_allocation(client: &Client) {
    eventually(SOON, async || {
        let claim = accepts(client.get(CLAIM).await)?;
        let given =
            claim.pointer("/status/allocation").is_some() && claim.pointer("/status/reservedFor").is_some();
        if given && claim.pointer("/status/devices").is_none() {
            return Ok(());
        }
        Err(Problem::new(claim.to_string()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_pod_waits_for_binding_conditions_and_failed_devices_are_released() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    node(&client, "one").await;
    let slice = json!({"metadata": {"name": "fabric"}, "spec": {
        "driver": "fabric.example.com", "allNodes": true,
        "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "nic-0", "bindsToNode": true,
            "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}]}});
    accepts(client.post("/apis/resource.k8s.io/v1/resourceslices", &slice).await).unwrap();
    class_and_claim(&client, "fabric.example.com", claim(&json!({"name": "c"}))).await;
    accepts(client.post(PODS, &pod("web", &json!({"resourceClaimName": "c"}))).await).unwrap();
    wait_for_new_allocation(&client).await;
    eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/web")).await)?;
        assert_eq!(pod.pointer("/spec/nodeName"), None);
        if pod.to_string().contains("waiting for devices to be made ready") {
            return Ok(());
        }
        Err(Problem::new(pod.to_string()))
    })
    .await
    .unwrap();
    // A binding failure releases the device, and another attempt follows.
    patch_status(&client, json!({"devices": device_status("broken")})).await;
    wait_for_new_allocation(&client).await;
    patch_status(&client, json!({"devices": device_status("ready")})).await;
    eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/web")).await)?;
        match pod.pointer("/spec/nodeName") {
            Some(node) if node == "one" => Ok(()),
            _ => Err(Problem::new(pod.to_string())),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_unused_allocation_that_no_node_can_reach_is_released_for_a_waiting_pod() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    node(&client, "one").await;
    let metadata = json!({"name": "c", "finalizers": ["resource.kubernetes.io/delete-protection"]});
    class_and_claim(&client, "gpu.example.com", claim(&metadata)).await;
    let gone = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]});
    let results = json!([{"request": "r", "driver": "gpu.example.com", "pool": "gone", "device": "gpu-0"}]);
    patch_status(&client, json!({"allocation": {"devices": {"results": results}, "nodeSelector": gone}}))
        .await;
    accepts(client.post(PODS, &pod("web", &json!({"resourceClaimName": "c"}))).await).unwrap();
    eventually(SOON, async || match wait_for_node(&client, "web").await {
        Ok(node) if node == "one" => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    let claim = accepts(client.get(CLAIM).await).unwrap();
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/pool"), Some(&json!("one")));
}
