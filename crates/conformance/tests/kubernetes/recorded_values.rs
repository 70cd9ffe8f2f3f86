//! Values that kube-apiserver 1.37 stored are served as it served them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::{Client, EtcdProcess, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use super::{PATIENCE, ResourcePaths, without_controllers};

/// Stored values with kube-apiserver's answers, which unit tests of the encodings use, too.
const RECORDED: &str = include_str!("../../../catalog/src/etcd_values/recorded.jsonl");

/// Keys with data of the servers themselves, which this server writes.
const OF_SERVERS: [&str; 4] = [
    "/registry/ipaddresses/10.0.0.1",
    "/registry/masterleases/192.0.2.1",
    "/registry/peerserverleases/apiserver-wlv32tlttr4jl3gtroqexyxapa",
    "/registry/ranges/servicenodeports",
];

/// Writes the values to etcd: objects of every stored kind that a kube-apiserver with default flags serves. Returns the recorded rows.
pub(super) async fn seed(etcd: &EtcdProcess) -> Vec<Value> {
    let rows: Vec<Value> = RECORDED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|row: &Value| !OF_SERVERS.contains(&row["key"].as_str().unwrap()))
        .collect();
    assert_eq!(rows.len(), 80);
    for row in &rows {
        let value = BASE64_STANDARD.decode(row["value"].as_str().unwrap()).unwrap();
        etcd.put(row["key"].as_str().unwrap(), value).await.unwrap();
    }
    rows
}

/// Changes a label of every recorded object through this server, which writes the whole object anew. Returns their paths.
pub(super) async fn write_all(ours: &Client, rows: &[Value]) -> Vec<String> {
    let mut paths = ResourcePaths::new(ours);
    let mut written = Vec::new();
    let patch = json!({"metadata": {"labels": {"harbor.example.com/tide": "high"}}}).to_string();
    let form = [("content-type", "application/merge-patch+json")];
    for row in rows {
        let path = paths.of(&row["answer"]).await;
        eventually(PATIENCE, async || {
            let patched = accepts(ours.send(Method::PATCH, &path, &form, patch.clone().into()).await)?;
            let label = patched.pointer("/metadata/labels/harbor.example.com~1tide");
            if label == Some(&json!("high")) {
                return Ok(());
            }
            Err(Problem::new(format!("{path}: {patched}")))
        })
        .await
        .unwrap();
        written.push(path);
    }
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_values_of_kube_apiserver_are_served_as_it_answered() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let rows = seed(&etcd).await;
    let flags = without_controllers(&etcd);
    let server = Server::serve(&flags.each_ref().map(String::as_str)).await.unwrap();
    let client = server.client().unwrap();
    let mut paths = ResourcePaths::new(&client);
    for row in &rows {
        let key = row["key"].as_str().unwrap();
        let expected = comparable(row["answer"].clone());
        let path = paths.of(&expected).await;
        let served = accepts(client.get(&path).await).unwrap_or_else(|problem| panic!("{key}: {problem}"));
        assert_eq!(comparable(served), expected, "{key}");
    }
    assert_eq!(write_all(&client, &rows).await.len(), rows.len());
}

/// The object without what servers write by themselves: the revision, and the state of APIServices whose server they call.
fn comparable(mut object: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    if object["kind"] == "APIService" {
        object.as_object_mut().unwrap().remove("status");
    }
    normalize_numbers(&mut object);
    object
}

/// Writes whole numbers as integers: raw JSON inside an object keeps the form that the client sent in kube-apiserver (`1e3`), and not here.
pub(super) fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        Value::Number(number) if number.is_f64() => {
            let text = number.as_f64().unwrap().to_string();
            if let Ok(whole) = text.parse::<i64>() {
                *value = whole.into();
            }
        }
        _ => {}
    }
}
