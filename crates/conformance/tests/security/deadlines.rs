//! A client chooses the timeout of its request, and must not bypass checks by that.

use std::time::Duration;

use bytes::Bytes;
use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

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
