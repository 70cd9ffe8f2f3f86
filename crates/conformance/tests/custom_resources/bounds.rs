//! Limits on CRDs and custom resources: every stored object can be read again.

use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use super::{CRDS, PATIENCE, crd, define};

const OPEN: &str = "/apis/deep.example.com/v1/namespaces/default/opens";

fn crd_preserving_unknown_fields() -> Value {
    crd(
        "deep.example.com",
        "opens",
        "Open",
        &json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]),
    )
}

/// `levels` nested maps below `spec`.
fn nested(name: &str, levels: usize) -> Value {
    let mut spec = json!("x");
    for _ in 0..levels {
        spec = json!({"a": spec});
    }
    json!({"apiVersion": "deep.example.com/v1", "kind": "Open", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn the_deepest_accepted_object_can_be_read_changed_and_deleted() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    define(&client, &crd_preserving_unknown_fields()).await;
    for levels in [118, 120, 123, 124, 125, 126] {
        let path = format!("{OPEN}/deep-{levels}");
        let made = accepts(client.post(OPEN, &nested(&format!("deep-{levels}"), levels)).await).unwrap();
        let mut read = accepts(client.get(&path).await).unwrap();
        assert_eq!(read, made);
        read["metadata"]["labels"] = json!({"changed": "yes"});
        accepts(client.json(Method::PUT, &path, &read).await).unwrap();
        let headers = [("content-type", "application/merge-patch+json")];
        let patch = json!({"metadata": {"labels": {"patched": "yes"}}}).to_string();
        accepts(client.send(Method::PATCH, &path, &headers, patch.into()).await).unwrap();
        let labels = accepts(client.get(&path).await).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels, json!({"changed": "yes", "patched": "yes"}));
    }
    // These are nested deeper than this suite's reader supports, the first one only with its managedFields.
    for levels in [122, 127] {
        accepts(client.post(OPEN, &nested(&format!("deep-{levels}"), levels)).await).unwrap();
        accepts(client.get(&format!("{OPEN}/deep-{levels}")).await).unwrap();
        accepts(client.delete(&format!("{OPEN}/deep-{levels}")).await).unwrap();
    }
    let listed = client.get(OPEN).await.unwrap().text();
    assert_eq!(listed.matches("\"name\":\"deep-").count(), 6, "{listed}");
    accepts(client.delete(OPEN).await).unwrap();
    rejects(client.post(OPEN, &nested("deeper", 128)).await, 400, "BadRequest").unwrap();
    // An object that is too deep only with fields that the server adds is rejected where they are required.
    let config = nested("applied", 126).to_string();
    let path = format!("{OPEN}/applied?fieldManager=me");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let status =
        rejects(client.send(Method::PATCH, &path, &headers, config.into()).await, 400, "BadRequest").unwrap();
    assert_eq!(status["message"], "the object cannot be stored: exceeded max depth");
    let config = nested("applied", 100).to_string();
    accepts(client.send(Method::PATCH, &path, &headers, config.into()).await).unwrap();
}

#[tokio::test]
async fn the_deepest_accepted_crd_is_served_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let mut default = json!("x");
    // metadata.managedFields is nested deeper than the object.
    for _ in 0..116 {
        default = json!([default]);
    }
    let mut body = crd_preserving_unknown_fields();
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
        json!({"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "example": default}});
    let answer = client.post(CRDS, &body).await.unwrap();
    assert!(answer.code == 201 || answer.code == 400, "{}", answer.text());
    let listed = accepts(client.get(CRDS).await).unwrap();
    server.terminate().unwrap();
    server.wait(PATIENCE).await.unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let again = accepts(server.client().unwrap().get(CRDS).await).unwrap();
    assert_eq!(again["items"].as_array().map(Vec::len), listed["items"].as_array().map(Vec::len));
}

#[tokio::test]
async fn a_printer_column_with_nested_filters_does_not_crash_the_server() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let mut body = crd_preserving_unknown_fields();
    body["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Fine", "type": "string", "jsonPath": ".spec.a"},
        {"name": "Deep", "type": "string", "jsonPath": format!(".a{}", "[?(@".repeat(300_000))},
    ]);
    define(&client, &body).await;
    accepts(client.post(OPEN, &nested("one", 1)).await).unwrap();
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = accepts(client.send(Method::GET, OPEN, &headers, Vec::new().into()).await).unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["one", "x"]));
}
