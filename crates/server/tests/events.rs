//! Events of both groups: selectors, updates that change nothing, and expiry in a store that servers share.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::meta;
use authn::InternalIdentity;
use server::client::LoopbackClient;
use server::{Ephemeral, StorageBackend};
use storage::shared_memory::SharedMemory;
use value::{Value, json};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const CORE: &str = "/api/v1/namespaces/default/events";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

const CORE_EVENT: &str = r#"{"metadata":{"name":"core"},"involvedObject":{"kind":"Pod","name":"p","namespace":"default","uid":"u-core",
    "apiVersion":"v1","resourceVersion":"7","fieldPath":"spec.a"},"reason":"Tested","source":{"component":"c"},"type":"Normal"}"#;
const NEW_EVENT: &str = r#"{"metadata":{"name":"new"},"regarding":{"kind":"Pod","name":"p","namespace":"default","uid":"u-new",
    "apiVersion":"v1","resourceVersion":"8","fieldPath":"spec.b"},"reason":"Tested",
    "action":"Test","reportingController":"example.com/c","reportingInstance":"i","eventTime":"2024-05-01T00:00:00.000000Z","type":"Normal"}"#;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

/// A client of a server that has its first objects.
async fn client(server: &Ephemeral) -> LoopbackClient {
    let client = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    let begin = Instant::now();
    while client.get("/api/v1/namespaces/default").await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "the server is not ready");
        tokio::task::yield_now().await;
    }
    client
}

/// The names of the events that a field selector selects.
async fn selected(client: &LoopbackClient, path: &str, selector: &str) -> Vec<String> {
    let list = client.get(&format!("{path}?fieldSelector={selector}")).await;
    let list = list.unwrap_or_else(|status| panic!("{selector}: {status}"));
    list.list_at(&["items"]).iter().map(|event| meta::name(event).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_of_both_groups_see_the_events_of_both() {
    let server = Ephemeral::start_with(|_| {}).await.unwrap();
    let client = client(&server).await;
    client.create(CORE, &parse(CORE_EVENT)).await.unwrap();
    let created = client.create(EVENTS, &parse(NEW_EVENT)).await.unwrap();
    for (path, selector, expected) in [
        (CORE, "involvedObject.kind=Pod", &["core", "new"][..]),
        (EVENTS, "regarding.kind=Pod", &["core", "new"]),
        (CORE, "reportingComponent=example.com/c", &["new"]),
        (EVENTS, "reportingController=example.com/c", &["new"]),
        (EVENTS, "reportingController!=example.com/c", &["core"]),
        (CORE, "source=c", &["core"]),
        (CORE, "source=example.com/c", &["new"]),
        (CORE, "source!=c", &["new"]),
        (CORE, "involvedObject.name=p", &["core", "new"]),
        (EVENTS, "regarding.name=p", &["core", "new"]),
        (CORE, "involvedObject.namespace=default", &["core", "new"]),
        (EVENTS, "regarding.namespace=default", &["core", "new"]),
        (CORE, "involvedObject.uid=u-new", &["new"]),
        (EVENTS, "regarding.uid=u-core", &["core"]),
        (CORE, "involvedObject.apiVersion=v1", &["core", "new"]),
        (EVENTS, "regarding.apiVersion=v1", &["core", "new"]),
        (CORE, "involvedObject.resourceVersion=8", &["new"]),
        (EVENTS, "regarding.resourceVersion=7", &["core"]),
        (CORE, "involvedObject.fieldPath=spec.b", &["new"]),
        (EVENTS, "regarding.fieldPath=spec.a", &["core"]),
        (CORE, "reason=Tested,type=Normal", &["core", "new"]),
        (EVENTS, "reason=Tested,type=Normal", &["core", "new"]),
        (EVENTS, "type=Warning", &[]),
        (EVENTS, "regarding.kind!=Pod", &[]),
        (EVENTS, "regarding.name=q", &[]),
        (EVENTS, "metadata.name=core", &["core"]),
    ] {
        assert_eq!(selected(&client, path, selector).await, expected, "{path} {selector}");
    }
    for (path, selector) in [
        (EVENTS, "involvedObject.kind=Pod"),
        (EVENTS, "reportingComponent=c"),
        (EVENTS, "source=c"),
        (CORE, "regarding.kind=Pod"),
        (CORE, "reportingController=c"),
    ] {
        let refused = client.get(&format!("{path}?fieldSelector={selector}")).await.unwrap_err();
        assert_eq!(refused.code(), 400, "{path} {selector}");
    }

    let path = format!("{EVENTS}/new");
    let unchanged = client.update(&path, &created).await.unwrap();
    assert_eq!(meta::resource_version(&unchanged), meta::resource_version(&created));
    let mut changed = created.clone();
    changed.set_at(&["metadata", "labels", "a"], "b");
    let changed = client.update(&path, &changed).await.unwrap();
    assert_ne!(meta::resource_version(&changed), meta::resource_version(&created));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_in_a_shared_store_expire_without_the_server_that_wrote_them() {
    const TTL: Duration = Duration::from_secs(5);
    let service = SharedMemory::new();
    let start = async |event_ttl: Duration| {
        let backend = service.backend();
        Ephemeral::start_with(move |config| {
            config.storage.data = StorageBackend::Backend(Arc::new(backend));
            config.controllers.event_ttl = event_ttl;
        })
        .await
        .unwrap()
    };
    let other = start(Duration::ZERO).await;
    let reader = client(&other).await;
    reader.create(CORE, &parse(&CORE_EVENT.replace("core", "forever"))).await.unwrap();
    let writing = start(TTL).await;
    let writer = client(&writing).await;
    let begin = Instant::now();
    writer.create(CORE, &parse(CORE_EVENT)).await.unwrap();
    writer.create(EVENTS, &parse(NEW_EVENT)).await.unwrap();
    writing.running.stop().await;

    let is_there = async |name: &str| reader.get(&format!("{CORE}/{name}")).await.is_ok();
    let both = is_there("core").await && is_there("new").await;
    assert!(both || begin.elapsed() >= TTL, "the events expired early");
    while is_there("core").await || is_there("new").await {
        assert!(begin.elapsed() < PATIENCE, "the events do not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begin.elapsed() >= TTL, "a server deleted the events instead of the store");
    assert!(is_there("forever").await, "without a time to live an event stays");
}
