//! The start: versions that are refused, and clusters that are not available yet.

use std::time::Duration;

use etcd::messages::StatusResponse;
use storage::{Store, StoreOptions};
use tokio::time::Instant;

use crate::faulty_endpoint::{EndpointFault, FaultyEndpoint, RANGE, STATUS, framed};
use crate::proxy::Proxy;
use crate::record_backend::{backend_of, config, start_etcd};
use crate::{channel, open, through, update, value};

async fn start_error(urls: &[&str]) -> String {
    let backend = etcd::EtcdBackend::new(config(channel(urls)));
    Store::open(backend, StoreOptions::default()).await.unwrap_err().to_string()
}

fn version(version: &str) -> EndpointFault {
    EndpointFault::Answer(framed(&StatusResponse { version: version.to_owned(), db_size: 0 }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_reachable_etcd_fails_after_20_seconds_with_its_address() {
    let begin = Instant::now();
    let error = start_error(&["http://127.0.0.1:1"]).await;
    assert!(begin.elapsed() >= Duration::from_secs(20), "{error}");
    assert!(error.contains("etcd does not answer: cannot connect to http://127.0.0.1:1"), "{error}");
    assert!(error.contains("--etcd-servers"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_too_old_is_refused_at_once_even_if_others_are_not() {
    let Some(etcd) = start_etcd().await else { return };
    let (old, new) = (FaultyEndpoint::to(&etcd.url).await, FaultyEndpoint::to(&etcd.url).await);
    old.fail(STATUS, version("3.5.12"));
    let begin = Instant::now();
    let error = start_error(&[&new.url, &old.url]).await;
    assert!(begin.elapsed() < Duration::from_secs(15), "{error}");
    assert!(error.contains("etcd 3.5.12 cannot serve consistent reads"), "{error}");
    assert!(error.contains("use 3.5.13 or newer"), "{error}");
    old.fail(STATUS, version("3.5.13"));
    open(through(channel(&[&new.url, &old.url]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_answers_only_after_the_start_is_not_watched_if_it_is_too_old() {
    let Some(etcd) = start_etcd().await else { return };
    let near = open(backend_of(&etcd)).await;
    let first = Proxy::to(&etcd.url).await;
    let late = FaultyEndpoint::to(&etcd.url).await;
    late.fail(STATUS, EndpointFault::Status(14, "not started"));
    let store = open(through(channel(&[&first.url, &late.url]))).await;
    update(&near, "a", "1").await;
    store.fresh().await.unwrap();
    late.fail(STATUS, version("3.5.12"));
    first.cut();
    let begin = Instant::now();
    let reason = loop {
        if let Err(reason) = store.health()
            && reason.contains("etcd 3.5.12")
        {
            break reason;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "the watch of the old member is used");
        // The connection to the first one may be the preferred one until a call fails.
        let _ = store.latest_revision().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(reason.contains("cannot serve consistent reads"), "{reason}");
    // It is upgraded.
    late.fail(STATUS, version("3.5.13"));
    update(&near, "a", "2").await;
    let begin = Instant::now();
    while value(&store, "a").as_deref() != Some("2") || store.health().is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30), "the watch of the new member is not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_a_cluster_that_is_away_or_has_no_leader() {
    let Some(etcd) = start_etcd().await else { return };
    update(&open(backend_of(&etcd)).await, "a", "1").await;
    let away = Proxy::to(&etcd.url).await;
    away.cut();
    let leaderless = FaultyEndpoint::to(&etcd.url).await;
    leaderless.fail(RANGE, EndpointFault::Status(14, "etcdserver: no leader"));
    let opening = [&away.url, &leaderless.url].map(|url| tokio::spawn(open(through(channel(&[url])))));
    while leaderless.calls::<etcd::messages::RangeRequest>(RANGE).len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(opening.iter().all(|opening| !opening.is_finished()));
    away.mend();
    leaderless.mend();
    for opening in opening {
        assert_eq!(value(&opening.await.unwrap(), "a").as_deref(), Some("1"));
    }
}
