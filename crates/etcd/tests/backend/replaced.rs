//! An etcd whose data is replaced while servers use it: restored from a backup, or another cluster at the same address.

use std::time::Duration;

use storage::{ListAt, ListRequest, ReadError, Store, WatchError, WatchFrom};
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::record_backend::{backend_of, start_etcd};
use crate::{ALL, channel, open, through, update, value};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until reads see the replaced data; until then they fail or do not answer, but never show a mixture.
async fn recovered(store: &Store, revision: u64) {
    let begin = Instant::now();
    while store.fresh().await != Ok(revision) {
        assert!(begin.elapsed() < PATIENCE, "the replaced data is not loaded: at {}", store.revision());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The store follows the replaced etcd from here on.
async fn follows(far: &Store, near: &Store) {
    let mut watch = far.watch(ALL, WatchFrom::Revision(far.revision())).unwrap();
    let revision = update(near, "later", "1").await;
    let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert_eq!((event.revision, &*event.entry.key), (revision, "/registry/things/later"));
    assert_eq!(far.fresh().await, Ok(revision));
    let written = update(far, "own", "1").await;
    assert_eq!(written, revision + 1);
    assert_eq!(far.health(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_loads_everything_again_after_etcd_is_restored_from_a_backup() {
    let Some(etcd) = start_etcd().await else { return };
    let near = open(backend_of(&etcd)).await;
    let backed_up = update(&near, "stays", "1").await;
    near.close().await;
    let (etcd, backup) = etcd.back_up().await.unwrap();
    let near = open(backend_of(&etcd)).await;
    let far = open(through(channel(&[&etcd.url]))).await;
    for number in 0..5 {
        update(&near, "lost", &number.to_string()).await;
    }
    let last = update(&near, "stays", "2").await;
    far.fresh().await.unwrap();
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    near.close().await;
    let etcd = etcd.replace_data(backup).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(ended.unwrap_err(), WatchError::Lagged);
    recovered(&far, backed_up).await;
    assert_eq!((value(&far, "stays").as_deref(), value(&far, "lost")), (Some("1"), None));
    // Revisions that no longer exist are in the future, and watches from before the restoration do not resume.
    let gone = far.list(ListRequest { at: ListAt::Exact(last), ..ListRequest::all(ALL) }).await;
    assert!(matches!(gone, Err(ReadError::Future { .. })), "{gone:?}");
    assert!(matches!(far.watch(ALL, WatchFrom::Revision(last)), Err(WatchError::Future { .. })));
    let older = far.watch(ALL, WatchFrom::Revision(backed_up - 1));
    assert!(matches!(older, Err(WatchError::Compacted { .. })), "{older:?}");
    follows(&far, &open(backend_of(&etcd)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_loads_everything_again_if_its_endpoint_leads_to_another_cluster() {
    let (Some(one), Some(two)) = (start_etcd().await, start_etcd().await) else { return };
    let (first, second) = (open(backend_of(&one)).await, open(backend_of(&two)).await);
    update(&first, "a", "first").await;
    // The other cluster has more revisions, so that those do not show that it is another.
    for number in 0..10 {
        update(&second, "b", &number.to_string()).await;
    }
    let last = update(&second, "a", "second").await;
    let proxy = Proxy::to(&one.url).await;
    let far = open(through(channel(&[&proxy.url]))).await;
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    proxy.cut();
    proxy.retarget(&two.url);
    proxy.mend();
    let ended = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(ended.unwrap_err(), WatchError::Lagged);
    recovered(&far, last).await;
    assert_eq!((value(&far, "a").as_deref(), value(&far, "b").as_deref()), (Some("second"), Some("9")));
    follows(&far, &second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_read_never_shows_objects_of_the_former_cluster_as_current() {
    let (Some(one), Some(two)) = (start_etcd().await, start_etcd().await) else { return };
    let near = open(backend_of(&one)).await;
    let proxy = Proxy::to(&one.url).await;
    let far = open(through(channel(&[&proxy.url]))).await;
    let revision = update(&near, "a", "1").await;
    assert_eq!(far.fresh().await, Ok(revision));
    proxy.retarget(&two.url);
    proxy.cut();
    proxy.mend();
    let begin = Instant::now();
    while value(&far, "a").is_some() {
        let is_current = far.fresh().await.is_ok();
        assert!(!is_current || value(&far, "a").is_none(), "the new cluster has no such object");
        assert!(begin.elapsed() < PATIENCE, "the new cluster is not loaded");
    }
}
