//! Entries in key order, in chunks that a reader can hold on to while the writer continues.
//!
//! A list takes references to the chunks it needs (a handful of reference counts for thousands of entries) and walks them
//! without holding a lock. A write changes one chunk, and copies it first only if a reader still holds it.

use std::sync::Arc;

use crate::StoredEntry;

/// A chunk is split when it exceeds this many entries. Copying one of this length takes about a microsecond.
const CHUNK: usize = 256;
/// Adjacent chunks are merged when they have at most this many entries together.
const JOIN: usize = 128;

type Chunk = Arc<Vec<Arc<StoredEntry>>>;

/// An ordered map of entries by their key.
#[derive(Debug, Default)]
pub(crate) struct EntryTable {
    /// INVARIANT: no chunk is empty; keys ascend strictly within and across chunks.
    chunks: Vec<Chunk>,
    /// INVARIANT: those of all entries in `chunks`.
    totals: ScopeTotals,
}

/// The number of entries in a scope, and the size of their bodies together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScopeTotals {
    pub count: u64,
    /// Bytes of the bodies as they are served, including their revisions.
    pub body_bytes: u64,
}

impl ScopeTotals {
    pub(crate) fn of(entries: &StoredEntries) -> ScopeTotals {
        let mut totals = ScopeTotals::default();
        for entry in entries {
            totals.add(entry);
        }
        totals
    }

    fn add(&mut self, entry: &StoredEntry) {
        self.count = self.count.saturating_add(1);
        self.body_bytes = self.body_bytes.saturating_add(entry.body.len() as u64);
    }

    fn remove(&mut self, entry: &StoredEntry) {
        self.count = self.count.saturating_sub(1);
        self.body_bytes = self.body_bytes.saturating_sub(entry.body.len() as u64);
    }

    #[must_use]
    pub(crate) fn plus(self, other: ScopeTotals) -> ScopeTotals {
        ScopeTotals {
            count: self.count.saturating_add(other.count),
            body_bytes: self.body_bytes.saturating_add(other.body_bytes),
        }
    }
}

impl EntryTable {
    /// Builds a table from entries in strictly ascending key order.
    pub(crate) fn from_sorted(entries: Vec<Arc<StoredEntry>>) -> EntryTable {
        let mut chunks = Vec::with_capacity(entries.len().div_ceil(CHUNK));
        let mut totals = ScopeTotals::default();
        for entry in &entries {
            totals.add(entry);
        }
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            chunks.push(Arc::new(entries.by_ref().take(CHUNK).collect()));
        }
        EntryTable { chunks, totals }
    }

    /// The totals of all entries, without a walk over them.
    pub(crate) fn totals(&self) -> ScopeTotals {
        self.totals
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<StoredEntry>> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        chunk.get(at)
    }

    /// Inserts an entry and returns the one it replaced.
    pub(crate) fn insert(&mut self, entry: Arc<StoredEntry>) -> Option<Arc<StoredEntry>> {
        self.totals.add(&entry);
        let replaced = self.put(entry);
        if let Some(replaced) = &replaced {
            self.totals.remove(replaced);
        }
        replaced
    }

    fn put(&mut self, entry: Arc<StoredEntry>) -> Option<Arc<StoredEntry>> {
        let chunk_index = self.chunk_of(&entry.key);
        let Some(chunk) = self.chunks.get_mut(chunk_index) else {
            self.chunks.push(Arc::new(vec![entry]));
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|other| other.key.cmp(&entry.key)) {
            Ok(at) => chunk.get_mut(at).map(|old| std::mem::replace(old, entry)),
            Err(at) => {
                chunk.insert(at, entry);
                if chunk.len() > CHUNK {
                    // Appending in key order is common: then the left chunk stays full.
                    let keep = if at + 1 == chunk.len() { CHUNK } else { CHUNK / 2 };
                    let right = chunk.split_off(keep);
                    self.chunks.insert(chunk_index + 1, Arc::new(right));
                }
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<StoredEntry>> {
        let chunk_index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(chunk_index)?;
        let at = chunk.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        let chunk = Arc::make_mut(chunk);
        let removed = chunk.remove(at);
        self.totals.remove(&removed);
        if chunk.is_empty() {
            self.chunks.remove(chunk_index);
        } else {
            self.join(chunk_index);
        }
        Some(removed)
    }

    /// Every entry that `scope` covers and whose key comes after `after`.
    pub(crate) fn select(&self, scope: &str, after: Option<&str>) -> StoredEntries {
        if !scope.ends_with('/') {
            let found = self.get(scope).filter(|entry| after.is_none_or(|after| *entry.key > *after));
            return found.map(|entry| StoredEntries::from_vec(vec![Arc::clone(entry)])).unwrap_or_default();
        }
        let is_before = |entry: &Arc<StoredEntry>| match after {
            Some(after) if after >= scope => *entry.key <= *after,
            _ => *entry.key < *scope,
        };
        let is_within = |entry: &Arc<StoredEntry>| is_before(entry) || entry.key.starts_with(scope);
        let mut selected = StoredEntries::default();
        let first = self.chunks.partition_point(|chunk| chunk.last().is_some_and(is_before));
        for chunk in self.chunks.iter().skip(first) {
            // Most chunks are entirely within the scope.
            let start =
                if chunk.first().is_some_and(is_before) { chunk.partition_point(is_before) } else { 0 };
            let is_whole = chunk.last().is_some_and(is_within);
            let end = if is_whole { chunk.len() } else { chunk.partition_point(is_within) };
            selected.push(chunk, start, end);
            if end < chunk.len() {
                break;
            }
        }
        selected
    }

    /// Index of the chunk that holds `key`, or where it would be inserted.
    fn chunk_of(&self, key: &str) -> usize {
        let after =
            self.chunks.partition_point(|chunk| chunk.first().is_some_and(|first| *first.key <= *key));
        after.saturating_sub(1)
    }

    /// Merges the chunk at `chunk_index` with its right neighbor if both are short.
    fn join(&mut self, chunk_index: usize) {
        let length = |chunk_index: usize| self.chunks.get(chunk_index).map(|chunk| chunk.len());
        let (Some(left), Some(right)) = (length(chunk_index), length(chunk_index + 1)) else { return };
        if left + right <= JOIN {
            let right = self.chunks.remove(chunk_index + 1);
            if let Some(left) = self.chunks.get_mut(chunk_index) {
                Arc::make_mut(left).extend(right.iter().cloned());
            }
        }
    }
}

/// Entries in key order, as of one revision.
#[derive(Debug, Clone, Default)]
pub struct StoredEntries {
    parts: Vec<ChunkRange>,
    len: usize,
}

/// A chunk and the selected range of its entries.
#[derive(Debug, Clone)]
struct ChunkRange {
    chunk: Chunk,
    start: usize,
    end: usize,
}

impl ChunkRange {
    fn slice(&self) -> &[Arc<StoredEntry>] {
        self.chunk.get(self.start..self.end).unwrap_or_default()
    }
}

impl StoredEntries {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates in key order.
    pub fn iter(&self) -> StoredEntriesIter<'_> {
        let mut parts = self.parts.iter();
        let current = parts.next().map(ChunkRange::slice).unwrap_or_default().iter();
        StoredEntriesIter { parts, current, left: self.len }
    }

    pub fn last(&self) -> Option<&Arc<StoredEntry>> {
        self.parts.last()?.slice().last()
    }

    /// Iterates in key order and releases each chunk after its last entry.
    pub(crate) fn into_entries(self) -> OwnedEntries {
        OwnedEntries { parts: self.parts.into_iter(), current: None }
    }

    pub(crate) fn from_vec(entries: Vec<Arc<StoredEntry>>) -> StoredEntries {
        let mut all = StoredEntries::default();
        let len = entries.len();
        all.push(&Arc::new(entries), 0, len);
        all
    }

    /// Truncates to the first `limit` entries and returns how many were removed.
    pub(crate) fn truncate(&mut self, limit: usize) -> usize {
        let cut = self.len.saturating_sub(limit);
        let mut surplus = cut;
        while let Some(last) = self.parts.last_mut() {
            let length = last.end - last.start;
            if surplus < length {
                last.end -= surplus;
                break;
            }
            surplus -= length;
            self.parts.pop();
        }
        self.len -= cut;
        cut
    }

    fn push(&mut self, chunk: &Chunk, start: usize, end: usize) {
        if start < end {
            self.parts.push(ChunkRange { chunk: Arc::clone(chunk), start, end });
            self.len += end - start;
        }
    }
}

impl<'a> IntoIterator for &'a StoredEntries {
    type Item = &'a Arc<StoredEntry>;
    type IntoIter = StoredEntriesIter<'a>;

    fn into_iter(self) -> StoredEntriesIter<'a> {
        self.iter()
    }
}

/// Iterates over [`StoredEntries`] in key order.
#[derive(Debug, Clone)]
pub struct StoredEntriesIter<'a> {
    parts: std::slice::Iter<'a, ChunkRange>,
    current: std::slice::Iter<'a, Arc<StoredEntry>>,
    left: usize,
}

impl<'a> Iterator for StoredEntriesIter<'a> {
    type Item = &'a Arc<StoredEntry>;

    fn next(&mut self) -> Option<&'a Arc<StoredEntry>> {
        loop {
            if let Some(entry) = self.current.next() {
                self.left = self.left.saturating_sub(1);
                return Some(entry);
            }
            self.current = self.parts.next()?.slice().iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StoredEntriesIter<'_> {}

/// Iterates over [`StoredEntries`] that it owns.
#[derive(Debug)]
pub(crate) struct OwnedEntries {
    parts: std::vec::IntoIter<ChunkRange>,
    /// The remaining entries of the current chunk.
    current: Option<ChunkRange>,
}

impl Iterator for OwnedEntries {
    type Item = Arc<StoredEntry>;

    fn next(&mut self) -> Option<Arc<StoredEntry>> {
        loop {
            if let Some(part) = &mut self.current
                && let Some(entry) = part.slice().first().cloned()
            {
                part.start += 1;
                return Some(entry);
            }
            self.current = Some(self.parts.next()?);
        }
    }
}

#[cfg(test)]
mod tests;
