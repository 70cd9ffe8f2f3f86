//! Parts of the key space in other clusters, and the check of a working set against its backend.

use storage::shared_memory::{SharedMemory, StoreStream};
use storage::{
    ConsistencyCheck, Expect, Inconsistency, ListRequest, Memory, ReadError, Store, StoreOptions, WatchError,
    WatchFrom,
};

use crate::fixture::{create, delete, describe, key, put, update};

const THINGS: &str = "/registry/core/things/";
const EVENTS: &str = "/registry/core/events/";

async fn open(service: &SharedMemory) -> (Store, StoreStream) {
    let backend = service.backend();
    let stream = backend.stream();
    (Store::open(backend, StoreOptions::default()).await.unwrap(), stream)
}

/// A store whose events are in another cluster.
async fn split() -> Store {
    let (main, _) = open(&SharedMemory::new()).await;
    let (other, _) = open(&SharedMemory::new()).await;
    main.with_overrides(vec![(vec![EVENTS.to_owned()], other)])
}

fn event(name: &str) -> String {
    format!("{EVENTS}{name}")
}

#[tokio::test]
async fn each_cluster_counts_its_own_revisions() {
    let store = split().await;
    create(&store, "a", "1").await;
    create(&store, "b", "1").await;
    let stored = store.commit(put(&event("e"), Expect::Absent, "1")).await.unwrap();
    assert_eq!((stored.revision, store.revision(), store.of(EVENTS).revision()), (2, 3, 2));
    assert_eq!(store.get(&event("e")).unwrap().revision, 2);
    assert_eq!(store.of(THINGS).revision(), store.revision());
    let page = store.list(ListRequest::all(EVENTS)).await.unwrap();
    assert_eq!((page.entries.len(), page.revision), (1, 2));
    assert!(store.watch(EVENTS, WatchFrom::Revision(3)).is_err(), "that cluster has not reached it");
    store.commit(delete(&event("e"), Expect::Revision(2))).await.unwrap();
    assert_eq!((store.count(EVENTS), store.count(THINGS)), (0, 2));
    assert_eq!(store.clusters().count(), 2);
}

#[tokio::test]
async fn a_scope_above_an_override_covers_both_clusters() {
    let store = split().await;
    create(&store, "a", "1").await;
    store.commit(put(&event("e"), Expect::Absent, "1")).await.unwrap();
    let (page, mut watch) = store.list_and_watch("/registry/");
    let keys: Vec<_> = page.entries.iter().map(|entry| entry.key.to_string()).collect();
    assert_eq!(keys, [event("e"), key("a").to_string()], "in key order");
    assert_eq!(store.watches(), 2);
    store.commit(put(&event("f"), Expect::Absent, "1")).await.unwrap();
    assert_eq!(watch.next().await.unwrap().entry.key.as_ref(), event("f"));
    update(&store, "a", "2").await;
    assert_eq!(describe(&watch.next().await.unwrap()), "~a=2@3");
    assert!(watch.try_next().unwrap().is_none());
    // It wakes for each of them.
    for number in 0..20 {
        let waiting = tokio::spawn(async move {
            let event = watch.next().await.unwrap();
            (watch, event)
        });
        tokio::task::yield_now().await;
        let name = format!("n{number}");
        let target = if number % 2 == 0 { event(&name) } else { key(&name).to_string() };
        store.commit(put(&target, Expect::Absent, "1")).await.unwrap();
        let (again, event) = waiting.await.unwrap();
        assert_eq!(event.entry.key.as_ref(), target);
        watch = again;
    }
    let (page, _) = store.list_and_watch(THINGS);
    assert_eq!(page.entries.len(), 11, "a scope in one cluster is watched there only");
    store.close().await;
    assert_eq!(watch.next().await.unwrap_err(), WatchError::Closed);
}

#[tokio::test]
async fn a_store_that_is_the_only_writer_is_not_checked() {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    assert_eq!(store.check_consistency(THINGS).await, None);
}

#[tokio::test]
async fn a_lost_change_is_found_whatever_it_was_and_a_reload_repairs_it() {
    let service = SharedMemory::new();
    let ((one, _), (two, stream)) = (open(&service).await, open(&service).await);
    create(&one, "a", "1").await;
    create(&one, "b", "1").await;
    two.fresh().await.unwrap();
    let check = async || two.check_consistency(THINGS).await.unwrap().unwrap();
    assert_eq!(check().await, ConsistencyCheck::Consistent);
    for (change, name, expected) in [
        (put(&key("b"), Expect::Any, "2"), "b", (Some(3), Some(4))),
        (put(&key("0"), Expect::Absent, "1"), "0", (None, Some(5))),
        (put(&key("z"), Expect::Absent, "1"), "z", (None, Some(6))),
        (delete(&key("a"), Expect::Any), "a", (Some(2), None)),
        (delete(&key("z"), Expect::Any), "z", (Some(6), None)),
    ] {
        stream.lose_next_change();
        one.commit(change).await.unwrap();
        let at = two.fresh().await.unwrap();
        let (in_memory, stored) = expected;
        let found = Inconsistency { key: key(name), at, in_memory, stored };
        assert_eq!(check().await, ConsistencyCheck::Inconsistent(found));
        let mut watch = two.watch(THINGS, WatchFrom::Revision(at)).unwrap();
        two.reload(THINGS);
        assert_eq!(watch.next().await.unwrap_err(), WatchError::Lagged);
        assert_eq!(check().await, ConsistencyCheck::Consistent);
    }
    service.set_unreachable(true);
    assert!(matches!(two.check_consistency(THINGS).await, Some(Err(ReadError::Unavailable(_)))));
}
