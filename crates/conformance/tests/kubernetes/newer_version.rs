//! During an upgrade, servers of this version and of a newer one use the same etcd. A newer version may store fields and kinds that this
//! one does not know.

use conformance::{EtcdProcess, Server, accepts, rejects};
use http::Method;
use serde_json::json;

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
