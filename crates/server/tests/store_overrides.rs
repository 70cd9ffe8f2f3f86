//! Two servers on one store whose events, or Services, are in another cluster, as with `--etcd-servers-overrides`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::meta;
use authn::InternalIdentity;
use http::Method;
use requests::request_info::Query;
use server::client::LoopbackClient;
use server::{Ephemeral, StorageBackend};
use storage::shared_memory::{SharedMemory, StoreStream};
use value::{Value, json};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const NAMESPACES: &str = "/api/v1/namespaces";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

struct Servers {
    other: SharedMemory,
    one: LoopbackClient,
    two: LoopbackClient,
    /// The changes of the other cluster that the second server receives.
    stream: StoreStream,
    running: [Ephemeral; 2],
}

/// The key prefixes that an override of `/events` moves.
const MOVED_EVENTS: &[&str] = &["/registry/events/"];
/// The key prefixes that an override of `/services` moves.
const MOVED_SERVICES: &[&str] = &["/registry/ranges/", "/registry/services/specs/"];

async fn start_server(
    main: &SharedMemory,
    other: &SharedMemory,
    moved: &[&str],
) -> (Ephemeral, LoopbackClient, StoreStream) {
    let backend = other.backend();
    let stream = backend.stream();
    let moved = moved.iter().map(|prefix| (*prefix).to_owned()).collect();
    let overrides: Vec<(Vec<String>, Arc<dyn storage::Backend>)> = vec![(moved, Arc::new(backend))];
    let main = Arc::new(main.backend());
    let started =
        Ephemeral::start_with(|config| config.storage.data = StorageBackend::Backends(main, overrides))
            .await
            .unwrap();
    let client = LoopbackClient::new(Arc::clone(started.running.state()), InternalIdentity::ApiServer);
    (started, client, stream)
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Servers {
    async fn start() -> Servers {
        Servers::start_with(MOVED_EVENTS).await
    }

    async fn start_with(moved: &[&str]) -> Servers {
        let (main, other) = (SharedMemory::new(), SharedMemory::new());
        let (first, one, _) = start_server(&main, &other, moved).await;
        let (second, two, stream) = start_server(&main, &other, moved).await;
        eventually("the servers are ready", async || one.get(&format!("{NAMESPACES}/default")).await.is_ok())
            .await;
        Servers { other, one, two, stream, running: [first, second] }
    }

    async fn create_event(&self, name: &str) -> Value {
        let event = format!(
            r#"{{"metadata":{{"name":"{name}"}},"involvedObject":{{"kind":"Pod","namespace":"default","name":"p"}},"reason":"r"}}"#
        );
        self.one.create(EVENTS, &parse(&event)).await.unwrap()
    }
}

fn revision(object: &Value) -> u64 {
    meta::resource_version(object).parse().unwrap()
}

fn names(list: &Value) -> Vec<String> {
    list.list_at(&["items"]).iter().map(|item| meta::name(item).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_have_the_revisions_of_their_cluster_and_both_servers_see_them() {
    let servers = Servers::start().await;
    let map = servers.one.create(MAPS, &parse(r#"{"metadata":{"name":"m"}}"#)).await.unwrap();
    servers.stream.deliver_on_request();
    let first = servers.create_event("a").await;
    assert!(revision(&first) < revision(&map), "the clusters count their own revisions");
    // Without a resource version reads are current, in the cluster of the resource.
    assert_eq!(revision(&servers.two.get(&format!("{EVENTS}/a")).await.unwrap()), revision(&first));
    let second = servers.create_event("b").await;
    let list = servers.two.get(EVENTS).await.unwrap();
    assert!(names(&list).contains(&"b".to_owned()), "{list:?}");
    assert!(revision(&list) >= revision(&second) && revision(&list) < revision(&map));
    // Exact and minimal revisions are those of the cluster.
    let exact = format!("{EVENTS}?resourceVersionMatch=Exact&resourceVersion={}", revision(&first));
    assert!(!names(&servers.two.get(&exact).await.unwrap()).contains(&"b".to_owned()));
    let future = format!("{EVENTS}/a?resourceVersion={}", revision(&map) + 1000);
    assert_eq!(servers.two.get(&future).await.unwrap_err().code(), 504);
    // Updates, patches and deletions.
    let path = format!("{EVENTS}/a");
    let patched = servers.two.merge_patch(&path, &parse(r#"{"message":"x"}"#)).await.unwrap();
    assert_eq!(servers.one.get(&path).await.unwrap().str_at(&["message"]), Some("x"));
    assert_eq!(servers.one.update(&path, &first).await.unwrap_err().code(), 409);
    servers.one.update(&path, &patched).await.unwrap();
    servers.two.delete(&path, &parse("{}")).await.unwrap();
    assert_eq!(servers.one.get(&path).await.unwrap_err().code(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_list_continue_in_the_cluster_of_the_resource() {
    let servers = Servers::start().await;
    for number in 0..5 {
        servers.create_event(&format!("e{number}")).await;
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = servers.two.get(&format!("{EVENTS}?limit=2&continue={token}")).await.unwrap();
        seen.extend(names(&page).into_iter().filter(|name| name.starts_with('e')));
        if token.is_empty() {
            servers.create_event("e9").await;
        }
        match page.str_at(&["metadata", "continue"]) {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => break,
        }
    }
    assert_eq!(seen, ["e0", "e1", "e2", "e3", "e4"], "all pages have one revision");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_of_the_other_cluster_is_deleted() {
    let servers = Servers::start().await;
    servers.create_event("a").await;
    servers.two.request(Method::DELETE, EVENTS, "application/json", None).await.unwrap();
    assert_eq!(servers.one.get(&format!("{EVENTS}/a")).await.unwrap_err().code(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_cluster_has_health_checks_of_its_own() {
    let servers = Servers::start().await;
    let health = &servers.running[0].running.state().serving.health;
    let code = async |path: &str| {
        health.probe_store(path).await;
        health.page(path, &Query::default(), false).map(|(code, _)| code)
    };
    let is_failing = async |path: &str| code(path).await == Some(500);
    let own = ["/livez/etcd-override-0", "/readyz/etcd-override-0", "/readyz/etcd-override-readiness-0"];
    for path in own {
        assert!(!is_failing(path).await, "{path}");
    }
    assert_eq!((code("/livez").await, code("/readyz/etcd-override-1").await), (Some(200), None));
    assert_eq!(code("/livez/etcd-override-readiness-0").await, None, "only readyz has it");
    servers.other.set_unreachable(true);
    for path in own {
        eventually(path, async || is_failing(path).await).await;
    }
    assert!(!is_failing("/livez/etcd").await && !is_failing("/readyz/etcd-readiness").await);
    // Other resources work.
    servers.one.create(MAPS, &parse(r#"{"metadata":{"name":"m"}}"#)).await.unwrap();
    let refused = servers.one.get(EVENTS).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (500, "connection refused"));
    servers.other.set_unreachable(false);
    for path in own {
        eventually(path, async || !is_failing(path).await).await;
    }
    servers.create_event("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_several_clusters_is_refused() {
    let servers = Servers::start().await;
    let refused = servers.one.request(Method::POST, "/portcullis/snapshot", "application/json", None).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), 400);
    assert!(refused.message().contains("--etcd-servers-overrides"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_and_the_allocated_node_ports_move_together() {
    let servers = Servers::start_with(MOVED_SERVICES).await;
    let service = |name: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"type":"NodePort","ports":[{{"port":80,"nodePort":31000}}]}}}}"#
        ))
    };
    servers.stream.deliver_on_request();
    let created = servers.one.create(SERVICES, &service("a")).await.unwrap();
    let refused = servers.two.create(SERVICES, &service("b")).await.unwrap_err();
    assert!(refused.message().contains("provided port is already allocated"), "{refused}");
    let stores = servers.running.each_ref().map(|server| &server.running.state().storage.store);
    for store in stores {
        let moved = store.of("/registry/ranges/servicenodeports");
        moved.fresh().await.unwrap();
        assert!(moved.get("/registry/ranges/servicenodeports").is_some());
        assert_eq!(moved.get("/registry/services/specs/default/a").unwrap().revision, revision(&created));
        // The IPAddresses of the Services stay.
        assert_eq!(moved.count("/registry/ipaddresses/"), 0);
    }
    servers.two.delete(&format!("{SERVICES}/a"), &parse("{}")).await.unwrap();
    eventually("the port is free", async || servers.one.create(SERVICES, &service("b")).await.is_ok()).await;
}
