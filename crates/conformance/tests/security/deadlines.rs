//! A client chooses the timeout of its request, and must not bypass checks by that.

use std::time::{Duration, Instant};

use bytes::Bytes;
use conformance::client::HttpResponse;
use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::callers::{SOON, metric};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// Registers a validating webhook for config maps with failurePolicy Ignore.
async fn register(client: &Client, webhook: &WebhookServer) {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
    let hook = json!({"name": "guard.example.com", "failurePolicy": "Ignore", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 20, "rules": [rule],
        "clientConfig": {"url": webhook.url("/review"), "caBundle": webhook.ca_bundle}});
    accepts(client.post(HOOKS, &json!({"metadata": {"name": "guard"}, "webhooks": [hook]})).await).unwrap();
}

#[tokio::test]
async fn a_short_timeout_does_not_bypass_a_webhook_with_failure_policy_ignore() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.post(MAPS, &map("old")).await).unwrap();
    let silent = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::Silence).await.unwrap();
    register(&client, &silent).await;

    rejects(client.post(&format!("{MAPS}?timeout=300ms"), &map("new")).await, 504, "Timeout").unwrap();
    let patch = (Method::PATCH, json!({"data": {"k": "changed"}}));
    for (method, body) in [patch, (Method::DELETE, Value::Null)] {
        let path = format!("{MAPS}/old?timeout=300ms");
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let headers = [("content-type", "application/merge-patch+json")];
        rejects(client.send(method, &path, &headers, body).await, 504, "Timeout").unwrap();
    }
    assert_eq!(silent.take_calls().len(), 3, "each request was asked about");

    // No write follows later: all requests have ended when the webhook is gone and others are served.
    accepts(client.delete(&format!("{HOOKS}/guard")).await).unwrap();
    eventually(Duration::from_secs(10), async || accepts(client.post(MAPS, &map("next")).await))
        .await
        .unwrap();
    rejects(client.get(&format!("{MAPS}/new")).await, 404, "NotFound").unwrap();
    let old = accepts(client.get(&format!("{MAPS}/old")).await).unwrap();
    assert_eq!(old["data"]["k"], "v");
}

#[tokio::test]
async fn a_request_that_timed_out_has_written_nothing() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let (mut late, mut written) = (0, 0);
    for number in 0..40 {
        let name = format!("m{number}");
        let answer = client.post(&format!("{MAPS}?timeout=1us"), &map(&name)).await.unwrap();
        if answer.code == 504 {
            late += 1;
            written += u32::from(client.get(&format!("{MAPS}/{name}")).await.unwrap().code == 200);
        }
    }
    assert!(late > 0, "no request was late");
    assert_eq!(written, 0, "{written} of {late} late requests were stored");
    accepts(client.post(&format!("{MAPS}?timeout=20s"), &map("in-time")).await).unwrap();
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Adds an annotation to the CRD of the test.
async fn annotate(client: &Client, query: &str, name: &str) -> conformance::Result<HttpResponse> {
    let body = json!({"metadata": {"annotations": {name: "yes"}}}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    client.send(Method::PATCH, &format!("{CRDS}/many.example.com{query}"), &headers, body.into()).await
}

/// Two clients change a large object at the same time, so that one of them has a conflict and attempts the change again.
#[tokio::test]
async fn a_conflict_does_not_lift_the_deadline_of_a_request() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let versions: Vec<Value> = (1..=600)
        .map(|number| {
            json!({"name": format!("v{number}"), "served": true, "storage": number == 1,
                "schema": {"openAPIV3Schema": {"type": "object"}}})
        })
        .collect();
    let names = json!({"plural": "many", "kind": "Many", "listKind": "ManyList", "singular": "many"});
    let crd = json!({"metadata": {"name": "many.example.com"}, "spec":
        {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}});
    accepts(client.post(CRDS, &crd).await).unwrap();
    eventually(SOON, async || accepts(annotate(&client, "", "warm").await)).await.unwrap();
    let begun = Instant::now();
    accepts(annotate(&client, "", "alone").await).unwrap();
    let alone = begun.elapsed();
    let mut late = Vec::new();
    // Some of the deadlines are between the first attempt and the end of the second one.
    for step in 1..=24 {
        let limit = (alone * step / 12).as_millis().max(1);
        let (mine, other) = (format!("mine-{step}"), format!("other-{step}"));
        let other_client = client.as_token(client.token());
        let query = format!("?timeout={limit}ms");
        let (mine_answer, other_answer) =
            tokio::join!(annotate(&client, &query, &mine), annotate(&other_client, "", &other));
        accepts(other_answer).unwrap();
        if mine_answer.unwrap().code == 504 {
            late.push(mine);
        }
    }
    assert!(!late.is_empty(), "no request was late");
    // Requests may go on after their answer.
    eventually(SOON, async || match metric(&client, "portcullis_large_requests_running", "").await {
        Some(0.0) => Ok(()),
        running => Err(Problem::new(format!("{running:?} requests are running"))),
    })
    .await
    .unwrap();
    let crd = accepts(client.get(&format!("{CRDS}/many.example.com")).await).unwrap();
    late.retain(|name| crd["metadata"]["annotations"].get(name).is_some());
    assert!(late.is_empty(), "stored although they were answered with a timeout: {late:?}");
}
