//! Built-in admission plugins with concurrency and controllers. Their answers are tested by the scripts `admission-*.yaml` and
//! `evictions.yaml`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(30);

async fn namespace(client: &Client, name: &str) {
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await).unwrap();
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Creates a quota and waits until its status is computed.
async fn quota(client: &Client, namespace: &str, hard: &Value) {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    accepts(client.post(&path, &quota).await).unwrap();
    wait_for_quota_usage(client, namespace, |used| !used.is_null()).await;
}

/// Waits until the used resources of the quota satisfy `is`.
async fn wait_for_quota_usage(client: &Client, namespace: &str, is: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/q");
    eventually(SOON, async || {
        let quota = accepts(client.get(&path).await)?;
        let used = &quota["status"]["used"];
        if is(used) { Ok(used.clone()) } else { Err(Problem::new(format!("used: {used}"))) }
    })
    .await
    .unwrap()
}

async fn count(client: &Client, path: &str) -> usize {
    accepts(client.get(path).await).unwrap()["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn quota_admits_exactly_its_limit_under_concurrency() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    namespace(&client, "q").await;
    quota(&client, "q", &json!({"pods": "10"})).await;
    let mut creations = JoinSet::new();
    for i in 0..100 {
        let client = client.as_token(client.token());
        creations.spawn(async move {
            client.post("/api/v1/namespaces/q/pods", &pod(&format!("p{i}"))).await.unwrap().code
        });
    }
    let codes = creations.join_all().await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 10, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 90, "{codes:?}");
    assert_eq!(count(&client, "/api/v1/namespaces/q/pods").await, 10);
    wait_for_quota_usage(&client, "q", |used| used["pods"] == "10").await;
}

#[tokio::test]
async fn quota_is_released_by_deleted_and_finished_pods_and_never_exceeded() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    namespace(&client, "q").await;
    quota(&client, "q", &json!({"pods": "5", "count/configmaps": "2"})).await;
    let mut work = JoinSet::new();
    for worker in 0..8 {
        let client = client.as_token(client.token());
        work.spawn(async move {
            let mut most = 0;
            for i in 0..20 {
                let name = format!("w{worker}-{i}");
                let made = client.post("/api/v1/namespaces/q/pods", &pod(&name)).await.unwrap();
                most = most.max(count(&client, "/api/v1/namespaces/q/pods").await);
                if made.code == 201 {
                    let path = format!("/api/v1/namespaces/q/pods/{name}?gracePeriodSeconds=0");
                    accepts(client.delete(&path).await).unwrap();
                }
            }
            most
        });
    }
    let most = work.join_all().await.into_iter().max().unwrap();
    assert!(most <= 5, "{most} pods at once");
    wait_for_quota_usage(&client, "q", |used| used["pods"] == "0").await;
    // A creation that fails is not counted in the end.
    let map = json!({"metadata": {"name": "m"}});
    accepts(client.post("/api/v1/namespaces/q/configmaps", &map).await).unwrap();
    rejects(client.post("/api/v1/namespaces/q/configmaps", &map).await, 409, "AlreadyExists").unwrap();
    wait_for_quota_usage(&client, "q", |used| used["count/configmaps"] == "1").await;
    // A finished pod is not counted.
    accepts(client.post("/api/v1/namespaces/q/pods", &pod("ends")).await).unwrap();
    wait_for_quota_usage(&client, "q", |used| used["pods"] == "1").await;
    let ended = json!({"status": {"phase": "Succeeded"}});
    let headers = [("content-type", "application/merge-patch+json")];
    let path = "/api/v1/namespaces/q/pods/ends/status";
    accepts(client.send(http::Method::PATCH, path, &headers, ended.to_string().into()).await).unwrap();
    wait_for_quota_usage(&client, "q", |used| used["pods"] == "0").await;
}

#[tokio::test]
async fn the_first_pod_of_a_namespace_waits_for_its_service_account() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for i in 0..5 {
        let name = format!("fresh-{i}");
        namespace(&client, &name).await;
        let made = accepts(client.post(&format!("/api/v1/namespaces/{name}/pods"), &pod("p")).await).unwrap();
        assert_eq!(made["spec"]["serviceAccountName"], "default");
        let volume = made["spec"]["volumes"][0]["name"].as_str().unwrap();
        assert!(volume.starts_with("kube-api-access-") && volume.len() == 21, "{volume}");
        assert_eq!(made["spec"]["containers"][0]["volumeMounts"][0]["name"], volume);
    }
    // A service account that does not exist is reported.
    let mut other = pod("o");
    other["spec"]["serviceAccountName"] = json!("nobody");
    let status =
        rejects(client.post("/api/v1/namespaces/fresh-0/pods", &other).await, 403, "Forbidden").unwrap();
    assert_eq!(
        status["message"],
        "pods \"o\" is forbidden: error looking up service account fresh-0/nobody: serviceaccount \"nobody\" not found"
    );
}

#[tokio::test]
async fn pod_security_evaluations_are_counted() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let labeled =
        json!({"metadata": {"name": "s", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    accepts(client.post("/api/v1/namespaces", &labeled).await).unwrap();
    rejects(client.post("/api/v1/namespaces/s/pods", &pod("p")).await, 403, "Forbidden").unwrap();
    let metrics = client.get("/metrics").await.unwrap().text();
    let line = "pod_security_evaluations_total{decision=\"deny\",mode=\"enforce\",policy_level=\"restricted\",policy_version=\"latest\",request_operation=\"create\",resource=\"pod\",subresource=\"\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains(
        "pod_security_exemptions_total{request_operation=\"create\",resource=\"pod\",subresource=\"\"} 0"
    ));
}

#[tokio::test]
async fn plugins_can_be_enabled_and_disabled() {
    let flags = [
        "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs",
        "--disable-admission-plugins=ServiceAccount,PodSecurity",
    ];
    let server = Server::serve(&flags).await.unwrap();
    let client = server.client().unwrap();
    let made = accepts(client.post("/api/v1/namespaces/default/pods", &pod("p")).await).unwrap();
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(made["spec"]["volumes"], Value::Null);
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["1.2.3.4"]}});
    rejects(client.post("/api/v1/namespaces/default/services", &service).await, 403, "Forbidden").unwrap();
}
