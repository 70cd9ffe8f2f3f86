//! Creates claims, nodes with devices, and pods that use them.

use std::time::Duration;

use conformance::{Client, Problem, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

pub(crate) const SOON: Duration = Duration::from_secs(30);
pub(crate) const V1: &str = "/apis/resource.k8s.io/v1/namespaces/default";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const REFUSED: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

pub(crate) fn request(admin: bool) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    if admin {
        exactly["adminAccess"] = json!(true);
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

pub(crate) fn claim(name: &str, admin: bool) -> Value {
    json!({"metadata": {"name": name}, "spec": request(admin)})
}

pub(crate) fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"spec": request(true)}})
}

/// Adds a label to the namespace.
pub(crate) async fn label(client: &Client, labels: Value) {
    let patch = json!({"metadata": {"labels": labels}});
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&patch).unwrap();
    accepts(client.send(Method::PATCH, "/api/v1/namespaces/default", &headers, body.into()).await).unwrap();
}

/// Creates a node with one device.
pub(crate) async fn node(client: &Client, name: &str) {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    let node =
        json!({"metadata": {"name": name}, "status": {"allocatable": resources, "capacity": resources}});
    accepts(client.post("/api/v1/nodes", &node).await).unwrap();
    // A new node has the not-ready taint; no node controller removes it here.
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&json!({"spec": {"taints": null}})).unwrap();
    accepts(client.send(Method::PATCH, &format!("/api/v1/nodes/{name}"), &headers, body.into()).await)
        .unwrap();
    let slice = json!({"metadata": {"name": name}, "spec": {
        "driver": "gpu.example.com", "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}]}});
    accepts(client.post("/apis/resource.k8s.io/v1/resourceslices", &slice).await).unwrap();
}

pub(crate) fn pod(name: &str, source: &Value) -> Value {
    let mut claim = source.clone();
    claim["name"] = json!("gpu");
    json!({"metadata": {"name": name}, "spec": {"resourceClaims": [claim],
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]}})
}

/// Waits until a pod has a node, or a reason for having none.
pub(crate) async fn wait_for_node(client: &Client, name: &str) -> Result<String, String> {
    let outcome = eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/{name}")).await)?;
        if let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) {
            return Ok(Ok(node.to_owned()));
        }
        let conditions =
            pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let said = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
        let message = said.and_then(|one| one["message"].as_str()).unwrap_or_default().to_owned();
        if message.contains("nodes are available") {
            Ok(Err(message))
        } else {
            Err(Problem::new(pod.to_string()))
        }
    });
    outcome.await.unwrap()
}

pub(crate) async fn allocation(client: &Client, pod: &str) -> Value {
    let pod = accepts(client.get(&format!("{PODS}/{pod}")).await).unwrap();
    let made =
        pod.pointer("/status/resourceClaimStatuses/0/resourceClaimName").and_then(Value::as_str).unwrap();
    accepts(client.get(&format!("{V1}/resourceclaims/{made}")).await).unwrap()
}

/// The event that says why a pod got no claim.
pub(crate) async fn wait_for_refused_claim(client: &Client) -> Value {
    eventually(SOON, async || {
        let events = accepts(client.get("/api/v1/namespaces/default/events").await)?;
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|event| event["reason"] == "FailedResourceClaimCreation");
        found.cloned().ok_or_else(|| Problem::new(events.to_string()))
    })
    .await
    .unwrap()
}
