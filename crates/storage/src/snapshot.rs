//! The snapshot file: all live entries of a store at one revision, in key order, with checksums.
//!
//! | bytes | content |
//! |---|---|
//! | 16 | `portcullis snap` and a line feed |
//! | 4 | format version |
//! | … | frames: one header, one per entry, one end |
//!
//! A frame:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | CRC-32 of the frame's offset in the file (8 bytes) and of all following bytes of the frame |
//! | 1 | 1 = header, 2 = entry, 3 = end |
//! | 4 | length of the payload |
//! | n | the payload |
//!
//! The payloads:
//!
//! | frame | bytes | content |
//! |---|---|---|
//! | header | 8 | the revision of the store |
//! | | 4 | the format of the store ([`embedded::FORMAT`](crate::embedded::FORMAT)), which determines keys and records |
//! | | 8 | time of the save, in seconds since the epoch |
//! | | n | version of the program that wrote the file |
//! | entry | 8 | the revision that created the key |
//! | | 8 | the revision of the last change |
//! | | 8 | the number of changes since the creation; 0 if the backend does not count them |
//! | | 2 + n | the key |
//! | | 4 | offset in the body at which the revision is inserted |
//! | | 4 + n | the facts |
//! | | n | the body |
//! | end | 8 | the number of entries |
//! | | 32 | the digest: SHA-256 of the store's revision and format, and of each entry's payload after its length |
//!
//! Numbers are little-endian. The offset in each checksum detects frames that were moved, and a file without the end frame is truncated.
//! Two saves of the same state have the same digest.

mod live;
mod read;

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::record::{Record, StoredEntry};

pub use live::{LiveEntries, LiveSnapshot};
pub use read::{SnapshotError, SnapshotReader};

/// The version of the file format that this build reads and writes.
pub const SNAPSHOT_FORMAT: u32 = 1;

const MAGIC: &[u8; 16] = b"portcullis snap\n";
/// Length of a frame without its payload.
const FRAME: usize = 9;
const CHECKSUM: usize = 4;
const HEADER: u8 = 1;
const ENTRY: u8 = 2;
const END: u8 = 3;
/// Longest payload that is written or read: far above the limits of keys and records.
const MAX_PAYLOAD: usize = 64 << 20;
/// Bytes that are collected before they are written to a file.
const WRITE_SIZE: usize = 256 << 10;

/// Describes the state that a snapshot contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHeader {
    pub revision: u64,
    /// The format of the store: [`embedded::FORMAT`](crate::embedded::FORMAT), or an older one.
    pub store_format: u32,
    /// Time of the save, in seconds since the epoch.
    pub saved_at: u64,
    /// Version of the program that wrote the file.
    pub program: String,
}

/// A key as it was at the revision of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    pub key: Arc<str>,
    /// The revision that created the key.
    pub created: u64,
    /// The revision of the last change.
    pub revision: u64,
    /// Number of changes since the creation, as etcd counts them; 0 if the backend does not count.
    pub version: u64,
    pub record: Record,
}

impl From<&StoredEntry> for SnapshotEntry {
    fn from(entry: &StoredEntry) -> SnapshotEntry {
        SnapshotEntry {
            key: Arc::clone(&entry.key),
            created: entry.created,
            revision: entry.revision,
            version: 0,
            record: entry.record(),
        }
    }
}

/// The contents of a complete snapshot, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSummary {
    pub header: SnapshotHeader,
    pub entries: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    pub digest: SnapshotDigest,
}

/// SHA-256 over the revision, the store format and all entries of a snapshot. Displayed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SnapshotDigest(pub [u8; 32]);

impl fmt::Display for SnapshotDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for SnapshotDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Computes the digest and the number of entries, for writers and readers alike.
struct DigestBuilder {
    hasher: Sha256,
    entries: u64,
}

impl DigestBuilder {
    fn new(header: &SnapshotHeader) -> DigestBuilder {
        let mut hasher = Sha256::new();
        hasher.update(header.revision.to_le_bytes());
        hasher.update(header.store_format.to_le_bytes());
        DigestBuilder { hasher, entries: 0 }
    }

    fn add(&mut self, payload: &[u8]) {
        self.hasher.update((payload.len() as u64).to_le_bytes());
        self.hasher.update(payload);
        self.entries += 1;
    }

    fn finish(self) -> (u64, SnapshotDigest) {
        (self.entries, SnapshotDigest(self.hasher.finalize().into()))
    }
}

/// An entry that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotEntryError {
    #[error("the key `{key}` does not come after `{after}`")]
    Order { key: Arc<str>, after: Arc<str> },
    #[error("the record of `{0}` is too large for a snapshot")]
    TooLarge(Arc<str>),
}

/// Encodes a snapshot piece by piece. It does no I/O: each call appends to a buffer that the caller sends or writes.
pub struct SnapshotEncoder {
    header: SnapshotHeader,
    digest: DigestBuilder,
    /// Length of the file so far.
    offset: u64,
    last: Option<Arc<str>>,
}

impl fmt::Debug for SnapshotEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotEncoder").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl SnapshotEncoder {
    pub fn new(header: SnapshotHeader, out: &mut Vec<u8>) -> SnapshotEncoder {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&SNAPSHOT_FORMAT.to_le_bytes());
        let mut payload = Vec::new();
        payload.extend_from_slice(&header.revision.to_le_bytes());
        payload.extend_from_slice(&header.store_format.to_le_bytes());
        payload.extend_from_slice(&header.saved_at.to_le_bytes());
        payload.extend_from_slice(header.program.as_bytes());
        let digest = DigestBuilder::new(&header);
        let mut encoder = SnapshotEncoder { header, digest, offset: preamble(), last: None };
        encoder.frame(HEADER, &payload, out);
        encoder
    }

    /// Appends an entry. Entries come in key order, and each key once.
    pub fn entry(&mut self, entry: &SnapshotEntry, out: &mut Vec<u8>) -> Result<(), SnapshotEntryError> {
        if let Some(after) = self.last.as_ref().filter(|last| *last >= &entry.key) {
            return Err(SnapshotEntryError::Order { key: Arc::clone(&entry.key), after: Arc::clone(after) });
        }
        let too_large = || SnapshotEntryError::TooLarge(Arc::clone(&entry.key));
        let record = &entry.record;
        let mut payload = Vec::with_capacity(64 + entry.key.len() + record.size());
        payload.extend_from_slice(&entry.created.to_le_bytes());
        payload.extend_from_slice(&entry.revision.to_le_bytes());
        payload.extend_from_slice(&entry.version.to_le_bytes());
        let length = u16::try_from(entry.key.len()).map_err(|_| too_large())?;
        payload.extend_from_slice(&length.to_le_bytes());
        payload.extend_from_slice(entry.key.as_bytes());
        payload.extend_from_slice(&record.revision_at.to_le_bytes());
        let length = u32::try_from(record.facts.len()).map_err(|_| too_large())?;
        payload.extend_from_slice(&length.to_le_bytes());
        payload.extend_from_slice(&record.facts);
        payload.extend_from_slice(&record.body);
        if payload.len() > MAX_PAYLOAD {
            return Err(too_large());
        }
        self.digest.add(&payload);
        self.frame(ENTRY, &payload, out);
        self.last = Some(Arc::clone(&entry.key));
        Ok(())
    }

    /// Ends the snapshot. Without this, the file is read as truncated.
    pub fn finish(mut self, out: &mut Vec<u8>) -> SnapshotSummary {
        let digest = std::mem::replace(&mut self.digest, DigestBuilder::new(&self.header));
        let (entries, digest) = digest.finish();
        let mut payload = entries.to_le_bytes().to_vec();
        payload.extend_from_slice(&digest.0);
        self.frame(END, &payload, out);
        SnapshotSummary { header: self.header, entries, bytes: self.offset, digest }
    }

    fn frame(&mut self, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        // INVARIANT: `entry` limits payloads to MAX_PAYLOAD, and the other two are short.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&checksum(self.offset, kind, length, payload).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(payload);
        self.offset += (FRAME + payload.len()) as u64;
    }
}

/// Length of the file before its first frame.
fn preamble() -> u64 {
    (MAGIC.len() + size_of_val(&SNAPSHOT_FORMAT)) as u64
}

fn checksum(offset: u64, kind: u8, length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    hasher.update(&[kind]);
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Writes a snapshot to a file or another sink.
pub struct SnapshotWriter<W> {
    encoder: SnapshotEncoder,
    buffer: Vec<u8>,
    out: W,
}

impl<W> fmt::Debug for SnapshotWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotWriter").field(&self.encoder).finish()
    }
}

impl<W: Write> SnapshotWriter<W> {
    pub fn new(header: SnapshotHeader, out: W) -> SnapshotWriter<W> {
        let mut buffer = Vec::with_capacity(2 * WRITE_SIZE);
        SnapshotWriter { encoder: SnapshotEncoder::new(header, &mut buffer), buffer, out }
    }

    /// Writes an entry. Entries come in key order, and each key once.
    pub fn entry(&mut self, entry: &SnapshotEntry) -> io::Result<()> {
        self.encoder.entry(entry, &mut self.buffer).map_err(io::Error::other)?;
        if self.buffer.len() >= WRITE_SIZE {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes the end of the snapshot. The caller syncs the file.
    pub fn finish(mut self) -> io::Result<SnapshotSummary> {
        let summary = self.encoder.finish(&mut self.buffer);
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        Ok(summary)
    }
}

#[cfg(test)]
mod tests;
