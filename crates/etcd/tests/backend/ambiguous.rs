//! Writes whose outcome is not certain: they are never repeated, and never acknowledged without a confirmation by etcd.

use std::time::Duration;

use etcd::EtcdConfig;
use etcd::messages::TxnRequest;
use storage::{CommitError, Expect, Store};

use crate::faulty_endpoint::{EndpointFault, FaultyEndpoint, TXN};
use crate::proxy::Proxy;
use crate::record_backend::{backend_of, config, start_etcd};
use crate::{channel, open, put, update, value};

/// A time limit of calls that a test can wait for.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

async fn open_through(urls: &[&str]) -> Store {
    let config = EtcdConfig { call_timeout: CALL_TIMEOUT, ..config(channel(urls)) };
    open(etcd::EtcdBackend::new(config)).await
}

/// The error of a failed write, as its caller sees it.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    NotStored(String),
    Unknown(String),
    TimedOut,
}

async fn create(store: &Store, name: &str) -> Outcome {
    match store.commit(put(name, Expect::Absent, "1")).await.unwrap_err() {
        CommitError::Unavailable(why) => Outcome::NotStored(why),
        CommitError::Unknown(why) => Outcome::Unknown(why),
        CommitError::TimedOut(_) => Outcome::TimedOut,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_an_answer_is_sent_once_and_its_outcome_is_unknown() {
    let Some(etcd) = start_etcd().await else { return };
    let faulty = FaultyEndpoint::to(&etcd.url).await;
    let working = FaultyEndpoint::to(&etcd.url).await;
    let store = open_through(&[&faulty.url, &working.url]).await;
    let near = open(backend_of(&etcd)).await;
    let timed_out = "etcdserver: request timed out";
    let changed = "etcdserver: leader changed";
    let full = "etcdserver: mvcc: database space exceeded";
    let unknown = |why: &str| Some(Outcome::Unknown(why.to_owned()));
    for (name, fault, expected, is_stored) in [
        ("lost", EndpointFault::NoAnswer, Some(Outcome::TimedOut), true),
        ("closed-after", EndpointFault::CloseAfter, None, true),
        ("closed-before", EndpointFault::CloseBefore, None, false),
        ("timed-out-after", EndpointFault::StatusAfter(14, timed_out), unknown(timed_out), true),
        ("timed-out-before", EndpointFault::Status(14, timed_out), unknown(timed_out), false),
        ("leader-changed", EndpointFault::Status(14, changed), unknown(changed), false),
        ("full", EndpointFault::Status(8, full), Some(Outcome::NotStored(full.to_owned())), false),
    ] {
        let before = (faulty.calls::<TxnRequest>(TXN).len(), working.calls::<TxnRequest>(TXN).len());
        faulty.fail(TXN, fault.clone());
        working.fail(TXN, fault);
        let outcome = create(&store, name).await;
        match &expected {
            Some(expected) => assert_eq!(outcome, *expected, "{name}"),
            // The message names the endpoint and says what happened to the connection.
            None => assert!(matches!(outcome, Outcome::Unknown(_)), "{name}: {outcome:?}"),
        }
        let after = (faulty.calls::<TxnRequest>(TXN).len(), working.calls::<TxnRequest>(TXN).len());
        assert_eq!(after.0 + after.1, before.0 + before.1 + 1, "{name}: the write is sent once");
        faulty.mend();
        working.mend();
        near.fresh().await.unwrap();
        assert_eq!(value(&near, name).is_some(), is_stored, "{name}");
    }
    // The caller can find out by reading, and can write again.
    let fresh = async { while store.fresh().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), fresh).await.unwrap();
    assert_eq!(value(&store, "lost").as_deref(), Some("1"));
    assert!(value(&store, "closed-before").is_none());
    update(&store, "closed-before", "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_not_sent_is_made_at_another_endpoint_or_reported_as_not_stored() {
    let Some(etcd) = start_etcd().await else { return };
    let (first, second) = (Proxy::to(&etcd.url).await, Proxy::to(&etcd.url).await);
    let store = open_through(&[&first.url, &second.url]).await;
    update(&store, "a", "1").await;
    first.cut();
    second.cut();
    // The first write after the cut may find an open connection that breaks; the next ones find none.
    let refused = async {
        loop {
            match create(&store, "b").await {
                Outcome::NotStored(why) => return why,
                Outcome::Unknown(_) | Outcome::TimedOut => {}
            }
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(30), refused).await.unwrap();
    assert!(why.contains("http://127.0.0.1:"), "{why}");
    second.mend();
    let created = async { while store.commit(put("c", Expect::Absent, "1")).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), created).await.unwrap();
    assert!(value(&store, "b").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_member_makes_writes_time_out_and_the_probe_fail_until_it_continues() {
    let Some(etcd) = start_etcd().await else { return };
    let store = open_through(&[&etcd.url]).await;
    update(&store, "a", "1").await;
    store.probe().unwrap().await.unwrap();
    etcd.pause().unwrap();
    let (outcome, probed) = tokio::join!(create(&store, "b"), store.probe().unwrap());
    etcd.resume().unwrap();
    assert_eq!(outcome, Outcome::TimedOut);
    assert!(probed.is_err());
    let recovered = async { while store.probe().unwrap().await.is_err() || store.fresh().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), recovered).await.unwrap();
    store.health().unwrap();
    // It may have been stored after all; either way memory agrees with etcd.
    let again = open(backend_of(&etcd)).await;
    assert_eq!(value(&store, "b"), value(&again, "b"));
    update(&store, "b", "2").await;
}
