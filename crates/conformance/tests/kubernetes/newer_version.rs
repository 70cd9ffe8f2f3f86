//! During an upgrade, servers of this version and of a newer one use the same etcd. A newer version may store fields and kinds that this
//! one does not know.

use conformance::{EtcdProcess, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use super::without_controllers;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The key of a kind that this version does not have.
const UNKNOWN_KIND: &str = "/registry/anchors/default/heavy";

/// A length-delimited protobuf field; all fields here are shorter than 128 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    bytes.extend(content);
    bytes
}

/// A stored object: Kubernetes' envelope around a message.
fn stored(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, message), field(3, b""), field(4, b"")].concat()
}

/// A ConfigMap with `data` and, in field 15, something that no version has yet.
fn config_map(name: &str) -> Vec<u8> {
    let metadata = [field(1, name.as_bytes()), field(3, b"default"), field(5, b"uid-1")].concat();
    let data = [field(1, b"color"), field(2, b"blue")].concat();
    stored("v1", "ConfigMap", &[field(1, &metadata), field(2, &data), field(15, b"from the future")].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_newer_version_are_served_without_unknown_fields() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    etcd.put("/registry/configmaps/default/newer", config_map("newer")).await.unwrap();
    etcd.put(UNKNOWN_KIND, stored("ports.k8s.io/v1", "Anchor", b"")).await.unwrap();
    let flags = without_controllers(&etcd);
    let server = Server::serve(&flags.each_ref().map(String::as_str)).await.unwrap();
    let client = server.client().unwrap();
    let mut newer = accepts(client.get(&format!("{CONFIG_MAPS}/newer")).await).unwrap();
    assert_eq!(newer["data"], json!({"color": "blue"}));
    // One that the newer server writes while this one runs.
    etcd.put("/registry/configmaps/default/later", config_map("later")).await.unwrap();
    let later = accepts(client.get(&format!("{CONFIG_MAPS}/later")).await).unwrap();
    assert_eq!(later["data"], json!({"color": "blue"}));

    // A write of the older version drops what it does not know, as in Kubernetes, and keeps the rest.
    newer["data"]["color"] = json!("green");
    accepts(client.json(Method::PUT, &format!("{CONFIG_MAPS}/newer"), &newer).await).unwrap();
    let values = etcd.list("/registry/configmaps/default/newer").await.unwrap();
    let value = String::from_utf8_lossy(&values[0].1).into_owned();
    assert!(value.contains("green") && value.contains("uid-1") && !value.contains("future"), "{value}");
    let untouched = etcd.list("/registry/configmaps/default/later").await.unwrap();
    assert_eq!(untouched[0].1, config_map("later"), "reading an object does not write it");
}

/// A CRD as every version stores it, with a field that no version has yet.
fn newer_crd() -> Value {
    let names = json!({"plural": "buoys", "singular": "buoy", "kind": "Buoy", "listKind": "BuoyList"});
    let is_true = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": null});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "buoys.ports.example.com", "uid": "uid-2", "generation": 1},
        "spec": {
            "group": "ports.example.com", "version": "v1", "names": names, "scope": "Namespaced",
            "validation": {"openAPIV3Schema": schema}, "versions": [{"name": "v1", "served": true, "storage": true}],
            "conversion": {"strategy": "None"}, "preserveUnknownFields": false, "anchoring": "from the future",
        },
        "status": {
            "conditions": [is_true("NamesAccepted"), is_true("Established")], "acceptedNames": names,
            "storedVersions": ["v1"],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn crds_and_custom_resources_of_a_newer_version_are_served_without_unknown_fields() {
    const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/buoys.ports.example.com";
    const CRD_KEY: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/buoys.ports.example.com";
    const BUOY: &str = "/apis/ports.example.com/v1/namespaces/default/buoys/red";
    const BUOY_KEY: &str = "/registry/ports.example.com/buoys/default/red";
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    etcd.put(CRD_KEY, newer_crd().to_string()).await.unwrap();
    let buoy = json!({
        "apiVersion": "ports.example.com/v1", "kind": "Buoy",
        "metadata": {"name": "red", "namespace": "default", "uid": "uid-3"},
        "spec": {"color": "red", "anchoring": "from the future"},
    });
    etcd.put(BUOY_KEY, buoy.to_string()).await.unwrap();
    let flags = without_controllers(&etcd);
    let server = Server::serve(&flags.each_ref().map(String::as_str)).await.unwrap();
    let client = server.client().unwrap();

    let mut crd = accepts(client.get(CRD).await).unwrap();
    assert_eq!((&crd["spec"]["scope"], &crd["spec"]["anchoring"]), (&json!("Namespaced"), &Value::Null));
    let mut red = accepts(client.get(BUOY).await).unwrap();
    assert_eq!(red["spec"], json!({"color": "red"}));
    assert!(
        String::from_utf8_lossy(&etcd.list(CRD_KEY).await.unwrap()[0].1).contains("future"),
        "reading does not write"
    );

    // Writes drop what this version does not know, and keep the rest.
    crd["metadata"]["labels"] = json!({"seen": "yes"});
    accepts(client.json(Method::PUT, CRD, &crd).await).unwrap();
    red["spec"]["color"] = json!("green");
    accepts(client.json(Method::PUT, BUOY, &red).await).unwrap();
    for (key, present) in [(CRD_KEY, ["seen", "uid-2", "v1beta1"]), (BUOY_KEY, ["green", "uid-3", "Buoy"])] {
        let stored = String::from_utf8_lossy(&etcd.list(key).await.unwrap()[0].1).into_owned();
        assert!(present.iter().all(|part| stored.contains(part)) && !stored.contains("future"), "{stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_a_newer_version_are_neither_served_nor_deleted() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let value = stored("ports.k8s.io/v1", "Anchor", b"");
    etcd.put(UNKNOWN_KIND, &value).await.unwrap();
    let flags = [format!("--etcd-servers={}", etcd.url)];
    let server = Server::serve(&flags.each_ref().map(String::as_str)).await.unwrap();
    let client = server.client().unwrap();
    rejects(client.get("/apis/ports.k8s.io/v1/anchors").await, 404, "").unwrap();
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": "bay"}})).await).unwrap();
    accepts(client.delete("/api/v1/namespaces/bay").await).unwrap();
    assert_eq!(etcd.list(UNKNOWN_KIND).await.unwrap(), [(UNKNOWN_KIND.to_owned(), value)]);
}
