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
    let threads: Vec<(usize, bool)> =
        applied.lock().unwrap().iter().map(|(size, thread)| (*size, *thread == here)).collect();
    assert_eq!(threads, [(1, true), (LARGE_CHANGE, false), (2, false), (3, true)]);
}

/// Both for changes that are applied on a blocking thread and for others.
#[tokio::test]
async fn after_a_panic_the_decisions_that_depend_on_an_informer_are_denied() {
    for filler in [1, LARGE_CHANGE] {
        let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
        let unreadable = Arc::new(Unreadable::scan(&store, Arc::default()));
        let is_withdrawn = Arc::new(Mutex::new(false));
        let withdrawn = Arc::clone(&is_withdrawn);
        let notes = UnreadableConcern::of_grants(&unreadable, move || *withdrawn.lock().unwrap() = true);
        let informer = start_informer(&store, "/registry/clusterroles/", notes, |_, new| {
            assert!(new.is_none(), "expected by the test");
        });
        unreadable.check(&Concern::Authorization).unwrap();
        unreadable.check_decisive().unwrap();
        let before = *informer.revision.borrow();
        // The writer does not wait for an informer that has ended, and what it would have waited for is denied.
        informer.reached(write(&store, filler).await).await;
        assert_eq!(*informer.revision.borrow(), before, "{filler}");
        assert!(*is_withdrawn.lock().unwrap(), "{filler}");
        unreadable.check(&Concern::Authorization).unwrap_err();
        unreadable.check(&Concern::Addresses).unwrap();
        let why = unreadable.check_decisive().unwrap_err();
        assert!(why.contains("/registry/clusterroles/"), "the readiness check names the objects: {why}");
    }
}

#[tokio::test]
async fn an_informer_without_a_concern_continues_after_a_panic() {
    for filler in [1, LARGE_CHANGE] {
        let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
        let unreadable = Arc::new(Unreadable::scan(&store, Arc::default()));
        let notes = UnreadableConcern::without_concern(&unreadable);
        let applied = Arc::new(Mutex::new(0));
        let count = Arc::clone(&applied);
        let informer = start_informer(&store, "/registry/clusterroles/", notes, move |old, _| {
            *count.lock().unwrap() += 1;
            assert!(old.is_some() || *count.lock().unwrap() > 1, "expected by the test");
        });
        let revision = write(&store, filler).await;
        informer.reached(revision).await;
        let revision = write(&store, filler + 1).await;
        informer.reached(revision).await;
        assert!(*informer.revision.borrow() >= revision);
        assert_eq!(*applied.lock().unwrap(), 2);
        unreadable.check_decisive().unwrap();
    }
}
