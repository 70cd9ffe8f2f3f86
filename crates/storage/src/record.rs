//! The data types of the store: requested writes ([`Write`], [`Record`]), stored entries ([`StoredEntry`]) and watch events
//! ([`StoreEvent`]).

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;

/// Overhead of an entry besides its bytes: the struct, the reference counts of its allocations and its slot in a table.
const FIXED: usize = 192;

/// The value that a caller stores under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The object, without its revision.
    pub body: Bytes,
    /// The byte offset in `body` at which the decimal digits of the revision are inserted.
    pub revision_at: u32,
    /// Bytes that the caller stores beside the body, such as the fields that selectors need.
    pub facts: Bytes,
}

impl Record {
    /// Size in bytes of body and facts.
    pub fn size(&self) -> usize {
        self.body.len().saturating_add(self.facts.len())
    }

    /// The bytes that the record takes of the quota under this key. They do not depend on the revision, so that writing an equal record
    /// again needs no space.
    pub(crate) fn charge(&self, key: &str) -> u64 {
        (FIXED + key.len()).saturating_add(self.size()) as u64
    }

    /// Reports whether the offset of the revision is within the body.
    pub(crate) fn is_valid(&self) -> bool {
        self.revision_at as usize <= self.body.len()
    }
}

/// One compare-and-swap of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub key: Arc<str>,
    /// The state that the key must be in.
    pub expect: Expect,
    pub change: Change,
    /// The part of the quota that it may use.
    pub priority: WritePriority,
    /// How long the record lives: the store deletes the key at, or soon after, the end of this time, unless the key is written again
    /// before. `None`: forever, even if the record that it replaces had a time to live.
    pub ttl: Option<Duration>,
}

/// A condition of a write on another key: that key must still have this revision when the backend executes the write
/// ([`Store::commit_fenced`](crate::Store::commit_fenced)). After a change of that key, every write with this fence that has not been
/// executed yet is refused, however late it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub key: Arc<str>,
    /// The revision of the last change of the key, which exists.
    pub revision: u64,
}

/// How much space a write may take when the store is nearly full. Deletions, and writes that do not make their record larger, are always
/// admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum WritePriority {
    /// Up to the quota; nothing while the alarm is raised.
    #[default]
    Ordinary,
    /// Up to half of the headroom above the quota: writes that free space or keep the cluster running.
    Essential,
    /// Up to all of the headroom above the quota: writes of the server itself.
    System,
}

/// The state that a key must be in for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The last change of the key has this revision.
    Revision(u64),
    /// Any state. A deletion still requires that the key exists.
    Any,
}

impl Expect {
    /// Decides whether `change` may happen to a key whose last change has the revision `current`; `None` if it does not exist.
    pub(crate) fn admits(self, change: &Change, current: Option<u64>) -> bool {
        let is_met = match self {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current == Some(revision),
            Expect::Any => true,
        };
        is_met && (*change != Change::Delete || current.is_some())
    }
}

/// The effect of a write on its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Create the key or replace its record.
    Put(Record),
    Delete,
}

/// Recognizes an entry of the working set, for caches of what was derived from it. Key and revision do not identify one: after the data of
/// the backend was replaced, such as by restoring etcd, a key may have the same revision and another content. Does not keep the body in
/// memory.
#[derive(Clone, Debug)]
pub struct EntryIdentity(Weak<StoredEntry>);

impl EntryIdentity {
    pub fn of(entry: &Arc<StoredEntry>) -> Self {
        EntryIdentity(Arc::downgrade(entry))
    }

    /// True for the same entry in memory; false for a copy, such as one that was read from the backend.
    pub fn is(&self, entry: &Arc<StoredEntry>) -> bool {
        // The weak reference keeps the address from being used for another entry.
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(entry))
    }
}

/// A record in the working set, ready to be served: its body contains the revision.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredEntry {
    pub key: Arc<str>,
    /// The revision of the last change.
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    /// The object, including its revision.
    pub body: Bytes,
    /// Bytes that the writer stored beside the body.
    pub facts: Bytes,
    revision_at: u32,
}

impl StoredEntry {
    /// Inserts the revision into the record, which must satisfy [`Record::is_valid`].
    pub(crate) fn new(key: Arc<str>, revision: u64, created: u64, record: &Record) -> StoredEntry {
        let at = record.body.len().min(record.revision_at as usize);
        StoredEntry::splice(key, revision, created, record.body.split_at(at), &record.facts)
    }

    /// A copy of this entry with another revision: the last state of a deleted object, at the revision of its deletion.
    #[must_use]
    pub fn at_revision(&self, revision: u64) -> StoredEntry {
        StoredEntry::splice(Arc::clone(&self.key), revision, self.created, self.halves(), &self.facts)
    }

    /// The record as written: the body without its revision, and the facts.
    pub fn record(&self) -> Record {
        let (before, after) = self.halves();
        Record {
            body: [before, after].concat().into(),
            revision_at: self.revision_at,
            facts: self.facts.clone(),
        }
    }

    /// Approximate bytes of memory that this entry uses.
    pub(crate) fn cost(&self) -> usize {
        FIXED + self.key.len() + self.body.len() + self.facts.len()
    }

    /// The bytes that the entry takes of the quota; see [`Record::charge`].
    pub(crate) fn charge(&self) -> u64 {
        let mut text = [0_u8; MAX_DIGITS];
        self.cost().saturating_sub(digits(self.revision, &mut text).len()) as u64
    }

    /// Builds an entry with body and facts in one allocation, because entries are many and small.
    fn splice(
        key: Arc<str>,
        revision: u64,
        created: u64,
        (before, after): (&[u8], &[u8]),
        facts: &[u8],
    ) -> StoredEntry {
        let mut text = [0_u8; MAX_DIGITS];
        let digits = digits(revision, &mut text);
        let end = before.len() + digits.len() + after.len();
        let mut buffer = Vec::with_capacity(end + facts.len());
        for part in [before, digits, after, facts] {
            buffer.extend_from_slice(part);
        }
        let mut body = Bytes::from(buffer);
        let facts = body.split_off(end);
        // INVARIANT: `before` begins a body that was split at a `u32` offset.
        let revision_at = u32::try_from(before.len()).unwrap_or(u32::MAX);
        StoredEntry { key, revision, created, body, facts, revision_at }
    }

    fn halves(&self) -> (&[u8], &[u8]) {
        let mut text = [0_u8; MAX_DIGITS];
        let digits = digits(self.revision, &mut text).len();
        let at = self.revision_at as usize;
        let before = self.body.get(..at).unwrap_or_default();
        let after = self.body.get(at + digits..).unwrap_or_default();
        (before, after)
    }
}

const MAX_DIGITS: usize = 20;

/// The decimal digits of `number`, written to the end of `text`.
fn digits(mut number: u64, text: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut used = 0;
    for byte in text.iter_mut().rev() {
        // A remainder modulo ten fits a byte.
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    text.get(MAX_DIGITS - used..).unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The key did not exist before.
    Created,
    /// The key existed before and has a new record.
    Modified,
    /// The key no longer exists.
    Deleted,
}

/// One change, shared by all its watchers.
#[derive(Debug)]
pub struct StoreEvent {
    pub kind: ChangeKind,
    /// The entry after the change; for a deletion its last state, with the revision of the deletion.
    pub entry: Arc<StoredEntry>,
    /// The entry before the change; `None` if the key was created.
    pub previous: Option<Arc<StoredEntry>>,
    pub revision: u64,
    /// Cache for the encoding of this event by the layer above, so that it is encoded once for all watchers.
    pub encoded: OnceLock<Bytes>,
}

impl StoreEvent {
    pub(crate) fn new(
        kind: ChangeKind,
        entry: Arc<StoredEntry>,
        previous: Option<Arc<StoredEntry>>,
    ) -> StoreEvent {
        let revision = entry.revision;
        StoreEvent { kind, entry, previous, revision, encoded: OnceLock::new() }
    }

    /// Approximate bytes of memory that this event uses: its entry, and the same again for its encoding. The previous entry is counted with
    /// its own event.
    pub(crate) fn cost(&self) -> usize {
        self.entry.cost().saturating_add(self.entry.body.len())
    }
}

#[cfg(test)]
mod tests;
