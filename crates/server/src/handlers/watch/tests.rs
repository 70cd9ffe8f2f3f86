use std::cell::Cell;
use std::sync::Arc;

use authn::InternalIdentity;
use requests::options::ListOptions;
use requests::request_info::Query;
use storage::shared_memory::SharedMemory;
use storage::{Store, StoreOptions};
use value::json;

use super::{WatchStart, start_watch, wait_for_initial_state};
use crate::Ephemeral;
use crate::client::LoopbackClient;

const SCOPE: &str = "/registry/configmaps/default/";

/// The revisions that a watch from `after` returns at once, if the store reports the revisions `seen` while the watch begins.
fn revisions_sent(store: &Store, after: u64, seen: &[u64]) -> Vec<u64> {
    let query = Query::parse(&format!("watch=1&resourceVersion={after}"));
    let options = ListOptions::parse(&query, true).unwrap();
    let seen = Cell::new(seen);
    let now = || {
        let (first, rest) = seen.get().split_first().unwrap();
        seen.set(rest);
        *first
    };
    let WatchStart::Events(mut watch, sent) = start_watch(store, &options, SCOPE, now).unwrap() else {
        panic!("the watch does not begin");
    };
    assert_eq!(sent, after);
    let events = std::iter::from_fn(|| watch.try_next().unwrap());
    events.map(|event| event.revision).filter(|revision| *revision > sent).collect()
}

#[tokio::test]
async fn a_watch_from_a_future_revision_misses_no_write_made_while_it_starts() {
    let server = Ephemeral::start_with(|config| config.controllers.enabled = false).await.unwrap();
    let state = Arc::clone(server.running.state());
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let mut revisions = Vec::new();
    for name in ["a", "b", "c"] {
        let object = json::parse(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).as_bytes()).unwrap();
        let created = client.create("/api/v1/namespaces/default/configmaps", &object).await.unwrap();
        revisions.push(created.str_at(&["metadata", "resourceVersion"]).unwrap().parse::<u64>().unwrap());
    }
    let [first, second, third] = revisions[..] else { panic!("three were made") };
    // At first only one object existed; the others were created before the watch was registered.
    assert_eq!(revisions_sent(&state.storage.store, second, &[first, third]), [third]);
    // The requested revision is still in the future.
    assert_eq!(revisions_sent(&state.storage.store, third + 1000, &[third, third]), [] as [u64; 0]);
    // The requested revision already existed.
    assert_eq!(revisions_sent(&state.storage.store, first, &[third]), [second, third]);
    server.running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_initial_events_waits_for_the_newest_state() {
    let service = SharedMemory::new();
    let backend = service.backend();
    let stream = backend.stream();
    let store = Store::open(backend, StoreOptions::default()).await.unwrap();
    let wait = async |query: &str| {
        let query = format!("watch=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&{query}");
        let options = ListOptions::parse(&Query::parse(&query), true).unwrap();
        match wait_for_initial_state(&store, &options).await.unwrap() {
            Some(WatchStart::Error(status)) => Some(status.code()),
            Some(_) => panic!("only errors are returned"),
            None => None,
        }
    };
    stream.deliver_on_request();
    let newest = service.skip_revision();
    assert_eq!(wait("sendInitialEvents=true&resourceVersion=0").await, None);
    assert!(store.revision() < newest, "any state is enough");
    assert_eq!(wait("sendInitialEvents=true").await, None);
    assert_eq!(store.revision(), newest);
    stream.pause();
    let newest = service.skip_revision();
    assert_eq!(wait("sendInitialEvents=true").await, Some(504));
    assert_eq!(wait(&format!("sendInitialEvents=true&resourceVersion={newest}")).await, Some(504));
    stream.resume();
    assert_eq!(wait(&format!("sendInitialEvents=true&resourceVersion={newest}")).await, None);
}
