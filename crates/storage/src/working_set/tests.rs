use std::sync::Arc;

use super::{ListAtRevision, WorkingSet};
use crate::backend::{DecidedChange, StoredRecord};
use crate::error::WatchError;
use crate::record::{Change, Record};
use crate::store::StoreOptions;
use crate::table::ScopeTotals;
use crate::watch::Watch;

fn record(value: &str) -> Record {
    Record { body: value.to_owned().into(), revision_at: 0, facts: value.to_owned().into() }
}

fn put(key: &str, revision: u64) -> DecidedChange {
    let change = Change::Put(record(&revision.to_string()));
    DecidedChange { key: key.into(), revision, created: revision, change }
}

fn stored(key: &str, revision: u64) -> StoredRecord {
    StoredRecord { key: key.into(), revision, created: revision, record: record(&revision.to_string()) }
}

#[test]
fn a_reload_at_a_lower_revision_discards_the_newer_events_and_ends_watches() {
    let set = Arc::new(WorkingSet::new(&StoreOptions::default()));
    set.load(1, 0, Vec::new());
    drop(set.apply((2..=9).map(|revision| put(&format!("/a/{revision}"), revision)).collect()));
    set.advance(20);
    let mut watch = Watch::new(Arc::clone(&set), "/a/", 9, set.reloads());
    set.reload(4, vec![stored("/a/2", 2), stored("/a/4", 4)]);
    assert_eq!(watch.try_next().unwrap_err(), WatchError::Lagged);
    assert_eq!((set.revision(), set.announced(), set.span()), (4, 4, (4, 4)));
    assert!((1..=9).all(|revision| set.event(revision).is_none()));
    assert!(matches!(set.select_at("/a/", 9, None), ListAtRevision::Future(4)));
    assert!(matches!(set.select_at("/a/", 3, None), ListAtRevision::Unknown));
    // The revisions that were lost are used again, for other changes.
    drop(set.apply(vec![put("/a/other", 5)]));
    assert_eq!(&*set.event(5).unwrap().entry.key, "/a/other");
    let keys = |revision| match set.select_at("/a/", revision, None) {
        ListAtRevision::Known(entries) => entries.iter().map(|entry| entry.key.to_string()).collect(),
        _ => Vec::new(),
    };
    assert_eq!(keys(4), ["/a/2", "/a/4"]);
    assert_eq!(keys(5), ["/a/2", "/a/4", "/a/other"]);
}

#[test]
fn totals_follow_creations_updates_deletions_and_reloads() {
    let shard_end = |key: &str| key.starts_with("/a/").then_some(3);
    let set = WorkingSet::new(&StoreOptions { shard_end, ..StoreOptions::default() });
    // A body is 'size' bytes and one digit of the revision.
    let put = |key: &str, revision, size| {
        let record = Record { body: "x".repeat(size).into(), revision_at: 0, facts: "facts".into() };
        DecidedChange { key: key.into(), revision, created: revision, change: Change::Put(record) }
    };
    let delete =
        |key: &str, revision| DecidedChange { key: key.into(), revision, created: 0, change: Change::Delete };
    let check = |count, body_bytes| {
        for scope in ["/a/", "/"] {
            assert_eq!(set.totals(scope), ScopeTotals { count, body_bytes }, "{scope}");
        }
    };
    set.load(1, 0, Vec::new());
    check(0, 0);
    drop(set.apply(vec![put("/a/n/1", 2, 10), put("/a/m/2", 3, 1000)]));
    check(2, 11 + 1001);
    drop(set.apply(vec![put("/a/n/1", 4, 500)]));
    check(2, 501 + 1001);
    drop(set.apply(vec![put("/a/n/1", 5, 20)]));
    check(2, 21 + 1001);
    drop(set.apply(vec![delete("/a/m/2", 6), delete("/a/m/never-was", 7)]));
    check(1, 21);
    // Parts of a shard are walked, and other shards do not count.
    assert_eq!(set.totals("/a/n/"), ScopeTotals { count: 1, body_bytes: 21 });
    assert_eq!(set.totals("/a/m/"), ScopeTotals::default());
    assert_eq!(set.totals("/b/"), ScopeTotals::default());
    set.reload(9, vec![stored("/a/x", 8), stored("/a/y", 9)]);
    check(2, 4);
    set.reload(1, Vec::new());
    check(0, 0);
}

#[test]
fn a_reload_to_an_empty_state_does_not_claim_to_know_older_revisions() {
    let set = WorkingSet::new(&StoreOptions::default());
    set.load(7, 0, vec![stored("/a/7", 7)]);
    set.reload(1, Vec::new());
    assert_eq!((set.revision(), set.span()), (1, (1, 1)));
    drop(set.apply(vec![put("/a/2", 2)]));
    assert!(matches!(set.select_at("/a/", 1, None), ListAtRevision::Known(entries) if entries.is_empty()));
}
