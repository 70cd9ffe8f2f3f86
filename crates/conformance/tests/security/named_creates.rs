//! The name in the path of a create, for which the caller is authorized, cannot differ from that of the created custom resource.

use std::time::Duration;

use conformance::{Server, accepts, eventually, rejects};
use http::Method;
use serde_json::json;

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_create_at_a_path_with_a_name_creates_only_the_object_of_that_name() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let crd = json!({"metadata": {"name": "foos.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo", "listKind": "FooList", "singular": "foo"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    accepts(client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(FOOS).await)).await.unwrap();
    for metadata in [json!({"name": "other"}), json!({"generateName": "allowed"}), json!({})] {
        let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata});
        rejects(client.post(&format!("{FOOS}/allowed"), &foo).await, 400, "BadRequest").unwrap();
    }
    let all = accepts(client.get(FOOS).await).unwrap();
    assert_eq!(all["items"], json!([]), "{all}");
    for name in ["other", "allowed"] {
        let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}});
        accepts(client.post(&format!("{FOOS}/{name}"), &foo).await).unwrap();
        accepts(client.delete(&format!("{FOOS}/{name}")).await).unwrap();
        // Apply creates exactly the object of its path.
        let apply = [("content-type", "application/apply-patch+yaml")];
        let path = format!("{FOOS}/{name}?fieldManager=m");
        accepts(client.send(Method::PATCH, &path, &apply, foo.to_string().into()).await).unwrap();
        accepts(client.delete(&format!("{FOOS}/{name}")).await).unwrap();
        accepts(client.post(FOOS, &foo).await).unwrap();
    }
}
