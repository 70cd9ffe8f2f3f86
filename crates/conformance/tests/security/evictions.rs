//! A denied eviction writes nothing, and large budgets do not occupy the threads of other requests.

use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::heavy_lane::lane_requests;

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn put_status(client: &Client, path: &str, status: &Value) {
    let mut object = accepts(client.get(path).await).unwrap();
    object["status"] = status.clone();
    accepts(client.json(Method::PUT, &format!("{path}/status"), &object).await).unwrap();
}

/// A pod in a phase, and a budget that allows its eviction.
async fn create_pod_and_budget(client: &Client, name: &str, phase: &str) {
    accepts(
        client.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": name}})).await,
    )
    .unwrap();
    let pod = json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"serviceAccountName": name, "containers": [{"name": "c", "image": "i"}]}});
    accepts(client.post(PODS, &pod).await).unwrap();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    put_status(client, &format!("{PODS}/{name}"), &json!({"phase": phase, "conditions": ready})).await;
    let budget = json!({"metadata": {"name": name},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": name}}}});
    accepts(client.post(BUDGETS, &budget).await).unwrap();
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1,
        "desiredHealthy": 0, "expectedPods": 1});
    put_status(client, &format!("{BUDGETS}/{name}"), &status).await;
}

/// Denies deletions of pods with these labels.
async fn deny_deletion(client: &Client, names: &[&str]) {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]});
    let expression = format!("!(oldObject.metadata.labels.app in {})", json!(names));
    let policy = json!({"metadata": {"name": "keep"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "it stays"}]}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await).unwrap();
    let binding =
        json!({"metadata": {"name": "keep"}, "spec": {"policyName": "keep", "validationActions": ["Deny"]}});
    accepts(client.post(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding).await)
        .unwrap();
}

async fn pod_and_budget(client: &Client, name: &str) -> [Value; 2] {
    let pod = accepts(client.get(&format!("{PODS}/{name}")).await).unwrap();
    [pod, accepts(client.get(&format!("{BUDGETS}/{name}")).await).unwrap()]
}

fn eviction(name: &str, options: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options})
}

#[tokio::test]
async fn a_denied_eviction_and_a_dry_run_write_nothing() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for (name, phase) in [("kept", "Running"), ("pending", "Pending"), ("free", "Running")] {
        create_pod_and_budget(&client, name, phase).await;
    }
    deny_deletion(&client, &["kept", "pending"]).await;
    for name in ["kept", "pending"] {
        let before = pod_and_budget(&client, name).await;
        for query in ["", "?dryRun=All"] {
            let path = format!("{PODS}/{name}/eviction{query}");
            let status =
                rejects(client.post(&path, &eviction(name, &json!({}))).await, 422, "Invalid").unwrap();
            assert!(status["message"].as_str().unwrap().contains("it stays"), "{status}");
        }
        assert_eq!(pod_and_budget(&client, name).await, before, "{name}");
    }

    let before = pod_and_budget(&client, "free").await;
    let path = format!("{PODS}/free/eviction");
    accepts(client.post(&format!("{path}?dryRun=All"), &eviction("free", &json!({}))).await).unwrap();
    accepts(client.post(&path, &eviction("free", &json!({"dryRun": ["All"]}))).await).unwrap();
    assert_eq!(pod_and_budget(&client, "free").await, before);

    accepts(client.post(&path, &eviction("free", &json!({"gracePeriodSeconds": 0}))).await).unwrap();
    rejects(client.get(&format!("{PODS}/free")).await, 404, "NotFound").unwrap();
    let budget = accepts(client.get(&format!("{BUDGETS}/free")).await).unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0, "{budget}");
}

#[tokio::test]
async fn large_budgets_of_a_namespace_are_read_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    create_pod_and_budget(&client, "free", "Running").await;
    let path = format!("{PODS}/free/eviction?dryRun=All");
    for is_large in [false, true] {
        if is_large {
            let budget = json!({"metadata": {"name": "large", "annotations": {"a": "x".repeat(100_000)}},
                "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "other"}}}});
            accepts(client.post(BUDGETS, &budget).await).unwrap();
        }
        let before = lane_requests(&client).await;
        accepts(client.post(&path, &eviction("free", &json!({}))).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, is_large);
    }
}
