//! A real kube-apiserver and this server on one etcd: each sees the other's writes and watches.

use conformance::{Client, EtcdProcess, Events, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use super::recorded_values::{normalize_numbers, seed, write_all};
use super::{PATIENCE, ResourcePaths, without_controllers};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SHIPS: &str = "/apis/harbor.example.com/v1/namespaces/default/ships";

const WITH_CONVERSION_WEBHOOK: &str =
    "/registry/apiextensions.k8s.io/customresourcedefinitions/locks.harbor.example.com";

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
        Pair::start_on(EtcdProcess::start().await.unwrap()?).await
    }

    async fn start_on(etcd: EtcdProcess) -> Option<Pair> {
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

/// The answer of a server to GET: the object, with numbers of raw JSON in one form, or the code of a refusal.
async fn read(client: &Client, path: &str) -> conformance::Result<(u16, Value)> {
    let answer = client.get(path).await?;
    if answer.code != 200 {
        return Ok((answer.code, Value::Null));
    }
    let mut object = accepts(Ok(answer))?;
    normalize_numbers(&mut object);
    Ok((200, object))
}

/// The servers renew, repair and delete some objects all the time, so both are read until they agree. Returns the object.
async fn agree(pair: &Pair, path: &str) -> Option<Value> {
    let (_, object) = eventually(PATIENCE, async || {
        let (ours, theirs) = (read(&pair.ours, path).await?, read(&pair.theirs, path).await?);
        if ours == theirs && matches!(ours.0, 200 | 404) {
            return Ok(ours);
        }
        Err(conformance::Problem::new(format!("{path}: {ours:?}\n{theirs:?}")))
    })
    .await
    .unwrap();
    Some(object).filter(|object| !object.is_null())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_objects_are_equal_through_both_servers() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let mut rows = seed(&etcd).await;
    // A CRD whose conversion webhook does not exist, which kube-apiserver would call.
    rows.retain(|row| row["key"] != WITH_CONVERSION_WEBHOOK);
    etcd.delete_prefix(WITH_CONVERSION_WEBHOOK).await.unwrap();
    let Some(pair) = Pair::start_on(etcd).await else { return };
    // The servers delete an IPAddress that no Service has.
    let may_go = |object: &Value| object["kind"] == "IPAddress";
    let mut compared = std::collections::BTreeSet::new();
    let mut paths = ResourcePaths::new(&pair.theirs);
    for collection in collections(&pair.theirs).await {
        let list = accepts(pair.theirs.get(&collection).await).unwrap();
        let (version, kind) = (&list["apiVersion"], list["kind"].as_str().unwrap().trim_end_matches("List"));
        for item in list["items"].as_array().unwrap() {
            let mut object = item.clone();
            object["apiVersion"] = version.clone();
            object["kind"] = json!(kind);
            let path = paths.of(&object).await;
            agree(&pair, &path).await;
            compared.insert(path);
        }
    }
    assert!(
        compared.len() > 150 + rows.len(),
        "only {} objects: the bootstrap objects alone are 150",
        compared.len()
    );
    for row in &rows {
        // In the version of the recording, which need not be the preferred one.
        let path = paths.of(&row["answer"]).await;
        let object = agree(&pair, &path).await;
        assert!(object.is_some() || may_go(&row["answer"]), "{path} is gone");
    }
    // kube-apiserver reads an object of every kind that this server has written.
    let rows: Vec<Value> = rows.into_iter().filter(|row| !may_go(&row["answer"])).collect();
    for path in write_all(&pair.ours, &rows).await {
        let object = agree(&pair, &path).await.unwrap();
        let label = object.pointer("/metadata/labels/harbor.example.com~1tide");
        assert_eq!(label, Some(&json!("high")), "{path}");
    }
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
        let answer = client.get(&root).await;
        // The server of the recorded APIService does not exist.
        if answer.as_ref().is_ok_and(|answer| answer.code == 503) {
            continue;
        }
        let resources = accepts(answer).unwrap();
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
