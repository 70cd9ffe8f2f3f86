//! Several stores on one service that decides compare-and-swap itself and delivers changes through a separate stream, as with etcd.

use std::time::Duration;

use storage::shared_memory::{SharedFailure, SharedMemory, StoreStream};
use storage::{CommitError, Expect, ReadError, Store, StoreOptions, WatchFrom};

use crate::fixture::{conflict, create, delete, describe, key, now, put, update};

const ALL: &str = "/registry/core/things/";

async fn open(service: &SharedMemory) -> (Store, StoreStream) {
    let backend = service.backend();
    let stream = backend.stream();
    (Store::open(backend, StoreOptions::default()).await.unwrap(), stream)
}

async fn two() -> (SharedMemory, Store, Store) {
    let service = SharedMemory::new();
    let (one, _) = open(&service).await;
    let (two, _) = open(&service).await;
    (service, one, two)
}

#[tokio::test]
async fn a_fresh_read_sees_the_writes_of_another_server() {
    let (_service, one, two) = two().await;
    let mut watch = two.watch(ALL, WatchFrom::Now).unwrap();
    create(&one, "a", "1").await;
    assert_eq!(two.fresh().await, Ok(2));
    assert_eq!(two.get(&key("a")), one.get(&key("a")));
    update(&two, "a", "2").await;
    one.fresh().await.unwrap();
    assert_eq!(now(&one, ALL).await, ["a=2"]);
    assert_eq!(describe(&watch.next().await.unwrap()), "+a=1@2");
    assert_eq!(describe(&watch.next().await.unwrap()), "~a=2@3");
}

#[tokio::test]
async fn a_server_that_is_behind_is_refused_and_shown_the_current_entry() {
    let (_service, one, two) = two().await;
    let first = create(&one, "a", "1").await;
    let second = one.commit(put(&key("a"), Expect::Revision(first), "2")).await.unwrap().revision;
    let refused = two.commit(put(&key("a"), Expect::Revision(first), "x")).await;
    assert_eq!(conflict(refused), Some(second));
    assert!(matches!(
        two.commit(put(&key("a"), Expect::Absent, "x")).await,
        Err(CommitError::Conflict { current: Some(_) })
    ));
}

#[tokio::test]
async fn revisions_used_by_other_servers_do_not_block_watches() {
    let (service, one, _two) = two().await;
    create(&one, "a", "1").await;
    let skipped = service.skip_revision();
    assert_eq!(one.fresh().await, Ok(skipped));
    let watch = one.watch(ALL, WatchFrom::Now).unwrap();
    assert_eq!(watch.progress(), skipped);
    assert_eq!(create(&one, "b", "2").await, skipped + 1);
    let late = Store::open(service.backend(), StoreOptions::default()).await.unwrap();
    assert_eq!(now(&late, ALL).await, ["a=1", "b=2"]);
    assert!(
        late.watch(ALL, WatchFrom::Revision(2)).is_err(),
        "what was before it was opened, it does not know"
    );
}

#[tokio::test]
async fn a_paused_store_is_stale_until_it_is_resumed() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    assert!(one.is_shared());
    stream.pause();
    let revision = create(&one, "a", "1").await;
    let fresh = tokio::spawn({
        let two = two.clone();
        async move { two.fresh().await }
    });
    tokio::task::yield_now().await;
    assert!(two.get(&key("a")).is_none() && !fresh.is_finished());
    stream.resume();
    assert_eq!(fresh.await.unwrap(), Ok(revision));
    assert!(two.get(&key("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_fresh_read_of_a_store_that_stays_behind_fails_after_some_seconds() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    stream.pause();
    let revision = create(&one, "a", "1").await;
    let behind = tokio::time::timeout(Duration::from_secs(10), two.fresh()).await.unwrap();
    let Err(ReadError::Unavailable(why)) = behind else { panic!("{behind:?}") };
    assert!(why.contains(&format!("has not reached revision {revision}")), "{why}");
    stream.resume();
    assert_eq!(two.fresh().await, Ok(revision));
}

#[tokio::test]
async fn a_store_that_delivers_on_request_is_stale_until_it_is_asked() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    stream.deliver_on_request();
    let revision = create(&one, "a", "1").await;
    tokio::task::yield_now().await;
    assert!(two.get(&key("a")).is_none());
    assert_eq!(two.fresh().await, Ok(revision));
    assert!(two.get(&key("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stored_write_whose_event_is_late_is_answered_from_the_write() {
    let service = SharedMemory::new();
    let (store, stream) = open(&service).await;
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    create(&store, "old", "1").await;
    stream.pause();
    let created = store.commit(put(&key("a"), Expect::Absent, "1")).await.unwrap();
    assert_eq!(created.entry.record(), crate::fixture::record("1"));
    let old = store.get(&key("old")).unwrap();
    let updated = store.commit(put(&key("old"), Expect::Revision(old.revision), "2")).await.unwrap();
    let deleted = store.commit(delete(&key("old"), Expect::Revision(updated.revision))).await;
    assert!(matches!(deleted, Err(CommitError::Unknown(_))), "its last state is not known here: {deleted:?}");
    stream.resume();
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(describe(&watch.next().await.unwrap()));
    }
    assert_eq!(events, ["+old=1@2", "+a=1@3", "~old=2@4", "-old=2@5"]);
    assert_eq!((describe(&created.event), describe(&updated.event)), (events[1].clone(), events[2].clone()));
    assert_eq!((updated.entry.created, updated.event.previous.as_ref().unwrap().revision), (2, 2));
}

#[tokio::test]
async fn a_write_of_unknown_outcome_is_reported_as_such() {
    let (service, one, _two) = two().await;
    service.fail_next_commit(&key("a"), SharedFailure::NotStored);
    let refused = one.commit(put(&key("a"), Expect::Absent, "1")).await;
    assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
    service.fail_next_commit(&key("a"), SharedFailure::StoredUnknown);
    let unknown = one.commit(put(&key("a"), Expect::Absent, "1")).await;
    assert!(matches!(unknown, Err(CommitError::Unknown(_))), "{unknown:?}");
    one.fresh().await.unwrap();
    assert!(one.get(&key("a")).is_some());
}
