//! Quotas for claims and devices, with and without admin access.

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};

use crate::claims::{SOON, V1, label};

const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas";
const DEVICES: &str = "gpu.deviceclass.resource.k8s.io/devices";
const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";

fn claim(name: &str, exactly: &Value) -> Value {
    let mut exactly = exactly.clone();
    exactly["deviceClassName"] = json!("gpu");
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

async fn wait_for_quota_usage(client: &Client, devices: &str, claims: &str) {
    eventually(SOON, async || {
        let quota = accepts(client.get(&format!("{QUOTA}/q")).await)?;
        let now = (&quota["status"]["used"][DEVICES], &quota["status"]["used"][CLAIMS]);
        if now == (&json!(devices), &json!(claims)) { Ok(()) } else { Err(Problem::new(quota.to_string())) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn quota_counts_devices_and_claims_with_and_without_admin_access() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    let hard = json!({(DEVICES): "40", (CLAIMS): "4"});
    accepts(client.post(QUOTA, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await).unwrap();
    wait_for_quota_usage(&client, "0", "0").await;
    let path = format!("{V1}/resourceclaims");
    accepts(client.post(&path, &claim("two", &json!({"count": 2}))).await).unwrap();
    accepts(client.post(&path, &claim("look", &json!({"count": 3, "adminAccess": true}))).await).unwrap();
    wait_for_quota_usage(&client, "5", "2").await;
    // AllocationMode All counts as the maximum of a claim.
    let all = json!({"allocationMode": "All", "adminAccess": true});
    accepts(client.post(&path, &claim("all", &all)).await).unwrap();
    wait_for_quota_usage(&client, "37", "3").await;
    let over = client.post(&path, &claim("more", &json!({"count": 4, "adminAccess": true}))).await;
    let status = rejects(over, 403, "Forbidden").unwrap();
    assert_eq!(
        status["message"],
        format!(
            "resourceclaims.resource.k8s.io \"more\" is forbidden: exceeded quota: q, requested: {DEVICES}=4, used: {DEVICES}=37, limited: {DEVICES}=40"
        )
    );
    accepts(client.post(&path, &claim("last", &json!({"count": 3}))).await).unwrap();
    let fifth = json!({"metadata": {"name": "fifth"}, "spec": {}});
    let status = rejects(client.post(&path, &fifth).await, 403, "Forbidden").unwrap();
    assert!(
        status["message"].as_str().unwrap().contains(&format!("{CLAIMS}=1, used: {CLAIMS}=4")),
        "{status}"
    );
    // A deleted claim is not counted any more.
    accepts(client.delete(&format!("{path}/all")).await).unwrap();
    wait_for_quota_usage(&client, "8", "3").await;
}
