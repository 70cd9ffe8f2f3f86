//! Calls that an endpoint does not answer, and lists larger than a page: what callers wait for, and what one call returns, is limited.

use std::time::Duration;

use etcd::EtcdConfig;
use etcd::messages::{LeaseGrantRequest, RangeRequest};
use storage::{Expect, ListAt, ListRequest, Store, Write};
use tokio::time::Instant;

use crate::faulty_endpoint::{EndpointFault, FaultyEndpoint, LEASE_GRANT, RANGE};
use crate::record_backend::{backend_of, config, start_etcd};
use crate::{ALL, channel, key, open, put, through, update};

async fn open_with(urls: &[&str], call_timeout: Duration) -> Store {
    open(etcd::EtcdBackend::new(EtcdConfig { call_timeout, ..config(channel(urls)) })).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_read_waits_only_shortly_for_an_endpoint_that_does_not_answer() {
    let Some(etcd) = start_etcd().await else { return };
    let (silent, working) = (FaultyEndpoint::to(&etcd.url).await, FaultyEndpoint::to(&etcd.url).await);
    let store = open_with(&[&silent.url, &working.url], Duration::from_secs(34)).await;
    let revision = update(&store, "a", "1").await;
    silent.fail(RANGE, EndpointFault::NoAnswer);
    let begin = Instant::now();
    assert_eq!(store.latest_revision().await, Ok(revision));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    // Later reads begin with the one that works.
    let begin = Instant::now();
    assert_eq!(store.latest_revision().await, Ok(revision));
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_read_waits_for_a_cluster_that_answers_late() {
    let Some(etcd) = start_etcd().await else { return };
    let (one, two) = (FaultyEndpoint::to(&etcd.url).await, FaultyEndpoint::to(&etcd.url).await);
    let store = open_with(&[&one.url, &two.url], Duration::from_secs(20)).await;
    let revision = update(&store, "a", "1").await;
    one.fail(RANGE, EndpointFault::NoAnswer);
    two.fail(RANGE, EndpointFault::NoAnswer);
    let reading = tokio::spawn({
        let store = store.clone();
        async move { store.latest_revision().await }
    });
    let calls = || one.calls::<RangeRequest>(RANGE).len() + two.calls::<RangeRequest>(RANGE).len();
    let before = calls();
    let begin = Instant::now();
    // Both have been tried, and one of them again.
    while calls() < before + 3 {
        assert!(begin.elapsed() < Duration::from_secs(15) && !reading.is_finished());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    one.mend();
    two.mend();
    assert_eq!(reading.await.unwrap(), Ok(revision));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_need_a_lease_share_one_grant_and_its_failure() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let store = open_with(&[&endpoint.url], Duration::from_secs(2)).await;
    endpoint.fail(LEASE_GRANT, EndpointFault::NoAnswer);
    let write = |name: String| {
        let store = store.clone();
        tokio::spawn(async move {
            let ttl = Some(Duration::from_hours(1));
            store.commit(Write { ttl, ..put(&name, Expect::Absent, "1") }).await
        })
    };
    let begin = Instant::now();
    let writes: Vec<_> = (0..10).map(|number| write(number.to_string())).collect();
    for write in writes {
        write.await.unwrap().unwrap_err();
    }
    assert!(begin.elapsed() < Duration::from_secs(8), "they wait for each other: {:?}", begin.elapsed());
    assert_eq!(endpoint.calls::<LeaseGrantRequest>(LEASE_GRANT).len(), 1);
    endpoint.mend();
    let writes: Vec<_> = (0..10).map(|number| write(number.to_string())).collect();
    for write in writes {
        write.await.unwrap().unwrap();
    }
    assert_eq!(endpoint.calls::<LeaseGrantRequest>(LEASE_GRANT).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_at_an_old_revision_is_read_from_etcd_in_pages() {
    const KEYS: usize = 1_800;
    let Some(etcd) = start_etcd().await else { return };
    let store = open(backend_of(&etcd)).await;
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let create = |number: &usize| {
            let (store, write) = (store.clone(), put(&format!("{number:05}"), Expect::Absent, "1"));
            tokio::spawn(async move { store.commit(write).await })
        };
        let writes: Vec<_> = chunk.iter().map(create).collect();
        for write in writes {
            write.await.unwrap().unwrap();
        }
    }
    let revision = store.revision();
    update(&store, "00000", "2").await;
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let again = open(through(channel(&[&endpoint.url]))).await;
    let at = ListAt::Exact(revision);
    for (after, limit, expected, remaining) in [
        (None, 0, 0..KEYS, 0),
        (None, 1_000, 0..1_000, 800),
        (Some(key("00099")), 700, 100..800, 1_000),
        (Some(key("01000")), 0, 1_001..KEYS, 0),
    ] {
        let before = endpoint.calls::<RangeRequest>(RANGE).len();
        let is_list = |call: &RangeRequest| !call.range_end.is_empty();
        let list = ListRequest { at, after: after.as_deref(), limit, ..ListRequest::all(ALL) };
        let page = again.list(list).await.unwrap();
        let found: Vec<String> = page.entries.iter().map(|entry| entry.key.to_string()).collect();
        assert_eq!(found, expected.map(|number| key(&format!("{number:05}"))).collect::<Vec<_>>());
        assert_eq!((page.remaining, page.more.is_some()), (remaining, remaining > 0));
        let mut calls = endpoint.calls::<RangeRequest>(RANGE).split_off(before);
        calls.retain(is_list);
        let limits: Vec<i64> = calls.iter().map(|call| call.limit).collect();
        assert!(limits.len() >= 2 && limits.iter().all(|limit| (1..=10_000).contains(limit)), "{limits:?}");
        assert!(limits[0] <= 500, "{limits:?}");
        assert!(calls.iter().all(|call| call.revision == i64::try_from(revision).unwrap()));
    }
}
