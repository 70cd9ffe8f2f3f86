//! The data that the lock of the working set guards: the tables of live entries, the event history, and how far both reach.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::DecidedChange;
use crate::history::History;
use crate::key::Shards;
use crate::record::{Change, ChangeKind, StoreEvent, StoredEntry};
use crate::table::{EntryTable, StoredEntries};

#[derive(Debug)]
pub(super) struct WorkingState {
    pub(super) revision: u64,
    /// Live bytes, as the quota counts them.
    pub(super) live_bytes: u64,
    pub(super) division: Shards,
    /// Lists before this revision fail.
    pub(super) compacted: u64,
    /// The revision at which the content was loaded. Earlier changes are unknown here, also those of directories that are empty now.
    pub(super) loaded: u64,
    pub(super) shards: BTreeMap<Box<str>, KeyShard>,
    pub(super) history: History,
    /// Total bytes written since the store was loaded.
    pub(super) written: u64,
    /// Past revisions with their times, oldest first.
    pub(super) marks: VecDeque<HistoryPoint>,
}

/// A point in the history: a revision, the time at which it was the newest one, and the bytes that had been written by then. The oldest
/// history is discarded by age and by size between such points.
#[derive(Debug, Clone, Copy)]
pub(super) struct HistoryPoint {
    pub(super) time: Duration,
    pub(super) revision: u64,
    pub(super) written: u64,
}

#[derive(Debug, Default)]
pub(super) struct KeyShard {
    pub(super) table: EntryTable,
    /// The revision of the last change.
    pub(super) changed: u64,
}

impl WorkingState {
    /// The shard of a key, or of a scope within one shard.
    pub(super) fn shard(&self, key: &str) -> Option<&KeyShard> {
        self.shards.get(self.division.of(key))
    }

    /// Applies one change. `None` if it deletes a key that does not exist.
    pub(super) fn take(
        &mut self,
        change: Prepared,
        dropped: &mut Vec<Arc<StoreEvent>>,
    ) -> Option<Arc<StoreEvent>> {
        let (name, revision) = match &change {
            Prepared::Put(entry) => (self.division.of(&entry.key), entry.revision),
            Prepared::Delete { key, revision } => (self.division.of(key), *revision),
        };
        if !self.shards.contains_key(name) {
            self.shards.insert(name.into(), KeyShard::default());
        }
        let shard = self.shards.get_mut(name)?;
        shard.changed = revision;
        self.revision = self.revision.max(revision);
        let event = match change {
            Prepared::Put(entry) => {
                let previous = shard.table.insert(Arc::clone(&entry));
                let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Created };
                StoreEvent::new(kind, entry, previous)
            }
            Prepared::Delete { key, revision } => {
                let previous = shard.table.remove(&key)?;
                StoreEvent::new(ChangeKind::Deleted, Arc::new(previous.at_revision(revision)), Some(previous))
            }
        };
        let event = Arc::new(event);
        if event.kind != ChangeKind::Deleted {
            self.live_bytes = self.live_bytes.saturating_add(event.entry.charge());
        }
        let replaced = event.previous.as_ref().map_or(0, |previous| previous.charge());
        self.live_bytes = self.live_bytes.saturating_sub(replaced);
        self.written += event.entry.cost() as u64;
        self.history.push(Arc::clone(&event), dropped);
        Some(event)
    }

    pub(super) fn compact(&mut self, revision: u64, dropped: &mut Vec<Arc<StoreEvent>>) {
        self.compacted = self.compacted.max(revision);
        self.history.forget(revision, dropped);
    }

    pub(super) fn select(&self, scope: &str, after: Option<&str>) -> StoredEntries {
        if self.division.is_within(scope) {
            return self.shard(scope).map(|shard| shard.table.select(scope, after)).unwrap_or_default();
        }
        // A scope above the shards is rare; the keys of different shards may interleave.
        let mut all: Vec<Arc<StoredEntry>> = Vec::new();
        for shard in self.shards.values() {
            all.extend(shard.table.select(scope, after).iter().cloned());
        }
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        StoredEntries::from_vec(all)
    }

    /// The revision of the last change that may be in `scope`.
    pub(super) fn changed(&self, scope: &str) -> u64 {
        if self.division.is_within(scope) {
            return self.shard(scope).map_or(self.loaded, |shard| shard.changed);
        }
        self.shards.values().map(|shard| shard.changed).fold(self.loaded, u64::max)
    }
}

/// A change whose entry is already built.
pub(super) enum Prepared {
    Put(Arc<StoredEntry>),
    Delete { key: Arc<str>, revision: u64 },
}

impl Prepared {
    pub(super) fn new(done: DecidedChange) -> Prepared {
        let DecidedChange { key, revision, created, change } = done;
        match change {
            Change::Put(record) => Prepared::Put(Arc::new(StoredEntry::new(key, revision, created, &record))),
            Change::Delete => Prepared::Delete { key, revision },
        }
    }

    pub(super) fn revision(&self) -> u64 {
        match self {
            Prepared::Put(entry) => entry.revision,
            Prepared::Delete { revision, .. } => *revision,
        }
    }
}
