//! Encodes a change as the bytes of its row, and decodes it.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | CRC-32 of the revision and of all following bytes |
//! | 1 | 1 = put, 2 = delete, 3 = put with a deadline |
//! | 8 | the revision that created the key |
//! | 8 | the revision of the row that this one replaces, or 0 |
//! | 2 + n | the key |
//! | 8 | put with a deadline: when the record expires, in milliseconds since the Unix epoch |
//! | 4 | put: offset in the body at which the revision is inserted |
//! | 4 + n | put: the facts |
//! | n | put: the body |
//!
//! Numbers are little-endian. `crates/conformance/tests/security/broken_rows.rs` overwrites rows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::backend::{DecidedChange, Feed};
use crate::key;
use crate::record::{Change, Record};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const PUT_WITH_DEADLINE: u8 = 3;
const CHECKSUM: usize = 4;

/// A decoded row; `done.revision` is its key in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogRow {
    pub(super) done: DecidedChange,
    /// The revision of the row that this one replaces, or 0.
    pub(super) previous: u64,
    /// When the record expires, since the Unix epoch.
    pub(super) deadline: Option<Duration>,
}

impl LogRow {
    /// Sets the deadline of the key. It has no effect if a newer row replaces this one.
    pub(super) fn expire(&self, feed: &Feed) {
        if let Some(deadline) = self.deadline {
            feed.expire_at(&self.done.key, self.done.revision, deadline);
        }
    }
}

/// Encodes a row; a deadline is rounded to milliseconds. `None` if a part exceeds its length field, which the limits on records
/// exclude.
pub(super) fn encode(done: &DecidedChange, previous: u64, deadline: Option<Duration>) -> Option<Vec<u8>> {
    let record = match &done.change {
        Change::Put(record) => Some(record),
        Change::Delete => None,
    };
    let size = 64 + done.key.len() + record.map_or(0, Record::size);
    let mut row = Vec::with_capacity(size);
    row.extend_from_slice(&[0; CHECKSUM]);
    row.push(match (record, deadline) {
        (None, _) => DELETE,
        (Some(_), None) => PUT,
        (Some(_), Some(_)) => PUT_WITH_DEADLINE,
    });
    row.extend_from_slice(&done.created.to_le_bytes());
    row.extend_from_slice(&previous.to_le_bytes());
    row.extend_from_slice(&u16::try_from(done.key.len()).ok()?.to_le_bytes());
    row.extend_from_slice(done.key.as_bytes());
    if let Some(record) = record {
        if let Some(deadline) = deadline {
            row.extend_from_slice(&u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
        }
        row.extend_from_slice(&record.revision_at.to_le_bytes());
        row.extend_from_slice(&u32::try_from(record.facts.len()).ok()?.to_le_bytes());
        row.extend_from_slice(&record.facts);
        row.extend_from_slice(&record.body);
    }
    let (checksum, rest) = row.split_first_chunk_mut::<CHECKSUM>()?;
    *checksum = sum(done.revision, rest).to_le_bytes();
    Some(row)
}

/// Decodes a row. `None` if it was not written by [`encode`].
pub(super) fn decode(revision: u64, row: &[u8]) -> Option<LogRow> {
    let (checksum, rest) = row.split_first_chunk::<CHECKSUM>()?;
    if u32::from_le_bytes(*checksum) != sum(revision, rest) {
        return None;
    }
    let mut rest = RowReader(rest);
    let [kind] = rest.array()?;
    let created = u64::from_le_bytes(rest.array()?);
    let previous = u64::from_le_bytes(rest.array()?);
    let length = u16::from_le_bytes(rest.array()?);
    let key: Arc<str> = std::str::from_utf8(rest.take(length.into())?).ok()?.into();
    let deadline = match kind {
        PUT_WITH_DEADLINE => Some(Duration::from_millis(u64::from_le_bytes(rest.array()?))),
        _ => None,
    };
    let change = match kind {
        PUT | PUT_WITH_DEADLINE => {
            let revision_at = u32::from_le_bytes(rest.array()?);
            let length = u32::from_le_bytes(rest.array()?);
            let facts = Bytes::copy_from_slice(rest.take(usize::try_from(length).ok()?)?);
            let record = Record { body: Bytes::copy_from_slice(rest.0), revision_at, facts };
            if !record.is_valid() {
                return None;
            }
            Change::Put(record)
        }
        DELETE if rest.0.is_empty() => Change::Delete,
        _ => return None,
    };
    let done = DecidedChange { key, revision, created, change };
    (key::is_key(&done.key) && created <= revision && previous < revision).then_some(LogRow {
        done,
        previous,
        deadline,
    })
}

fn sum(revision: u64, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

struct RowReader<'a>(&'a [u8]);

impl<'a> RowReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
