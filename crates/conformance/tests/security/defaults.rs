//! Schema defaults are added to every item of a list: their size is limited while they are added.

use std::time::Duration;

use conformance::{Client, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const PATIENCE: Duration = Duration::from_secs(30);

/// A CRD with a list whose items have many defaults, or none.
fn crd(has_defaults: bool) -> Value {
    let field = |i: usize| {
        let mut schema = json!({"type": "string"});
        if has_defaults {
            schema["default"] = json!("x".repeat(100));
        }
        (format!("field{i}"), schema)
    };
    let fields: serde_json::Map<String, Value> = (0..40).map(field).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"items": {"type": "array", "items": {"type": "object", "properties": fields}}},
            }}}],
        },
    })
}

async fn define(client: &Client, has_defaults: bool) {
    accepts(client.post(CRDS, &crd(has_defaults)).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(THINGS).await)).await.unwrap();
}

fn thing(name: &str, items: usize) -> Value {
    let items: Value = (0..items).map(|_| json!({})).collect();
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "items": items})
}

pub(crate) fn peak_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The memory limit for requests with a body of half a megabyte.
const MUCH: u64 = 400 * 1024;

#[tokio::test]
async fn the_size_of_added_defaults_is_limited() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    define(&client, true).await;
    // 600 KB that become 900 MB with defaults.
    for query in ["", "?dryRun=All"] {
        let answer = client.post(&format!("{THINGS}{query}"), &thing("large", 200_000)).await;
        let status = rejects(answer, 413, "RequestEntityTooLarge").unwrap();
        assert!(status["message"].as_str().unwrap().contains("the defaults of its"), "{status}");
    }
    let made = accepts(client.post(THINGS, &thing("small", 100)).await).unwrap();
    assert_eq!(made["items"][99]["field39"], "x".repeat(100));
    let patch = json!({"items": thing("", 200_000)["items"]}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    let answer = client.send(Method::PATCH, &format!("{THINGS}/small"), &headers, patch.into()).await;
    rejects(answer, 413, "RequestEntityTooLarge").unwrap();
    assert!(peak_kib(&server) < MUCH, "{} KiB", peak_kib(&server));
}

#[tokio::test]
async fn a_stored_object_with_too_many_defaults_can_be_deleted() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    define(&client, false).await;
    for name in ["large", "small"] {
        accepts(client.post(THINGS, &thing(name, if name == "large" { 200_000 } else { 10 })).await).unwrap();
    }
    let path = format!("{CRDS}/things.example.com");
    let mut now = accepts(client.get(&path).await).unwrap();
    now["spec"] = crd(true)["spec"].clone();
    accepts(client.json(Method::PUT, &path, &now).await).unwrap();
    let is_defaulted = async || {
        let small = accepts(client.get(&format!("{THINGS}/small")).await)?;
        let shown = small["items"][9]["field39"].as_str();
        shown.map(str::len).ok_or_else(|| conformance::Problem::new("there are no defaults yet"))
    };
    assert_eq!(eventually(PATIENCE, is_defaulted).await.unwrap(), 100);
    for path in [format!("{THINGS}/large"), THINGS.to_owned()] {
        let answer = client.get(&path).await.unwrap();
        assert_eq!(answer.code, 200, "{path}");
        assert!(answer.body.len() < 8 << 20, "{path}: {} bytes", answer.body.len());
    }
    accepts(client.delete(&format!("{THINGS}/large")).await).unwrap();
    rejects(client.get(&format!("{THINGS}/large")).await, 404, "NotFound").unwrap();
    assert!(peak_kib(&server) < MUCH, "{} KiB", peak_kib(&server));
}
