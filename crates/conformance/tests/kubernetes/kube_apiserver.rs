//! A real kube-apiserver and this server on one etcd: each sees the other's writes and watches.

use conformance::{Client, EtcdProcess, Events, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use super::{PATIENCE, ResourcePaths, without_controllers};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SHIPS: &str = "/apis/harbor.example.com/v1/namespaces/default/ships";

/// Both servers on one etcd.
struct Pair {
    _etcd: EtcdProcess,
    _servers: [Server; 2],
    ours: Client,
    theirs: Client,
}

impl Pair {
    /// `None` if tests with etcd or with kube-apiserver are left out.
    async fn start() -> Option<Pair> {
        let etcd = EtcdProcess::start().await.unwrap()?;
        let theirs = Server::kube_apiserver(&etcd, &["--endpoint-reconciler-type=none"]).await.unwrap()?;
        let flags = without_controllers(&etcd);
        let ours = Server::serve(&flags.each_ref().map(String::as_str)).await.unwrap();
        let clients = (ours.client().unwrap(), theirs.client().unwrap());
        Some(Pair { _etcd: etcd, _servers: [ours, theirs], ours: clients.0, theirs: clients.1 })
    }
}

/// Opens a watch at the newest revision.
async fn watch(client: &Client, collection: &str) -> Events {
    let list = accepts(client.get(collection).await).unwrap();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    client.events(&format!("{collection}?watch=1&resourceVersion={revision}"), &[]).await.unwrap()
}

/// Reads events until the next one of this object.
async fn next_of(events: &mut Events, name: &str) -> Value {
    loop {
        let event = events.within(PATIENCE).await.unwrap().unwrap();
        if event["object"]["metadata"]["name"] == name {
            return event;
        }
    }
}

/// Writes through one server; both watches report the same events.
async fn check_watches(writer: &Client, pair: &Pair, collection: &str, mut object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{collection}/{name}");
    let mut watches = [watch(&pair.ours, collection).await, watch(&pair.theirs, collection).await];
    object = accepts(writer.post(collection, &object).await).unwrap();
    object["metadata"]["labels"] = json!({"tide": "high"});
    accepts(writer.json(Method::PUT, &path, &object).await).unwrap();
    accepts(writer.delete(&path).await).unwrap();
    for expected in ["ADDED", "MODIFIED", "DELETED"] {
        let [ours, theirs] = &mut watches;
        let events = [next_of(ours, &name).await, next_of(theirs, &name).await];
        assert_eq!(events[0]["type"], expected, "{}", events[0]);
        assert_eq!(events[0], events[1], "{collection}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_watches_cross_between_both_servers() {
    let Some(pair) = Pair::start().await else { return };
    accepts(
        pair.theirs
            .post(
                CRDS,
                &json!({
                    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": {"name": "ships.harbor.example.com"},
                    "spec": {
                        "group": "harbor.example.com", "scope": "Namespaced", "names": {"plural": "ships", "kind": "Ship"},
                        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                                "crew": {"type": "integer", "default": 3}}}}}}}],
                    },
                }),
            )
            .await,
    )
    .unwrap();
    for client in [&pair.ours, &pair.theirs] {
        eventually(PATIENCE, async || accepts(client.get(SHIPS).await)).await.unwrap();
    }
    for (number, writer) in [&pair.ours, &pair.theirs].into_iter().enumerate() {
        let name = format!("boat-{number}");
        let cases = [
            (
                format!("{NAMESPACE}/configmaps"),
                json!({"metadata": {"name": name}, "data": {"color": "blue"}}),
            ),
            (
                format!("{NAMESPACE}/secrets"),
                json!({"metadata": {"name": name}, "data": {"key": "aGFyYm9y"}}),
            ),
            (
                "/apis/apps/v1/namespaces/default/deployments".to_owned(),
                json!({"metadata": {"name": name}, "spec": {
                    "selector": {"matchLabels": {"app": "a"}},
                    "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
                }}),
            ),
            (
                SHIPS.to_owned(),
                json!({
                    "apiVersion": "harbor.example.com/v1", "kind": "Ship", "metadata": {"name": name}, "spec": {},
                }),
            ),
        ];
        for (collection, object) in cases {
            check_watches(writer, &pair, &collection, object).await;
        }
        // Cluster IPs and node ports come from the same records.
        let service =
            json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        accepts(writer.post(&format!("{NAMESPACE}/services"), &service).await).unwrap();
    }
    let services = accepts(pair.ours.get(&format!("{NAMESPACE}/services")).await).unwrap();
    let mut ports: Vec<u64> = services["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|service| service.pointer("/spec/ports/0/nodePort").and_then(Value::as_u64))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 2, "{services}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_objects_are_equal_through_both_servers() {
    let Some(pair) = Pair::start().await else { return };
    let mut compared = 0;
    let mut paths = ResourcePaths::new(&pair.theirs);
    for collection in collections(&pair.theirs).await {
        let list = accepts(pair.theirs.get(&collection).await).unwrap();
        let (version, kind) = (&list["apiVersion"], list["kind"].as_str().unwrap().trim_end_matches("List"));
        for item in list["items"].as_array().unwrap() {
            let mut object = item.clone();
            object["apiVersion"] = version.clone();
            object["kind"] = json!(kind);
            let path = paths.of(&object).await;
            // The servers renew and repair some objects all the time, so both are read until they agree.
            eventually(PATIENCE, async || {
                let ours = accepts(pair.ours.get(&path).await)?;
                let theirs = accepts(pair.theirs.get(&path).await)?;
                if ours == theirs {
                    return Ok(());
                }
                Err(conformance::Problem::new(format!("{path}: {ours}\n{theirs}")))
            })
            .await
            .unwrap();
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared} objects: the bootstrap objects alone are more");
}

/// The collections of every stored resource that can be listed, in the preferred version of its group.
async fn collections(client: &Client) -> Vec<String> {
    let groups = accepts(client.get("/apis").await).unwrap();
    let mut roots = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        roots.push(format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap()));
    }
    let mut found = Vec::new();
    for root in roots {
        let resources = accepts(client.get(&root).await).unwrap();
        for resource in resources["resources"].as_array().unwrap() {
            // ComponentStatuses are not stored.
            let is_stored = resource["name"] != "componentstatuses";
            if is_stored && resource["verbs"].as_array().unwrap().contains(&json!("list")) {
                found.push(format!("{root}/{}", resource["name"].as_str().unwrap()));
            }
        }
    }
    found
}
