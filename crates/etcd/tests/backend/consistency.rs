//! The check of the working set against etcd, and the recovery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use conformance::EtcdProcess;
use etcd::{EtcdBackend, EtcdConfig, ValueCodec};
use storage::{ConsistencyCheck, Inconsistency, ReadError, Record, Store, WatchError, WatchFrom};

use crate::faulty_endpoint::{EndpointFault, FaultyEndpoint, WATCH};
use crate::record_backend::{backend_of, config, start_etcd};
use crate::{ALL, channel, client, key, open, through, update, value};

/// Loses the next event with a record: the store does not get it.
struct LosingCodec {
    codec: Arc<dyn ValueCodec>,
    loses: Arc<AtomicBool>,
}

impl ValueCodec for LosingCodec {
    fn encode(&self, key: &str, record: &Record) -> Result<Bytes, String> {
        self.codec.encode(key, record)
    }

    fn decode(&self, key: &str, revision: u64, value: &Bytes) -> Option<Record> {
        if self.loses.swap(false, Ordering::SeqCst) {
            return None;
        }
        self.codec.decode(key, revision, value)
    }
}

async fn losing(etcd: &EtcdProcess) -> (Store, Arc<AtomicBool>) {
    let loses = Arc::new(AtomicBool::new(false));
    let settings = config(channel(&[&etcd.url]));
    let codec = LosingCodec { codec: Arc::clone(&settings.codec), loses: Arc::clone(&loses) };
    let backend = EtcdBackend::new(EtcdConfig { codec: Arc::new(codec), ..settings });
    (open(backend).await, loses)
}

async fn check(store: &Store) -> ConsistencyCheck {
    store.check_consistency(ALL).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_event_is_found_and_a_reload_recovers_it() {
    let Some(etcd) = start_etcd().await else { return };
    let near = open(backend_of(&etcd)).await;
    let (far, loses) = losing(&etcd).await;
    let first = update(&near, "a", "1").await;
    update(&near, "b", "1").await;
    far.fresh().await.unwrap();
    assert_eq!(check(&far).await, ConsistencyCheck::Consistent);
    loses.store(true, Ordering::SeqCst);
    let lost = update(&near, "a", "2").await;
    let at = far.fresh().await.unwrap();
    assert_eq!(value(&far, "a").as_deref(), Some("1"), "the event is lost");
    let found = Inconsistency { key: key("a").into(), at, in_memory: Some(first), stored: Some(lost) };
    assert_eq!(check(&far).await, ConsistencyCheck::Inconsistent(found));
    assert_eq!(check(&near).await, ConsistencyCheck::Consistent);

    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    far.reload(ALL);
    let ended = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap();
    assert_eq!(ended.unwrap_err(), WatchError::Lagged);
    assert_eq!(value(&far, "a").as_deref(), Some("2"));
    assert_eq!(check(&far).await, ConsistencyCheck::Consistent);
    // Events after the reload arrive.
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    let later = update(&near, "c", "1").await;
    let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
    assert_eq!(event.revision, later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_behind_is_consistent_until_its_revision_is_compacted() {
    let Some(etcd) = start_etcd().await else { return };
    let near = open(backend_of(&etcd)).await;
    let first = update(&near, "a", "1").await;
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    endpoint.fail(WATCH, EndpointFault::Status(14, "no watch"));
    let far = open(through(channel(&[&endpoint.url]))).await;
    update(&near, "a", "2").await;
    update(&near, "b", "1").await;
    assert_eq!((far.revision(), check(&far).await), (first, ConsistencyCheck::Consistent));
    client(&etcd).compact(i64::try_from(near.revision()).unwrap()).await.unwrap();
    let compacted = far.check_consistency(ALL).await.unwrap();
    assert_eq!(compacted, Err(ReadError::Compacted { oldest: first + 1 }));
}
