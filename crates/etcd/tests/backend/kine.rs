//! Answers of kine, which stands in for etcd on other databases: the revision of a refused transaction can be older than the change that
//! made it fail, and older than earlier answers, because kine takes it from a cache that concurrent inserts do not always raise.

use std::time::Duration;

use conformance::EtcdProcess;
use etcd::messages::{RangeRequest, RangeResponse, ResponseHeader, TxnResponse};
use storage::{CommitError, Expect, Store, WatchError, WatchFrom};
use tokio::time::Instant;

use crate::faulty_endpoint::{EndpointFault, FaultyEndpoint, RANGE, TXN, framed};
use crate::record_backend::{backend_of, start_etcd};
use crate::{ALL, channel, client, open, put, through, update, value};

const PATIENCE: Duration = Duration::from_secs(30);

/// The header that etcd shows at `revision`.
async fn header_at(etcd: &EtcdProcess, revision: u64) -> ResponseHeader {
    let request = RangeRequest { key: "a".into(), ..RangeRequest::default() };
    let header = client(etcd).range(&request).await.unwrap().header.unwrap();
    ResponseHeader { revision: i64::try_from(revision).unwrap(), ..header }
}

/// The answer to a refused create, with this header.
fn refusal(header: ResponseHeader) -> EndpointFault {
    EndpointFault::Answer(framed(&TxnResponse { header: Some(header), ..TxnResponse::default() }))
}

/// The value in the conflict with which a create fails; `None` if memory has no such key.
async fn conflict(store: &Store, name: &str) -> Option<String> {
    match store.commit(put(name, Expect::Absent, "2")).await {
        Err(CommitError::Conflict { current }) => {
            current.map(|entry| String::from_utf8_lossy(&entry.facts).into_owned())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_with_an_older_revision_is_a_conflict_and_reloads_nothing() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let far = open(through(channel(&[&endpoint.url]))).await;
    let first = update(&far, "a", "1").await;
    update(&far, "b", "1").await;
    let last = far.fresh().await.unwrap();
    let mut watch = far.watch(ALL, WatchFrom::Revision(last)).unwrap();
    endpoint.fail(TXN, refusal(header_at(&etcd, first).await));
    assert_eq!(conflict(&far, "a").await.as_deref(), Some("1"));
    endpoint.mend();
    assert_eq!(far.fresh().await, Ok(last));
    // The watch goes on.
    let revision = update(&far, "c", "1").await;
    let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert_eq!(event.revision, revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_create_waits_for_the_object_that_made_it_fail() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let (near, far) = (open(backend_of(&etcd)).await, open(through(channel(&[&endpoint.url]))).await);
    let first = update(&near, "a", "1").await;
    assert_eq!(far.fresh().await, Ok(first));
    endpoint.hold_events(true);
    update(&near, "b", "1").await;
    // As old as memory, which lacks the object.
    endpoint.fail(TXN, refusal(header_at(&etcd, first).await));
    let reads = endpoint.calls::<RangeRequest>(RANGE).len();
    let asked = async {
        let begin = Instant::now();
        while endpoint.calls::<RangeRequest>(RANGE).len() == reads {
            assert!(begin.elapsed() < PATIENCE, "the current revision is not read");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        endpoint.hold_events(false);
    };
    let (current, ()) = tokio::join!(conflict(&far, "b"), asked);
    assert_eq!(current.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_reloads_everything_if_the_revision_really_went_back() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let far = open(through(channel(&[&endpoint.url]))).await;
    let first = update(&far, "a", "1").await;
    update(&far, "b", "1").await;
    far.fresh().await.unwrap();
    let mut watch = far.watch(ALL, WatchFrom::Now).unwrap();
    let header = header_at(&etcd, first).await;
    let empty = RangeResponse { header: Some(header), ..RangeResponse::default() };
    endpoint.fail(RANGE, EndpointFault::Answer(framed(&empty)));
    endpoint.fail(TXN, refusal(header));
    let refused = far.commit(put("a", Expect::Absent, "2")).await;
    let Err(CommitError::Unavailable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("the data in etcd was replaced"), "{why}");
    let ended = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(ended.unwrap_err(), WatchError::Lagged);
    let begin = Instant::now();
    while value(&far, "a").is_some() {
        assert!(begin.elapsed() < PATIENCE, "the replaced data is not loaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
