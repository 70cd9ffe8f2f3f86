//! What is written ([`Write`], [`Record`]), what is kept ([`Entry`]) and what watchers are told ([`Event`]).

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// What an entry costs besides its bytes: the struct, the counts of its allocations and its place in a table.
const FIXED: usize = 192;

/// What a caller stores under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The object, without its revision.
    pub body: Bytes,
    /// The byte offset in `body` at which the decimal digits of the revision are spliced in.
    pub revision_at: u32,
    /// Whatever the caller wants beside the body, such as the facts that selectors need.
    pub facts: Bytes,
}

impl Record {
    /// The number of bytes this record asks the store to keep.
    pub fn size(&self) -> usize {
        self.body.len().saturating_add(self.facts.len())
    }

    /// What the record takes of the quota under this key. It does not depend on the revision, so that writing the same record
    /// again needs no room.
    pub(crate) fn charge(&self, key: &str) -> u64 {
        (FIXED + key.len()).saturating_add(self.size()) as u64
    }

    /// Whether the place for the revision is in the body.
    pub(crate) fn is_valid(&self) -> bool {
        self.revision_at as usize <= self.body.len()
    }
}

/// One compare-and-swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key to change.
    pub key: Arc<str>,
    /// The state it must be in.
    pub expect: Expect,
    /// The change.
    pub change: Change,
    /// What of the quota it may use.
    pub priority: WritePriority,
}

/// How much of the quota a write may use. Deletions, and writes that do not make their record larger, need no room and always
/// pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum WritePriority {
    /// The quota, unless the alarm is raised.
    #[default]
    Ordinary,
    /// Half of the headroom above the quota, too: writes without which space cannot be freed, or the cluster not run.
    Essential,
    /// All of the headroom: writes of the server itself.
    System,
}

/// The state in which a key must be for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It does not exist.
    Absent,
    /// Its last change has this revision.
    Revision(u64),
    /// Any state. (A deletion still needs something to delete.)
    Any,
}

/// What a write does to its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Create it or replace its record.
    Put(Record),
    /// Delete it.
    Delete,
}

/// A record in the working set, ready to be handed out: the revision is part of the body.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// The revision of the last change.
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    /// The object, with its revision.
    pub body: Bytes,
    /// What the writer put beside the body.
    pub facts: Bytes,
    revision_at: u32,
}

impl Entry {
    /// Splices the revision into the record, which has been checked by [`Record::is_valid`].
    pub(crate) fn new(key: Arc<str>, revision: u64, created: u64, record: &Record) -> Entry {
        let at = record.body.len().min(record.revision_at as usize);
        Entry::splice(key, revision, created, record.body.split_at(at), &record.facts)
    }

    /// This entry carrying another revision: the last state of something that is gone, as of the change that ended it.
    #[must_use]
    pub fn at_revision(&self, revision: u64) -> Entry {
        Entry::splice(Arc::clone(&self.key), revision, self.created, self.halves(), &self.facts)
    }

    /// What the caller wrote: the body without its revision, and the facts.
    pub fn record(&self) -> Record {
        let (before, after) = self.halves();
        Record {
            body: [before, after].concat().into(),
            revision_at: self.revision_at,
            facts: self.facts.clone(),
        }
    }

    /// The number of bytes that keeping this entry costs, roughly.
    pub(crate) fn cost(&self) -> usize {
        FIXED + self.key.len() + self.body.len() + self.facts.len()
    }

    /// What the entry takes of the quota; see [`Record::charge`].
    pub(crate) fn charge(&self) -> u64 {
        let mut text = [0_u8; MAX_DIGITS];
        self.cost().saturating_sub(digits(self.revision, &mut text).len()) as u64
    }

    /// One allocation holds body and facts: entries are many and small.
    fn splice(
        key: Arc<str>,
        revision: u64,
        created: u64,
        (before, after): (&[u8], &[u8]),
        facts: &[u8],
    ) -> Entry {
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
        Entry { key, revision, created, body, facts, revision_at }
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
    for place in text.iter_mut().rev() {
        // A remainder of ten fits a byte.
        *place = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    text.get(MAX_DIGITS - used..).unwrap_or_default()
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It did not exist before.
    Created,
    /// It existed before and has a new record.
    Modified,
    /// It no longer exists.
    Deleted,
}

/// One change, shared by everyone who watches it.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The entry after the change; for a deletion its last state, carrying the revision of the deletion.
    pub entry: Arc<Entry>,
    /// The entry before the change; `None` if it was created.
    pub previous: Option<Arc<Entry>>,
    /// The revision of the change.
    pub revision: u64,
    /// Where the layer above keeps its encoding of this event, so that it is made once for all watchers.
    pub encoded: OnceLock<Bytes>,
}

impl Event {
    pub(crate) fn new(kind: Kind, entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Event {
        let revision = entry.revision;
        Event { kind, entry, previous, revision, encoded: OnceLock::new() }
    }

    /// The number of bytes that keeping this event costs, roughly: its entry, and as much again for its encoding.
    /// The previous entry is counted with the event that made it.
    pub(crate) fn cost(&self) -> usize {
        self.entry.cost().saturating_add(self.entry.body.len())
    }
}

#[cfg(test)]
mod tests;
