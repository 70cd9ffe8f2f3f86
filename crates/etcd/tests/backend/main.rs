//! The backend against a real etcd: several stores, broken connections, compaction, leases.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod ambiguous;
mod bounded;
mod consistency;
mod faulty_endpoint;
#[path = "../../../storage/tests/store/fixture.rs"]
mod fixture;
mod kine;
mod overrides;
mod proxy;
mod record_backend;
#[macro_use]
#[path = "../../../storage/tests/store/reopen.rs"]
mod reopen;
mod replaced;
mod stalled;
mod start;
#[macro_use]
#[path = "../../../storage/tests/store/suite.rs"]
mod suite;
mod transactions;

use std::time::Duration;

use conformance::EtcdProcess;
use etcd::EtcdConfig;
use etcd::client::EtcdClient;
use etcd::messages::{PutRequest, RangeRequest, Request, TxnRequest};
use grpc::{Channel, ChannelConfig, GrpcEndpoint};
use proxy::Proxy;
use record_backend::{backend_of, channel_to, start_etcd};
use storage::{
    Change, ChangeKind, CommitError, Expect, Record, Store, StoreOptions, WatchError, WatchFrom, Write,
    WritePriority,
};

const ALL: &str = "/registry/things/";

fn key(name: &str) -> String {
    format!("{ALL}{name}")
}

fn record(value: &str) -> Record {
    Record { body: value.to_owned().into(), revision_at: 0, facts: value.to_owned().into() }
}

fn put(name: &str, expect: Expect, value: &str) -> Write {
    let change = Change::Put(record(value));
    Write { key: key(name).into(), expect, change, priority: WritePriority::Ordinary, ttl: None }
}

async fn open(backend: etcd::EtcdBackend) -> Store {
    Store::open(backend, StoreOptions::default()).await.unwrap()
}

/// A backend that reaches etcd through these endpoints.
fn through(channel: ChannelConfig) -> etcd::EtcdBackend {
    etcd::EtcdBackend::new(record_backend::config(channel))
}

async fn update(store: &Store, name: &str, value: &str) -> u64 {
    store.commit(put(name, Expect::Any, value)).await.unwrap().revision
}

fn value(store: &Store, name: &str) -> Option<String> {
    store.get(&key(name)).map(|entry| String::from_utf8_lossy(&entry.facts).into_owned())
}

fn client(etcd: &EtcdProcess) -> EtcdClient {
    EtcdClient::new(Channel::new(channel_to(etcd)), Duration::from_secs(5))
}

/// A channel configuration that notices a broken connection soon.
fn channel(urls: &[&str]) -> ChannelConfig {
    let endpoints = urls.iter().map(|url| GrpcEndpoint::parse(url, None).unwrap()).collect();
    ChannelConfig { dial_timeout: Duration::from_secs(1), ..ChannelConfig::new(endpoints) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_read_sees_what_another_server_acknowledged() {
    let Some(etcd) = start_etcd().await else { return };
    let (one, two) = (open(backend_of(&etcd)).await, open(backend_of(&etcd)).await);
    for number in 0..100 {
        let number = number.to_string();
        let revision = update(&one, "a", &number).await;
        assert!(two.fresh().await.unwrap() >= revision);
        assert_eq!(value(&two, "a"), Some(number));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_read_does_not_wait_for_keys_outside_the_prefix() {
    let Some(etcd) = start_etcd().await else { return };
    let store = open(backend_of(&etcd)).await;
    let client = client(&etcd);
    for number in 0..10 {
        let put = PutRequest { key: "elsewhere".into(), value: number.to_string().into(), lease: 0 };
        let request = TxnRequest { success: vec![Request::Put(put).into()], ..Default::default() };
        let revision = client.txn(&request).await.unwrap().header.unwrap().revision;
        let fresh = tokio::time::timeout(Duration::from_secs(5), store.fresh()).await.unwrap().unwrap();
        assert!(fresh >= u64::try_from(revision).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_of_two_servers_creates_a_key() {
    let Some(etcd) = start_etcd().await else { return };
    let (one, two) = (open(backend_of(&etcd)).await, open(backend_of(&etcd)).await);
    for number in 0..50 {
        let name = number.to_string();
        let (first, second) = tokio::join!(
            one.commit(put(&name, Expect::Absent, "1")),
            two.commit(put(&name, Expect::Absent, "2"))
        );
        let winner = match (first, second) {
            (Ok(_), Err(CommitError::Conflict { current })) => (current, "1"),
            (Err(CommitError::Conflict { current }), Ok(_)) => (current, "2"),
            other => panic!("{other:?}"),
        };
        // The loser already sees the winner's record.
        assert_eq!(winner.0.unwrap().facts, winner.1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_continues_without_a_gap_after_the_connection_broke() {
    let Some(etcd) = start_etcd().await else { return };
    let proxy = Proxy::to(&etcd.url).await;
    let near = open(backend_of(&etcd)).await;
    let far = open(through(channel(&[&proxy.url]))).await;
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    let mut expected = Vec::new();
    for round in 0..5 {
        expected.push(update(&near, "a", &round.to_string()).await);
        proxy.cut();
        for number in 0..20 {
            expected.push(update(&near, &number.to_string(), "during the cut").await);
        }
        // Unknown if the connection broke after the request was sent, or if that was noticed late.
        let failed = far.commit(put("b", Expect::Any, "1")).await;
        let is_expected = matches!(
            failed,
            Err(CommitError::Unavailable(_) | CommitError::Unknown(_) | CommitError::TimedOut(_))
        );
        assert!(is_expected, "{failed:?}");
        proxy.mend();
    }
    for revision in expected {
        let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        assert_eq!(event.revision, revision);
    }
    assert!(far.fresh().await.is_ok());
    assert!(watch.try_next().unwrap().is_none(), "no write was made while the connection was cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_missed_compacted_events_loads_everything_and_ends_its_watches() {
    let Some(etcd) = start_etcd().await else { return };
    let proxy = Proxy::to(&etcd.url).await;
    let near = open(backend_of(&etcd)).await;
    let far = open(through(channel(&[&proxy.url]))).await;
    update(&near, "stays", "1").await;
    update(&near, "goes", "1").await;
    far.fresh().await.unwrap();
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    proxy.cut();
    near.commit(Write { change: Change::Delete, ..put("goes", Expect::Any, "") }).await.unwrap();
    update(&near, "new", "1").await;
    let last = update(&near, "stays", "2").await;
    client(&etcd).compact(i64::try_from(last).unwrap()).await.unwrap();
    proxy.mend();
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap_err(),
        WatchError::Lagged
    );
    far.fresh().await.unwrap();
    assert_eq!(value(&far, "goes"), None);
    assert_eq!(value(&far, "new").as_deref(), Some("1"));
    assert_eq!(value(&far, "stays").as_deref(), Some("2"));
    // Events after the load arrive again.
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    let later = update(&near, "later", "1").await;
    assert_eq!(watch.next().await.unwrap().revision, later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_keys_of_an_expired_lease_are_reported_although_they_share_a_revision() {
    const KEYS: usize = 150;
    let Some(etcd) = start_etcd().await else { return };
    let store = open(backend_of(&etcd)).await;
    let client = client(&etcd);
    let lease = client.grant_lease(1).await.unwrap();
    for number in 0..KEYS {
        let put = PutRequest { key: key(&number.to_string()).into(), value: vec![0; 8].into(), lease };
        client
            .txn(&TxnRequest { success: vec![Request::Put(put).into()], ..Default::default() })
            .await
            .unwrap();
    }
    store.fresh().await.unwrap();
    assert_eq!(store.count(ALL), KEYS);
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    let mut revisions = Vec::new();
    for _ in 0..KEYS {
        let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        assert_eq!(event.kind, ChangeKind::Deleted);
        revisions.push(event.revision);
    }
    revisions.dedup();
    assert_eq!(revisions.len(), 1, "etcd deletes them in one revision");
    assert_eq!(store.count(ALL), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_to_an_endpoint_that_works() {
    let Some(etcd) = start_etcd().await else { return };
    let (dead, living) = (Proxy::to(&etcd.url).await, Proxy::to(&etcd.url).await);
    dead.cut();
    let store = open(through(channel(&[&dead.url, &living.url]))).await;
    update(&store, "a", "1").await;
    // The other way round: the watch moves as well.
    dead.mend();
    living.cut();
    let mut outcome = store.commit(put("a", Expect::Any, "2")).await;
    for _ in 0..50 {
        if outcome.is_ok() {
            break;
        }
        outcome = store.commit(put("a", Expect::Any, "2")).await;
    }
    outcome.unwrap();
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_accepts_connections_and_never_answers_does_not_stop_writes() {
    let Some(etcd) = start_etcd().await else { return };
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let config = EtcdConfig {
        call_timeout: Duration::from_secs(2),
        ..record_backend::config(channel(&[&silent_url, &etcd.url]))
    };
    let store = open(etcd::EtcdBackend::new(config)).await;
    for number in 0..3 {
        update(&store, "a", &number.to_string()).await;
    }
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_are_loaded_in_pages() {
    const KEYS: usize = 3_000;
    let Some(etcd) = start_etcd().await else { return };
    let store = open(backend_of(&etcd)).await;
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let writes: Vec<_> = chunk
            .iter()
            .map(|number| {
                let store = store.clone();
                let write = put(&format!("{number:05}"), Expect::Absent, &number.to_string());
                tokio::spawn(async move { store.commit(write).await })
            })
            .collect();
        for write in writes {
            write.await.unwrap().unwrap();
        }
    }
    let again = open(backend_of(&etcd)).await;
    assert_eq!(again.count(ALL), KEYS);
    assert_eq!(again.revision(), store.revision());
    assert_eq!(value(&again, "02999").as_deref(), Some("2999"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_revisions_are_compacted_while_several_servers_run() {
    let Some(etcd) = start_etcd().await else { return };
    let interval = Duration::from_millis(300);
    let backend = || {
        let config =
            etcd::EtcdConfig { compaction_interval: interval, ..record_backend::config(channel_to(&etcd)) };
        etcd::EtcdBackend::new(config)
    };
    let (one, two) = (open(backend()).await, open(backend()).await);
    let first = update(&one, "a", "1").await;
    let client = client(&etcd);
    let at_first =
        RangeRequest { key: "a".into(), revision: i64::try_from(first).unwrap(), ..Default::default() };
    let compacted = async {
        while client.range(&at_first).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            update(&two, "a", "2").await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), compacted).await.unwrap();
    let error = client.range(&at_first).await.unwrap_err();
    assert!(etcd::client::is_compacted(&error), "{error}");
    assert_eq!(value(&one, "a").as_deref(), Some("2"));
}

/// The lease of a key.
async fn lease(client: &EtcdClient, name: &str) -> i64 {
    let request = RangeRequest { key: key(name).into(), ..RangeRequest::default() };
    client.range(&request).await.unwrap().kvs[0].lease
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_one_time_to_live_share_a_lease_and_short_lived_keys_do_not() {
    let Some(etcd) = start_etcd().await else { return };
    let store = open(backend_of(&etcd)).await;
    let client = client(&etcd);
    for (name, seconds) in [("a", 3600), ("b", 3600), ("c", 7200), ("d", 19), ("e", 19)] {
        let ttl = Some(Duration::from_secs(seconds));
        store.commit(Write { ttl, ..put(name, Expect::Absent, "1") }).await.unwrap();
    }
    let (a, b, c) = (lease(&client, "a").await, lease(&client, "b").await, lease(&client, "c").await);
    assert!(a != 0 && a == b && a != c);
    assert!(lease(&client, "d").await != lease(&client, "e").await);
    // An update without a time to live detaches the key from its lease.
    update(&store, "a", "2").await;
    assert_eq!(lease(&client, "a").await, 0);
    for number in 2..1001 {
        let ttl = Some(Duration::from_hours(1));
        store.commit(Write { ttl, ..put("many", Expect::Any, &number.to_string()) }).await.unwrap();
    }
    assert!(lease(&client, "many").await != b, "a lease has at most 1000 keys");
}

async fn started() -> Option<(EtcdProcess, etcd::EtcdBackend)> {
    let process = start_etcd().await?;
    let backend = backend_of(&process);
    Some((process, backend))
}

every_backend! {
    etcd_process_backend: started().await;
}

/// A process, and a function that makes a backend for it.
async fn started_for_several() -> Option<(std::sync::Arc<EtcdProcess>, impl Fn() -> etcd::EtcdBackend)> {
    let process = std::sync::Arc::new(start_etcd().await?);
    let server = std::sync::Arc::clone(&process);
    Some((process, move || backend_of(&server)))
}

every_reopened_backend! {
    reopened_etcd: started_for_several().await;
}
