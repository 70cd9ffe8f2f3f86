use std::sync::Arc;

use super::{ListAtRevision, WorkingSet};
use crate::backend::{Done, StoredRecord};
use crate::error::WatchError;
use crate::record::{Change, Record};
use crate::store::StoreOptions;
use crate::watch::Watch;

fn record(value: &str) -> Record {
    Record { body: value.to_owned().into(), revision_at: 0, facts: value.to_owned().into() }
}

fn put(key: &str, revision: u64) -> Done {
    let change = Change::Put(record(&revision.to_string()));
    Done { key: key.into(), revision, created: revision, change }
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
fn a_reload_to_an_empty_state_does_not_claim_to_know_older_revisions() {
    let set = WorkingSet::new(&StoreOptions::default());
    set.load(7, 0, vec![stored("/a/7", 7)]);
    set.reload(1, Vec::new());
    assert_eq!((set.revision(), set.span()), (1, (1, 1)));
    drop(set.apply(vec![put("/a/2", 2)]));
    assert!(matches!(set.select_at("/a/", 1, None), ListAtRevision::Known(entries) if entries.is_empty()));
}
