//! The live entries of a running store at one revision.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::record::StoredEntry;
use crate::table::{OwnedEntries, StoredEntries};

/// All live entries at one revision, held by reference while the store continues to change. Taking it costs one reference per 256 entries.
#[derive(Debug)]
pub struct LiveSnapshot {
    pub revision: u64,
    tables: Vec<StoredEntries>,
}

impl LiveSnapshot {
    pub(crate) fn new(tables: Vec<StoredEntries>, revision: u64) -> LiveSnapshot {
        LiveSnapshot { revision, tables }
    }

    pub fn len(&self) -> usize {
        self.tables.iter().map(StoredEntries::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl IntoIterator for LiveSnapshot {
    type Item = Arc<StoredEntry>;
    type IntoIter = LiveEntries;

    fn into_iter(self) -> LiveEntries {
        let mut tables: Vec<OwnedEntries> =
            self.tables.into_iter().map(StoredEntries::into_entries).collect();
        let mut next = BinaryHeap::with_capacity(tables.len());
        for (index, table) in tables.iter_mut().enumerate() {
            next.extend(table.next().map(|entry| Reverse(NextEntry { entry, table: index })));
        }
        LiveEntries { tables, next }
    }
}

/// Iterates over a [`LiveSnapshot`] in key order. What it has returned is no longer held.
#[derive(Debug)]
pub struct LiveEntries {
    tables: Vec<OwnedEntries>,
    /// The next entry of each table that has one: keys of different tables may interleave.
    next: BinaryHeap<Reverse<NextEntry>>,
}

impl Iterator for LiveEntries {
    type Item = Arc<StoredEntry>;

    fn next(&mut self) -> Option<Arc<StoredEntry>> {
        let mut first = self.next.peek_mut()?;
        let Reverse(NextEntry { entry, table }) = &mut *first;
        match self.tables.get_mut(*table).and_then(OwnedEntries::next) {
            Some(following) => Some(std::mem::replace(entry, following)),
            None => Some(std::collections::binary_heap::PeekMut::pop(first).0.entry),
        }
    }
}

/// The next entry of a table, ordered by its key.
#[derive(Debug)]
struct NextEntry {
    entry: Arc<StoredEntry>,
    table: usize,
}

impl PartialEq for NextEntry {
    fn eq(&self, other: &NextEntry) -> bool {
        self.entry.key == other.entry.key
    }
}

impl Eq for NextEntry {}

impl PartialOrd for NextEntry {
    fn partial_cmp(&self, other: &NextEntry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NextEntry {
    fn cmp(&self, other: &NextEntry) -> std::cmp::Ordering {
        self.entry.key.cmp(&other.entry.key)
    }
}
