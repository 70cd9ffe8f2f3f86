use std::sync::Mutex;
use std::thread::{self, ThreadId};

use storage::{Change as Put, Expect, Memory, Record, StoreOptions, Write, WritePriority};

use super::*;

const KEY: &str = "/registry/clusterroles/a";

async fn write(store: &Store, filler: usize) -> u64 {
    let body =
        format!(r#"{{"filler":"{}","metadata":{{"name":"a","resourceVersion":""}}}}"#, "x".repeat(filler));
    let revision_at = u32::try_from(body.len() - 3).unwrap();
    let record = Record { body: body.into(), revision_at, facts: bytes::Bytes::new() };
    let (change, priority) = (Put::Put(record), WritePriority::Ordinary);
    let write = Write { key: KEY.into(), expect: Expect::Any, change, priority, ttl: None };
    store.commit(write).await.unwrap().revision
}

fn unconcerned(store: &Store) -> UnreadableConcern {
    UnreadableConcern::without_concern(&Arc::new(Unreadable::scan(store, Arc::default())))
}

/// The runtime has one thread.
#[tokio::test]
async fn large_changes_are_applied_in_order_on_a_blocking_thread() {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    let applied: Arc<Mutex<Vec<(usize, ThreadId)>>> = Arc::default();
    let seen = Arc::clone(&applied);
    let size =
        |object: Option<&Value>| object.and_then(|object| object.str_at(&["filler"])).map_or(0, str::len);
    let notes = unconcerned(&store);
    let informer = start_informer(&store, "/registry/clusterroles/", notes, move |_, new| {
        seen.lock().unwrap().push((size(new), thread::current().id()));
    });
    // Small, large, small again but with a large predecessor, small.
    let sizes = [1, LARGE_CHANGE, 2, 3];
    for size in sizes {
        informer.reached(write(&store, size).await).await;
    }
    let here = thread::current().id();
    let places: Vec<(usize, bool)> =
        applied.lock().unwrap().iter().map(|(size, thread)| (*size, *thread == here)).collect();
    assert_eq!(places, [(1, true), (LARGE_CHANGE, false), (2, false), (3, true)]);
}

#[tokio::test]
async fn after_a_panic_on_a_blocking_thread_the_state_no_longer_progresses() {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    let notes = unconcerned(&store);
    let informer = start_informer(&store, "/registry/clusterroles/", notes, |_, new| {
        assert!(new.is_none(), "expected by the test");
    });
    let before = *informer.revision.borrow();
    let revision = write(&store, LARGE_CHANGE).await;
    // It returns, because the informer has ended.
    informer.reached(revision).await;
    assert_eq!(*informer.revision.borrow(), before);
}
