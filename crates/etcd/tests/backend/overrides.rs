//! A part of the key space in another etcd cluster.

use std::sync::Arc;
use std::time::Duration;

use conformance::EtcdProcess;
use etcd::KeyFilter;
use etcd::messages::{PutRequest, Request, TxnRequest};
use storage::{Change, Expect, ListAt, ListRequest, ReadError, Store, WatchFrom, Write};

use crate::record_backend::{backend_of, start_etcd};
use crate::{client, open, put};

const THINGS: &str = "/registry/things/";
const EVENTS: &str = "/registry/events/";

fn event(name: &str, expect: Expect, value: &str) -> Write {
    Write { key: format!("{EVENTS}{name}").into(), ..put("", expect, value) }
}

async fn open_both(main: &EtcdProcess, other: &EtcdProcess) -> Store {
    let is_event = |key: &str| key.starts_with(EVENTS);
    let rest = KeyFilter(Arc::new(move |key: &str| !is_event(key)));
    let main = open(backend_of(main).limited_to(rest)).await;
    let other = open(backend_of(other).limited_to(KeyFilter(Arc::new(is_event)))).await;
    main.with_overrides(vec![(vec![EVENTS.to_owned()], other)])
}

fn names(store: &Store, scope: &str) -> Vec<String> {
    let page = store.snapshot(scope);
    page.entries.iter().map(|entry| entry.key.trim_start_matches("/registry/").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_override_are_stored_read_and_watched_in_the_other_cluster() {
    let (Some(main), Some(other)) = (start_etcd().await, start_etcd().await) else { return };
    // A leftover from the time before the override, and a foreign key in the other cluster.
    for (etcd, key) in [(&main, "/registry/events/old"), (&other, "/registry/things/foreign")] {
        let put = PutRequest { key: key.into(), value: vec![0; 8].into(), lease: 0 };
        let put = TxnRequest { success: vec![Request::Put(put).into()], ..Default::default() };
        client(etcd).txn(&put).await.unwrap();
    }
    let (one, two) = (open_both(&main, &other).await, open_both(&main, &other).await);
    let (_, mut all) = two.list_and_watch("/registry/");
    let mut events = two.watch(EVENTS, WatchFrom::Now).unwrap();
    for number in 0..20 {
        one.commit(put(&format!("t{number}"), Expect::Absent, "1")).await.unwrap();
    }
    let first = one.commit(event("e", Expect::Absent, "1")).await.unwrap().revision;
    assert!(first < one.revision(), "the clusters have their own revisions");
    assert_eq!(one.of(EVENTS).revision(), first);
    let second = one.commit(event("e", Expect::Revision(first), "2")).await.unwrap().revision;

    two.fresh().await.unwrap();
    assert_eq!(names(&two, EVENTS), ["events/e"]);
    assert_eq!(two.count(THINGS), 20);
    assert_eq!(names(&two, "/registry/").len(), 21);
    assert_eq!(two.get("/registry/events/e").unwrap().revision, second);
    for expected in [first, second] {
        let event = tokio::time::timeout(Duration::from_secs(30), events.next()).await.unwrap().unwrap();
        assert_eq!(event.revision, expected);
    }
    let mut seen = Vec::new();
    while seen.len() < 22 {
        let event = tokio::time::timeout(Duration::from_secs(30), all.next()).await.unwrap().unwrap();
        seen.push(event.entry.key.to_string());
    }
    assert_eq!(seen.iter().filter(|key| key.starts_with(EVENTS)).count(), 2);

    // Lists at old revisions, and pages, count in the revisions of their cluster.
    let at = |revision| ListRequest { at: ListAt::Exact(revision), ..ListRequest::all(EVENTS) };
    assert_eq!(two.list(at(first)).await.unwrap().entries.last().unwrap().revision, first);
    let later = two.list(at(second + 100)).await;
    assert!(matches!(later, Err(ReadError::Future { .. })), "{later:?}");

    // Both clusters pass the check.
    for scope in [THINGS, EVENTS] {
        let checked = two.check_consistency(scope).await.unwrap();
        assert_eq!(checked, Ok(storage::ConsistencyCheck::Consistent), "{scope}");
    }
    one.commit(Write { change: Change::Delete, ..event("e", Expect::Revision(second), "") }).await.unwrap();
    two.fresh().await.unwrap();
    assert_eq!(two.count(EVENTS), 0);
    // Nothing of it is in the first cluster, whose leftover is untouched.
    let again = open(backend_of(&main)).await;
    assert_eq!(names(&again, EVENTS), ["events/old"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_away_stops_only_its_own_keys() {
    let (Some(main), Some(other)) = (start_etcd().await, start_etcd().await) else { return };
    let store = open_both(&main, &other).await;
    store.commit(event("e", Expect::Absent, "1")).await.unwrap();
    other.pause().unwrap();
    store.commit(put("a", Expect::Absent, "1")).await.unwrap();
    assert!(store.probe().unwrap().await.is_ok());
    let away = tokio::time::timeout(Duration::from_secs(1), store.of(EVENTS).probe().unwrap()).await;
    assert!(!matches!(away, Ok(Ok(()))), "{away:?}");
    assert_eq!(store.count(EVENTS), 1, "memory still has its objects");
    other.resume().unwrap();
    store.fresh().await.unwrap();
    store.commit(event("f", Expect::Absent, "1")).await.unwrap();
}
