//! A Binding's `resourceVersion` and `uid` are preconditions on the pod, and its labels and annotations are validated.

use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn binding(pod: &Value, resource_version: &str) -> Value {
    json!({
        "metadata": {"name": pod["metadata"]["name"], "resourceVersion": resource_version},
        "target": {"kind": "Node", "name": "node"},
    })
}

#[tokio::test]
async fn a_binding_for_another_resource_version_of_the_pod_is_a_conflict() {
    let server = Server::serve(&["--disable-admission-plugins=ServiceAccount"]).await.unwrap();
    let client = server.client().unwrap();
    for name in ["by-subresource", "by-collection"] {
        let made = accepts(client.post(PODS, &pod(name)).await).unwrap();
        let version = made["metadata"]["resourceVersion"].as_str().unwrap();
        let at = match name {
            "by-subresource" => format!("{PODS}/{name}/binding"),
            _ => "/api/v1/namespaces/default/bindings".to_owned(),
        };
        for query in ["", "?dryRun=All"] {
            let stale = client.post(&format!("{at}{query}"), &binding(&made, "1")).await;
            let status = rejects(stale, 409, "Conflict").unwrap();
            let words = format!(
                "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: {version}"
            );
            assert!(status["message"].as_str().unwrap().ends_with(&words), "{status}");
        }
        let now = accepts(client.get(&format!("{PODS}/{name}")).await).unwrap();
        assert_eq!(now["spec"]["nodeName"], Value::Null, "nothing was bound");
        accepts(client.post(&at, &binding(&made, version)).await).unwrap();
        let now = accepts(client.get(&format!("{PODS}/{name}")).await).unwrap();
        assert_eq!(now["spec"]["nodeName"], "node");
    }
}

/// Annotations that once defined init containers; old kubelets still read them.
fn init_containers() -> Value {
    let keys = ["pod.alpha.kubernetes.io/", "pod.beta.kubernetes.io/"];
    let keys = keys
        .iter()
        .flat_map(|key| ["init-containers", "init-container-statuses"].map(|what| format!("{key}{what}")));
    let mut annotations: serde_json::Map<String, Value> = keys.map(|key| (key, json!("[]"))).collect();
    annotations.insert("kept".to_owned(), json!("yes"));
    Value::Object(annotations)
}

#[tokio::test]
async fn annotations_that_define_init_containers_are_removed_by_every_write() {
    let server = Server::serve(&["--disable-admission-plugins=ServiceAccount"]).await.unwrap();
    let client = server.client().unwrap();
    let path = format!("{PODS}/p");
    let expect = async |by: &str| {
        let now = accepts(client.get(&path).await).unwrap();
        assert_eq!(now["metadata"]["annotations"], json!({"kept": "yes"}), "by {by}");
    };
    let mut made = pod("p");
    made["metadata"]["annotations"] = init_containers();
    accepts(client.post(PODS, &made).await).unwrap();
    expect("creation").await;
    let mut bound = binding(&made, "");
    bound["metadata"]["annotations"] = init_containers();
    accepts(client.post(&format!("{path}/binding"), &bound).await).unwrap();
    expect("binding").await;
    let patch = json!({"metadata": {"annotations": init_containers()}}).to_string();
    for subresource in ["", "/status", "/ephemeralcontainers", "/resize"] {
        let headers = [("content-type", "application/merge-patch+json")];
        let at = format!("{path}{subresource}");
        accepts(client.send(Method::PATCH, &at, &headers, patch.clone().into()).await).unwrap();
        expect(&at).await;
    }
}

#[tokio::test]
async fn a_binding_with_invalid_labels_or_annotations_is_refused() {
    let server = Server::serve(&["--disable-admission-plugins=ServiceAccount"]).await.unwrap();
    let client = server.client().unwrap();
    let path = format!("{PODS}/p");
    let mut made = pod("p");
    made["metadata"]["labels"] = json!({"zone": "old", "app": "a"});
    accepts(client.post(PODS, &made).await).unwrap();
    let bound = |field: &str, entries: Value| {
        let mut bound = binding(&made, "");
        bound["metadata"][field] = entries;
        bound
    };
    for at in [format!("{path}/binding"), "/api/v1/namespaces/default/bindings".to_owned()] {
        for (field, entries) in [
            ("labels", json!({"not valid!!": "a"})),
            ("labels", json!({"a": "x y z /"})),
            ("annotations", json!({"bad key!!": "a"})),
            ("annotations", json!({"a": "a".repeat(256 * 1024)})),
        ] {
            let refused = rejects(client.post(&at, &bound(field, entries)).await, 422, "Invalid").unwrap();
            assert_eq!(refused["details"]["causes"][0]["field"], format!("metadata.{field}"), "{refused}");
        }
    }
    let now = accepts(client.get(&path).await).unwrap();
    assert_eq!(now["spec"]["nodeName"], Value::Null, "nothing was bound");
    accepts(client.post(&format!("{path}/binding"), &bound("labels", json!({"zone": "new"}))).await).unwrap();
    let now = accepts(client.get(&path).await).unwrap();
    assert_eq!(now["metadata"]["labels"], json!({"zone": "new", "app": "a"}));
    assert_eq!(now["spec"]["nodeName"], "node");
}
