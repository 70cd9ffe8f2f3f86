//! Webhooks may answer with the review that they received. An object must not be able to make such an answer unreadable, because
//! the denial of a webhook with `failurePolicy: Ignore` would be ignored.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use conformance::webhook::{ReviewCall, ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, HttpResponse, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const THINGS: &str = "/apis/deep.example.com/v1/namespaces/default/things";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(30);

/// A field of a review that is too deeply nested for most readers.
fn field_of_review(review: &str, field: &str) -> String {
    let (_, rest) = review.split_once(&format!("\"{field}\":\"")).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

/// Answers with the received review and a response in it. Go's encoder escapes some characters.
fn reply_echoing_the_review(call: &ReviewCall, response: &str) -> ReviewReply {
    let review = String::from_utf8(call.body.to_vec()).unwrap();
    let uid = field_of_review(&review, "uid");
    let review = review.trim_end().strip_suffix('}').unwrap();
    let text = format!(r#"{review},"response":{{"uid":"{uid}",{response}}}}}"#);
    let text = if call.target.starts_with("/yaml") {
        // JSON that does not begin with a brace is read as YAML.
        format!("# YAML\n{text}")
    } else {
        text.replace('<', "\\u003c")
    };
    ReviewReply::Raw(200, "application/json", Vec::new(), text)
}

fn deny(call: &ReviewCall) -> ReviewReply {
    reply_echoing_the_review(call, r#""allowed":false,"status":{"message":"never"}"#)
}

/// The mark that the webhook adds to an object.
const MARK: &str = r#""labels":{"seen":"true"}"#;

/// Replaces the deep field by one of the same depth, and marks the object.
fn replace(call: &ReviewCall) -> ReviewReply {
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "true"}}]).to_string();
    let patch = patch.replace(
        "[{\"op",
        &format!(r#"[{{"op":"replace","path":"/spec","value":{{"lists":{}}}}},{{"op"#, nested(DEEP)),
    );
    let patch = BASE64_STANDARD.encode(patch);
    reply_echoing_the_review(call, &format!(r#""allowed":true,"patchType":"JSONPatch","patch":"{patch}""#))
}

/// The depth of nested lists in the deepest object that is accepted.
const DEEP: usize = 126;

fn nested(depth: usize) -> String {
    format!("{}\"x\"{}", "[".repeat(depth), "]".repeat(depth))
}

/// An object without deep nesting.
fn flat() -> Value {
    json!({"apiVersion": "deep.example.com/v1", "kind": "Thing", "metadata": {"name": "flat"}, "spec": {}})
}

/// Writes an object with the deepest nested lists that can be stored.
async fn write_deep(client: &Client, name: &str) -> conformance::Result<HttpResponse> {
    let object = format!(
        r#"{{"apiVersion":"deep.example.com/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{"lists":{}}}}}"#,
        nested(DEEP)
    );
    client.send(Method::POST, THINGS, &[("content-type", "application/json")], object.into()).await
}

fn configuration(name: &str, rule: &Value, url: &str, webhook: &WebhookServer) -> Value {
    json!({"metadata": {"name": name}, "webhooks": [{
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore", "timeoutSeconds": 30, "rules": [rule],
        "clientConfig": {"url": webhook.url(url), "caBundle": webhook.ca_bundle}}]})
}

fn rule(group: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]})
}

async fn server_with_things() -> (Server, Client) {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let crd = json!({"metadata": {"name": "things.deep.example.com"}, "spec": {
        "group": "deep.example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    accepts(client.post(CRDS, &crd).await).unwrap();
    let is_served = async || accepts(client.get(THINGS).await).map(drop);
    eventually(PATIENCE, is_served).await.unwrap();
    (server, client)
}

#[tokio::test]
async fn the_denial_of_a_webhook_that_echoes_the_review_is_read_for_every_object() {
    let (_server, client) = server_with_things().await;
    accepts(write_deep(&client, "before").await).expect("it is not too deep to be stored");
    let webhook = WebhookServer::start(ServingCertificate::Signed, deny).await.unwrap();
    for (name, group, resource, url) in
        [("maps", "", "configmaps", "/json"), ("things", "deep.example.com", "things", "/json")]
    {
        let object = configuration(name, &rule(group, resource), url, &webhook);
        accepts(client.post(WEBHOOKS, &object).await).unwrap();
    }
    let map = |text: &str| json!({"metadata": {"name": "map"}, "data": {"text": text}});
    let is_in_force = async || match client.post(&format!("{MAPS}?dryRun=All"), &map("small")).await?.code {
        400 | 403 => Ok(()),
        code => Err(Problem::new(format!("{code}"))),
    };
    eventually(PATIENCE, is_in_force).await.unwrap();
    rejects(client.post(MAPS, &map(&"<".repeat(560_000))).await, 400, "").unwrap();
    rejects(write_deep(&client, "json").await, 400, "").unwrap();
    let object = configuration("as-yaml", &rule("deep.example.com", "things"), "/yaml", &webhook);
    accepts(client.delete(&format!("{WEBHOOKS}/things")).await).unwrap();
    accepts(client.post(WEBHOOKS, &object).await).unwrap();
    webhook.take_calls();
    let is_asked_there = async || {
        rejects(client.post(&format!("{THINGS}?dryRun=All"), &flat()).await, 400, "")?;
        let is_new = webhook.take_calls().iter().any(|call| call.target.starts_with("/yaml"));
        if is_new { Ok(()) } else { Err(Problem::new("asked at the old address")) }
    };
    eventually(PATIENCE, is_asked_there).await.unwrap();
    rejects(write_deep(&client, "yaml").await, 400, "").unwrap();
    for path in [format!("{THINGS}/json"), format!("{THINGS}/yaml"), format!("{MAPS}/map")] {
        rejects(client.get(&path).await, 404, "NotFound").unwrap();
    }
}

#[tokio::test]
async fn the_patch_of_a_webhook_is_applied_to_the_deepest_object() {
    let (_server, client) = server_with_things().await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, replace).await.unwrap();
    let object = configuration("things", &rule("deep.example.com", "things"), "/patch", &webhook);
    accepts(client.post(MUTATING, &object).await).unwrap();
    let is_in_force = async || {
        let made = client.post(&format!("{THINGS}?dryRun=All"), &flat()).await?.text();
        if made.contains(MARK) { Ok(()) } else { Err(Problem::new(made)) }
    };
    eventually(PATIENCE, is_in_force).await.unwrap();
    let made = write_deep(&client, "patched").await.unwrap();
    assert!(made.code == 201 && made.text().contains(MARK), "{}", made.text());
}

#[tokio::test]
async fn a_deep_object_is_listed_in_every_encoding() {
    let (_server, client) = server_with_things().await;
    accepts(write_deep(&client, "deep").await).unwrap();
    for accept in ["application/json", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
        let answer = client.send(Method::GET, THINGS, &[("accept", accept)], Bytes::new()).await.unwrap();
        assert_eq!(answer.code, 200, "{accept}: {}", answer.text());
    }
}
