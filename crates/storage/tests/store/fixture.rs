//! Helpers shared by the tests: keys, records, and opening a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::{
    Change, ChangeKind, Clock, CommitError, Committed, Expect, ListAt, ListRequest, ReadError, Record, Store,
    StoreEvent, StoreOptions, Write, WritePriority,
};

pub(crate) fn key(name: &str) -> Arc<str> {
    format!("/registry/core/things/{name}").into()
}

/// A shard for each directory of three segments, such as `/registry/core/things/`.
pub(crate) fn shard_end(key: &str) -> Option<usize> {
    key.match_indices('/').nth(3).map(|(slash, _)| slash + 1)
}

/// A record with the body `{"v":"VALUE","r":"REVISION"}`.
pub(crate) fn record(value: &str) -> Record {
    let body = format!(r#"{{"v":"{value}","r":""}}"#);
    Record {
        revision_at: u32::try_from(body.len() - 2).unwrap(),
        body: body.into(),
        facts: value.to_owned().into(),
    }
}

pub(crate) fn body(value: &str, revision: u64) -> String {
    format!(r#"{{"v":"{value}","r":"{revision}"}}"#)
}

pub(crate) fn put(key: &str, expect: Expect, value: &str) -> Write {
    let (change, priority) = (Change::Put(record(value)), WritePriority::Ordinary);
    Write { key: key.into(), expect, change, priority, ttl: None }
}

pub(crate) fn delete(key: &str, expect: Expect) -> Write {
    let (change, priority) = (Change::Delete, WritePriority::Ordinary);
    Write { key: key.into(), expect, change, priority, ttl: None }
}

pub(crate) async fn create(store: &Store, name: &str, value: &str) -> u64 {
    store.commit(put(&key(name), Expect::Absent, value)).await.unwrap().revision
}

pub(crate) async fn update(store: &Store, name: &str, value: &str) -> u64 {
    store.commit(put(&key(name), Expect::Any, value)).await.unwrap().revision
}

pub(crate) async fn remove(store: &Store, name: &str) -> u64 {
    store.commit(delete(&key(name), Expect::Any)).await.unwrap().revision
}

/// The entries in `scope` at `revision`, as `name=value` pairs.
pub(crate) async fn at(store: &Store, scope: &str, revision: u64) -> Result<Vec<String>, ReadError> {
    let page = store.list(ListRequest { at: ListAt::Exact(revision), ..ListRequest::all(scope) }).await?;
    assert_eq!(page.revision, revision);
    Ok(page.entries.iter().map(|entry| show(&entry.key, &entry.facts)).collect())
}

pub(crate) async fn now(store: &Store, scope: &str) -> Vec<String> {
    let page = store.list(ListRequest::all(scope)).await.unwrap();
    page.entries.iter().map(|entry| show(&entry.key, &entry.facts)).collect()
}

pub(crate) fn show(key: &str, facts: &[u8]) -> String {
    let name = key.strip_prefix("/registry/core/things/").unwrap_or(key);
    format!("{name}={}", String::from_utf8_lossy(facts))
}

pub(crate) fn describe(event: &StoreEvent) -> String {
    let sign = match event.kind {
        ChangeKind::Created => '+',
        ChangeKind::Modified => '~',
        ChangeKind::Deleted => '-',
    };
    format!("{sign}{}@{}", show(&event.entry.key, &event.entry.facts), event.revision)
}

pub(crate) fn conflict(result: Result<Committed, CommitError>) -> Option<u64> {
    match result {
        Err(CommitError::Conflict { current }) => current.map(|entry| entry.revision),
        other => panic!("no conflict: {other:?}"),
    }
}

/// A clock that tests advance by hand.
#[derive(Clone, Default)]
pub(crate) struct Time(Arc<AtomicU64>);

impl Time {
    pub(crate) fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) fn options(&self) -> StoreOptions {
        let time = self.0.clone();
        let clock = Clock::new(move || Duration::from_secs(time.load(Ordering::SeqCst)));
        StoreOptions { wall_clock: clock.clone(), clock, ..StoreOptions::default() }
    }
}
