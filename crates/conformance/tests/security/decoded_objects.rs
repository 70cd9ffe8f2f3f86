//! Decoded objects take more memory than their bytes. Those of requests that wait for a webhook, and those in the answers of conversion
//! webhooks, are charged to the client, so that they do not fill the memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conformance::webhook::{ReviewCall, ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, HttpResponse, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::callers::{SOON, alice_and_bob, metric};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const THINGS: &str = "/apis/dense.example.com/v1/namespaces/default/things";
const KIB: u64 = 1024;
const CREATES: usize = 40;
/// For all of them in a debug build on a busy machine, one after the other.
const PATIENCE: Duration = Duration::from_mins(4);

/// A custom resource of 3 MiB whose tree takes ten times as much: a list of numbers.
fn dense(name: &str) -> Bytes {
    let numbers = "0,  ".repeat(770_000);
    let object = format!(
        r#"{{"apiVersion":"dense.example.com/v1","kind":"Thing","metadata":{{"name":"{name}"}},"numbers":[{numbers}0]}}"#
    );
    object.into()
}

async fn create(client: &Client, body: Bytes) -> conformance::Result<HttpResponse> {
    client.send(Method::POST, THINGS, &[("content-type", "application/json")], body).await
}

/// Defines things in versions v1 (stored) and v2, and lets alice and bob write them.
async fn define_things(admin: &Client, conversion: &Value) -> (Client, Client) {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let crd = json!({"metadata": {"name": "things.dense.example.com"}, "spec": {
        "group": "dense.example.com", "scope": "Namespaced", "conversion": conversion,
        "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
        "versions": [version("v1"), version("v2")]}});
    accepts(admin.post(CRDS, &crd).await).unwrap();
    let clients = alice_and_bob(admin).await;
    let rules = json!([{"apiGroups": ["", "dense.example.com"], "resources": ["configmaps", "things"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "maps"}, "rules": rules});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/maps";
    accepts(admin.json(Method::PUT, roles, &role).await).unwrap();
    eventually(SOON, async || accepts(clients.0.get(THINGS).await)).await.unwrap();
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_that_wait_for_a_webhook_use_bounded_memory() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = define_things(&admin, &json!({"strategy": "None"})).await;
    let released = Arc::new(Semaphore::new(0));
    let permits = Arc::clone(&released);
    let webhook = WebhookServer::start(ServingCertificate::Signed, move |call: &ReviewCall| {
        let is_large = call.body.len() > 1_000_000;
        if is_large { ReviewReply::AllowWith(Arc::clone(&permits)) } else { ReviewReply::allow() }
    });
    let webhook = webhook.await.unwrap();
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail", "timeoutSeconds": 30,
        "rules": [{"apiGroups": ["dense.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}],
        "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle}}]});
    accepts(admin.post(WEBHOOKS, &configuration).await).unwrap();

    let mut creates = JoinSet::new();
    for number in 0..CREATES {
        let client = alice.on_new_connection();
        creates.spawn(async move { create(&client, dense(&format!("large{number}"))).await.unwrap().code });
    }
    let (mut refused, mut asked) = (0, 0);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while refused + asked < CREATES {
        let ended = tokio::time::timeout(Duration::from_millis(100), creates.join_next()).await;
        if let Ok(Some(code)) = ended {
            assert_eq!(code.unwrap(), 429);
            refused += 1;
        }
        // The calls are large.
        asked += webhook.take_calls().len();
        assert!(tokio::time::Instant::now() < deadline, "{refused} refused, {asked} asked");
    }
    let small = json!({"apiVersion": "dense.example.com/v1", "kind": "Thing", "metadata": {"name": "small"}});
    accepts(bob.post(THINGS, &small).await).unwrap();
    let peak = server.peak_resident_kib().unwrap();
    eprintln!("peak {} MiB; {asked} passed, {refused} refused", peak / KIB);
    assert!(asked >= 3, "some large objects pass, but only {asked} did");
    released.add_permits(CREATES);
    while let Some(code) = creates.join_next().await {
        assert_eq!(code.unwrap(), 201);
    }
    assert!(peak < MOST_KIB, "{} MiB", peak / KIB);
    let charged = async || metric(&admin, "portcullis_decoded_object_bytes", "").await;
    let is_released = async || match charged().await {
        Some(0.0) => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    };
    eventually(SOON, is_released).await.unwrap();
    accepts(create(&alice, dense("after")).await).unwrap();
}

/// Limit of the peak of resident memory: the share of one user, what is not charged, and what the allocator retains.
const MOST_KIB: u64 = 1024 * KIB;

/// Answers with the received objects in the other version, each with a list of this many numbers.
fn inflate(call: &ReviewCall, numbers: usize) -> ReviewReply {
    let request = &call.review["request"];
    let mut object = request["objects"][0].clone();
    object["apiVersion"] = request["desiredAPIVersion"].clone();
    let object = object.to_string();
    let object = object.strip_suffix('}').unwrap();
    let (uid, numbers) = (&request["uid"], "0,".repeat(numbers));
    let text = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{{"uid":{uid},"result":{{"status":"Success"}},"convertedObjects":[{object},"numbers":[{numbers}0]}}]}}}}"#
    );
    ReviewReply::Raw(200, "application/json", Vec::new(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_conversion_webhooks_that_decode_to_much_memory_are_refused() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |call: &ReviewCall| {
        let name = call.review["request"]["objects"][0]["metadata"]["name"].as_str().unwrap_or_default();
        inflate(call, if name == "dense" { 20_000_000 } else { 10_000 })
    });
    let webhook = webhook.await.unwrap();
    let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle}}});
    let (alice, _) = define_things(&admin, &conversion).await;
    for name in ["plain", "dense"] {
        let thing =
            json!({"apiVersion": "dense.example.com/v1", "kind": "Thing", "metadata": {"name": name}});
        accepts(alice.post(THINGS, &thing).await).unwrap();
    }
    let in_v2 = |path: &str| THINGS.replace("/v1/", "/v2/") + path;
    let plain = accepts(alice.get(&in_v2("/plain")).await).unwrap();
    assert_eq!(plain["numbers"].as_array().unwrap().len(), 10_001);
    for path in ["/dense", ""] {
        rejects(alice.get(&in_v2(path)).await, 429, "TooManyRequests").unwrap();
    }
    let peak = server.peak_resident_kib().unwrap();
    eprintln!("peak {} MiB", peak / KIB);
    assert!(peak < MOST_KIB, "{} MiB", peak / KIB);
}
