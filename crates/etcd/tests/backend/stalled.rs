//! A watch that stays open and delivers nothing, as on a member that is partitioned from the others.

use std::time::Duration;

use tokio::time::Instant;

use crate::faulty_endpoint::FaultyEndpoint;
use crate::record_backend::{backend_of, start_etcd};
use crate::{channel, open, through, update, value};

/// Longest time for a server to notice and to recover.
const PATIENCE: Duration = Duration::from_secs(30);

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_stalls_moves_to_a_member_that_delivers_events() {
    let Some(etcd) = start_etcd().await else { return };
    let near = open(backend_of(&etcd)).await;
    let (stalled, working) = (FaultyEndpoint::to(&etcd.url).await, FaultyEndpoint::to(&etcd.url).await);
    let far = open(through(channel(&[&stalled.url, &working.url]))).await;
    update(&near, "a", "1").await;
    far.fresh().await.unwrap();
    stalled.hold_events(true);
    update(&near, "a", "2").await;
    // A reader asks for the newest revision, without waiting for it.
    far.latest_revision().await.unwrap();
    until("the watch stays at the stalled member", || value(&far, "a").as_deref() == Some("2")).await;
    update(&near, "a", "3").await;
    far.fresh().await.unwrap();
    assert_eq!(value(&far, "a").as_deref(), Some("3"));
    assert_eq!(far.health(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_only_watch_stalls_is_unhealthy_until_it_has_caught_up() {
    let Some(etcd) = start_etcd().await else { return };
    let near = open(backend_of(&etcd)).await;
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let far = open(through(channel(&[&endpoint.url]))).await;
    update(&near, "a", "1").await;
    far.fresh().await.unwrap();
    endpoint.hold_events(true);
    update(&near, "a", "2").await;
    far.latest_revision().await.unwrap();
    until("a stalled watch is healthy", || far.health().is_err()).await;
    let reason = far.health().unwrap_err();
    assert!(reason.contains("behind"), "{reason}");
    assert_eq!(value(&far, "a").as_deref(), Some("1"));
    endpoint.hold_events(false);
    until("the store stays unhealthy", || far.health().is_ok()).await;
    assert_eq!(value(&far, "a").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_without_events_does_not_count_as_stalled() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let far = open(through(channel(&[&endpoint.url]))).await;
    far.fresh().await.unwrap();
    endpoint.hold_events(true);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(8) {
        assert_eq!(far.fresh().await, Ok(far.revision()));
        assert_eq!(far.health(), Ok(()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
