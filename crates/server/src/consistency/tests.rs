use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use storage::shared_memory::SharedMemory;
use storage::{Change, Expect, Store, StoreOptions, Write, WritePriority};
use value::json;

use super::check_all;
use crate::client::LoopbackClient;
use crate::config::StorageBackend;
use crate::{Ephemeral, state::State};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn checks(state: &State, resource: &str, status: &str) -> u64 {
    let page = String::from_utf8(state.metrics.page((0, 0), None, &[])).unwrap();
    let line = format!(
        r#"apiserver_storage_consistency_checks_total{{group="",resource="{resource}",status="{status}"}} "#
    );
    page.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

/// Deletes a key as another server would. False if it does not exist.
async fn delete(store: &Store, key: &str) -> bool {
    let Some(entry) = store.get(key) else { return false };
    let write = Write {
        key: Arc::clone(&entry.key),
        expect: Expect::Any,
        change: Change::Delete,
        priority: WritePriority::System,
        ttl: None,
    };
    store.commit(write).await.unwrap();
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_change_is_reported_counted_and_repaired() {
    let service = SharedMemory::new();
    let writer = Store::open(service.backend(), StoreOptions::default()).await.unwrap();
    let backend = service.backend();
    let stream = backend.stream();
    let server =
        Ephemeral::start_with(|config| config.storage.data = StorageBackend::Backend(Arc::new(backend)))
            .await
            .unwrap();
    let state = Arc::clone(server.running.state());
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let map = json::parse(br#"{"metadata":{"name":"a"},"data":{"v":"1"}}"#).unwrap();
    let begin = Instant::now();
    while client.create(MAPS, &map).await.is_err_and(|status| status.code() != 409) {
        assert!(begin.elapsed() < PATIENCE, "the namespace does not exist");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(check_all(&state).await);
    assert_eq!((checks(&state, "configmaps", "success"), checks(&state, "configmaps", "failure")), (1, 0));

    // Another server deletes the object, and this one does not learn of it.
    let key = "/registry/configmaps/default/a";
    writer.fresh().await.unwrap();
    let begin = Instant::now();
    while state.storage.store.get(key).is_some() {
        // A write of this server may come first and be lost instead: then the object is still known.
        stream.lose_next_change();
        let is_deleted = delete(&writer, key).await;
        state.storage.store.fresh().await.unwrap();
        if is_deleted && state.storage.store.get(key).is_some() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the change is not lost");
        let _ = client.create(MAPS, &map).await;
    }
    assert!(state.storage.store.get(key).is_some(), "the deletion was lost");
    let begin = Instant::now();
    while check_all(&state).await {
        assert!(begin.elapsed() < PATIENCE, "the difference is not found");
    }
    let begin = Instant::now();
    while state.storage.store.get(key).is_some() {
        assert!(begin.elapsed() < PATIENCE, "everything is not loaded again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(check_all(&state).await);
    assert_eq!(client.get(&format!("{MAPS}/a")).await.unwrap_err().code(), 404);

    service.set_unreachable(true);
    assert!(check_all(&state).await, "an error is not a difference");
    assert_eq!(checks(&state, "configmaps", "error"), 1);
}
