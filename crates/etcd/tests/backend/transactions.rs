//! The transactions that the backend sends. kine, which stands in for etcd on other databases, accepts only four forms of them.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd::EtcdBackend;
use etcd::EtcdConfig;
use etcd::messages::{CompareTarget, CompareWith, Request, RequestOp, TxnRequest};
use storage::{Change, CommitError, Expect, Fence, Store, Write};

use crate::faulty_endpoint::{EndpointFault, FaultyEndpoint, TXN};
use crate::record_backend::{backend_of, config, start_etcd};
use crate::{channel, key, open, put, update, value};

fn delete(name: &str, expect: Expect) -> Write {
    Write { change: Change::Delete, ..put(name, expect, "") }
}

/// The form of a transaction, by kine's rules; `None` if it has none of them.
fn form(transaction: &TxnRequest) -> Option<&'static str> {
    let [compare] = transaction.compare.as_slice() else { return None };
    let [RequestOp { request: Some(success) }] = transaction.success.as_slice() else { return None };
    let (target, with) = (CompareTarget::try_from(compare.target).ok()?, compare.with?);
    let same = |key: &[u8]| key == compare.key;
    let is_else_range = match transaction.failure.as_slice() {
        [] => false,
        [RequestOp { request: Some(Request::Range(range)) }] => {
            if !same(&range.key) || !range.range_end.is_empty() || range.revision != 0 {
                return None;
            }
            true
        }
        _ => return None,
    };
    match (target, with, success, is_else_range) {
        (CompareTarget::Mod, CompareWith::ModRevision(0), Request::Put(put), false) if same(&put.key) => {
            Some("create")
        }
        (CompareTarget::Mod, CompareWith::ModRevision(revision), Request::Put(put), true)
            if revision > 0 && same(&put.key) =>
        {
            Some("update")
        }
        (CompareTarget::Mod, CompareWith::ModRevision(revision), Request::DeleteRange(range), true)
            if revision > 0 && same(&range.key) =>
        {
            Some("delete")
        }
        (CompareTarget::Version, CompareWith::Version(_), Request::Put(put), true)
            if same(&put.key) && compare.key == "compact_rev_key" && put.lease == 0 =>
        {
            Some("compact")
        }
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transaction_has_a_form_that_kine_accepts() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let settings =
        EtcdConfig { compaction_interval: Duration::from_millis(100), ..config(channel(&[&endpoint.url])) };
    let store = open(EtcdBackend::new(settings)).await;
    let commit = async |write: Write| match store.commit(write).await {
        Ok(committed) => Some(committed.revision),
        Err(CommitError::Conflict { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    let ttl = Some(Duration::from_hours(1));
    let first = commit(put("a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(commit(put("a", Expect::Absent, "2")).await, None);
    let second = commit(put("a", Expect::Revision(first), "2")).await.unwrap();
    assert_eq!(commit(put("a", Expect::Revision(first), "3")).await, None);
    commit(put("a", Expect::Any, "3")).await.unwrap();
    commit(put("b", Expect::Any, "1")).await.unwrap();
    let third = commit(Write { ttl, ..put("c", Expect::Absent, "1") }).await.unwrap();
    commit(Write { ttl, ..put("c", Expect::Revision(third), "2") }).await.unwrap();
    assert_eq!(commit(delete("a", Expect::Revision(second))).await, None);
    commit(delete("a", Expect::Any)).await.unwrap();
    assert_eq!(commit(delete("a", Expect::Any)).await, None);

    let recorded = async || {
        loop {
            let mut forms = BTreeMap::new();
            for transaction in endpoint.calls::<TxnRequest>(TXN) {
                let form = form(&transaction).unwrap_or_else(|| panic!("kine refuses {transaction:?}"));
                *forms.entry(form).or_insert(0) += 1;
            }
            if forms.get("compact").is_some_and(|count| *count >= 2) {
                return forms;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut forms = tokio::time::timeout(Duration::from_secs(30), recorded()).await.unwrap();
    forms.remove("compact");
    // A deletion of a key that does not exist needs no transaction.
    assert_eq!(forms, BTreeMap::from([("create", 4), ("update", 4), ("delete", 2)]));
}

/// A write of `name` that is fenced by the key `fence` at this revision.
async fn create_fenced(store: &Store, name: &str, revision: u64) -> Result<u64, CommitError> {
    let fence = Fence { key: key("fence").into(), revision };
    store.commit_fenced(put(name, Expect::Absent, "1"), vec![fence]).await.map(|committed| committed.revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_write_is_refused_after_its_fence_was_written_again() {
    let Some(etcd) = start_etcd().await else { return };
    let (store, other) = (open(backend_of(&etcd)).await, open(backend_of(&etcd)).await);
    let old = update(&other, "fence", "").await;
    create_fenced(&store, "a", old).await.unwrap();
    let new = update(&other, "fence", "").await;
    let refused = create_fenced(&store, "b", old).await;
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    // A key that exists is a conflict, whatever the fence.
    for revision in [old, new] {
        let refused = create_fenced(&store, "a", revision).await;
        assert!(matches!(refused, Err(CommitError::Conflict { current: Some(_) })), "{refused:?}");
    }
    store.fresh().await.unwrap();
    assert!(value(&store, "b").is_none());
    let created = create_fenced(&store, "b", new).await.unwrap();
    other.commit(delete("fence", Expect::Any)).await.unwrap();
    let fence = Fence { key: key("fence").into(), revision: new };
    let refused = store.commit_fenced(put("b", Expect::Revision(created), "2"), vec![fence]).await;
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_fences_gets_the_transactions_of_kube_apiserver() {
    let Some(etcd) = start_etcd().await else { return };
    let endpoint = FaultyEndpoint::to(&etcd.url).await;
    let store = open(EtcdBackend::new(config(channel(&[&endpoint.url])))).await;
    let revision = update(&store, "fence", "").await;
    // What cannot be asked is not assumed.
    endpoint.fail(TXN, EndpointFault::Status(14, "etcdserver: no leader"));
    let refused = create_fenced(&store, "a", revision).await;
    assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
    endpoint.fail(TXN, EndpointFault::Status(3, "etcdserver: unsupported operations in txn request"));
    create_fenced(&store, "a", revision).await.unwrap_err();
    endpoint.mend();
    create_fenced(&store, "a", 1).await.unwrap();
    let last = endpoint.calls::<TxnRequest>(TXN).pop().unwrap();
    assert_eq!(form(&last), Some("create"));
}

#[test]
fn other_forms_are_noticed() {
    use etcd::messages::{Compare, PutRequest, RangeRequest};
    let key = || bytes::Bytes::from_static(b"/registry/things/a");
    let put = || RequestOp::from(Request::Put(PutRequest { key: key(), ..PutRequest::default() }));
    let range = || RequestOp::from(Request::Range(RangeRequest { key: key(), ..RangeRequest::default() }));
    let update = TxnRequest {
        compare: vec![Compare::mod_revision(key(), 7)],
        success: vec![put()],
        failure: vec![range()],
    };
    assert_eq!(form(&update), Some("update"));
    for other in [
        TxnRequest { compare: Vec::new(), ..update.clone() },
        TxnRequest { success: vec![put(), range()], ..update.clone() },
        TxnRequest { failure: Vec::new(), ..update.clone() },
        TxnRequest { failure: vec![put()], ..update.clone() },
        TxnRequest { compare: vec![Compare::mod_revision(key(), 0)], ..update.clone() },
        TxnRequest { compare: vec![Compare::version(key(), 7)], ..update.clone() },
        TxnRequest { compare: vec![Compare::mod_revision("/registry/things/b".into(), 7)], ..update.clone() },
    ] {
        assert_eq!(form(&other), None, "{other:?}");
    }
}
