//! Device taints from slices and from DeviceTaintRules.

use conformance::{Server, accepts};
use serde_json::{Value, json};

use crate::claims::{PODS, V1, allocation, node, pod, wait_for_node};

const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";

/// A claim template for one device, with tolerations or without.
fn template(name: &str, tolerations: &Value) -> Value {
    let exactly = json!({"deviceClassName": "gpu", "tolerations": tolerations});
    json!({"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}})
}

#[tokio::test]
async fn a_taint_rule_blocks_pods_without_a_toleration_until_it_is_deleted() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    node(&client, "one").await;
    let tolerant = json!([{"key": "maintenance", "operator": "Exists"}]);
    for one in [template("plain", &json!([])), template("tolerant", &tolerant)] {
        accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &one).await).unwrap();
    }
    let rule = json!({"metadata": {"name": "maintenance"}, "spec": {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "one"},
        "taint": {"key": "maintenance", "effect": "NoSchedule"}}});
    accepts(client.post(RULES, &rule).await).unwrap();
    let from = |template: &str| json!({"resourceClaimTemplateName": template});
    accepts(client.post(PODS, &pod("waits", &from("plain"))).await).unwrap();
    assert_eq!(
        wait_for_node(&client, "waits").await,
        Err("0/1 nodes are available: 1 cannot allocate all claims.".to_owned())
    );
    accepts(client.post(PODS, &pod("mechanic", &from("tolerant"))).await).unwrap();
    assert_eq!(wait_for_node(&client, "mechanic").await, Ok("one".to_owned()));
    let claim = allocation(&client, "mechanic").await;
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/tolerations"), Some(&tolerant));
    // Deleting the rule makes the device available, and the other pod is scheduled.
    accepts(client.delete(&format!("{RULES}/maintenance")).await).unwrap();
    accepts(client.delete(&format!("{PODS}/mechanic?gracePeriodSeconds=0")).await).unwrap();
    conformance::eventually(crate::claims::SOON, async || match wait_for_node(&client, "waits").await {
        Ok(node) if node == "one" => Ok(()),
        other => Err(conformance::Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
}
