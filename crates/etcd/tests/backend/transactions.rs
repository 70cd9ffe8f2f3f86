//! The transactions that the backend sends. kine, which stands in for etcd on other databases, accepts only four forms of them.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd::EtcdBackend;
use etcd::EtcdConfig;
use etcd::messages::{CompareTarget, CompareWith, Request, RequestOp, TxnRequest};
use storage::{Change, CommitError, Expect, Write};

use crate::etcd_process::{EtcdProcess, config};
use crate::faulty_endpoint::{FaultyEndpoint, TXN};
use crate::{channel, open, put};

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
    let Some(etcd) = EtcdProcess::start().await else { return };
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
