//! Small requests that make the server decode many objects of a namespace, or look at thousands of limits of a quota.

use std::time::Duration;

use bytes::Bytes;
use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::heavy_lane::lane_requests;
use crate::while_alive;

const PATIENCE: Duration = Duration::from_mins(1);

async fn create_namespace(client: &Client, name: &str) -> String {
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await).unwrap();
    format!("/api/v1/namespaces/{name}")
}

/// Waits until the quota `q` of a namespace has a status that is as `check` says.
async fn quota_status(client: &Client, namespace: &str, check: impl Fn(&Value) -> bool) {
    eventually(PATIENCE, async || {
        let quota = accepts(client.get(&format!("{namespace}/resourcequotas/q")).await)?;
        if check(&quota["status"]) {
            return Ok(());
        }
        Err(Problem::new(format!("the usage is {}", quota["status"]["used"])))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn usage_of_many_stored_bytes_is_counted_on_the_heavy_lane_while_creates_continue() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for (name, size, is_large) in [("small", 1, false), ("large", 1000, true)] {
        let namespace = create_namespace(&client, name).await;
        let secrets = format!("{namespace}/secrets");
        let secret = |name: String| json!({"metadata": {"name": name}, "data": {"k": "eHh4".repeat(size)}});
        for i in 0..40 {
            accepts(client.post(&secrets, &secret(format!("old{i}"))).await).unwrap();
        }
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": "1000"}}});
        accepts(client.post(&format!("{namespace}/resourcequotas"), &quota).await).unwrap();
        let is_counted = |status: &Value| status["used"]["count/secrets"] == "40";
        quota_status(&client, &namespace, is_counted).await;
        let before = lane_requests(&client).await;
        for i in 0..10 {
            let old = format!("{secrets}/old{i}");
            accepts(while_alive(&client, client.delete(&old)).await).unwrap();
            let new = secret(format!("new{i}"));
            accepts(while_alive(&client, client.post(&secrets, &new)).await).unwrap();
        }
        quota_status(&client, &namespace, is_counted).await;
        assert_eq!(lane_requests(&client).await > before, is_large, "{name}");
    }
}

/// Changes the enforced level of a namespace in a dry run.
async fn enforce(client: &Client, namespace: &str, level: &str) {
    let merge = [("content-type", "application/merge-patch+json")];
    let patch = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let path = format!("{namespace}?dryRun=All");
    accepts(
        while_alive(client, client.send(Method::PATCH, &path, &merge, Bytes::from(patch.to_string()))).await,
    )
    .unwrap();
}

#[tokio::test]
async fn existing_pods_are_checked_on_the_heavy_lane_when_a_stricter_level_is_enforced() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for (name, size, is_large) in [("small", 10, false), ("large", 5000, true)] {
        let namespace = create_namespace(&client, name).await;
        for i in 0..20 {
            let pod = json!({
                "metadata": {"name": format!("p{i}"), "annotations": {"k": "x".repeat(size)}},
                "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]},
            });
            // The service account of the pods must exist, too.
            let create = async || accepts(client.post(&format!("{namespace}/pods"), &pod).await);
            eventually(PATIENCE, create).await.unwrap();
        }
        let before = lane_requests(&client).await;
        enforce(&client, &namespace, "privileged").await;
        assert_eq!(lane_requests(&client).await, before, "{name}: no pod is checked");
        enforce(&client, &namespace, "baseline").await;
        assert_eq!(lane_requests(&client).await > before, is_large, "{name}");
    }
}

#[tokio::test]
async fn quotas_of_20000_limits_are_charged_and_counted_on_the_heavy_lane() {
    const LIMITS: usize = 20_000;
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let namespace = create_namespace(&client, "limited").await;
    let (maps, secrets) = (format!("{namespace}/configmaps"), format!("{namespace}/secrets"));
    let named = |name: &str| json!({"metadata": {"name": name}});
    let before = lane_requests(&client).await;
    accepts(client.post(&format!("{maps}?dryRun=All"), &named("free")).await).unwrap();
    assert_eq!(lane_requests(&client).await, before, "there is no quota yet");

    accepts(client.post(&secrets, &named("uncounted")).await).unwrap();
    let mut hard: serde_json::Map<String, Value> =
        (0..LIMITS).map(|i| (format!("count/r{i}"), json!("1"))).collect();
    hard.insert("configmaps".to_owned(), json!("100"));
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    accepts(client.post(&format!("{namespace}/resourcequotas"), &quota).await).unwrap();
    quota_status(&client, &namespace, |status| {
        let limits = status["hard"].as_object().map_or(0, serde_json::Map::len);
        limits == LIMITS + 1 && status["used"]["configmaps"].is_string()
    })
    .await;

    // A dry run of a small object is checked, but charges nothing.
    let before = lane_requests(&client).await;
    accepts(while_alive(&client, client.post(&format!("{maps}?dryRun=All"), &named("dry"))).await).unwrap();
    assert!(lane_requests(&client).await > before, "the create was charged on a worker");
    // The deletion of an object that no limit counts causes a count that writes nothing.
    let before = lane_requests(&client).await;
    accepts(while_alive(&client, client.delete(&format!("{secrets}/uncounted"))).await).unwrap();
    eventually(PATIENCE, async || match lane_requests(&client).await {
        after if after > before => Ok(()),
        after => Err(Problem::new(format!("the usage was counted on a worker: {after} requests"))),
    })
    .await
    .unwrap();
    for i in 0..3 {
        accepts(while_alive(&client, client.post(&maps, &named(&format!("m{i}")))).await).unwrap();
        accepts(while_alive(&client, client.delete(&format!("{maps}/m{i}"))).await).unwrap();
    }
}
