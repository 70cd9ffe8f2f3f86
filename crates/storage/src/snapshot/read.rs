//! Reads and verifies a snapshot.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::key;
use crate::record::Record;

use super::{
    CHECKSUM, DigestBuilder, END, ENTRY, FRAME, HEADER, MAGIC, MAX_PAYLOAD, SNAPSHOT_FORMAT, SnapshotDigest,
    SnapshotEntry, SnapshotHeader, SnapshotSummary, checksum, preamble,
};

/// Errors of reading a snapshot. Offsets count bytes from the beginning of the file.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("cannot read the snapshot `{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` is not a Portcullis snapshot: it does not begin like one", .0.display())]
    NotASnapshot(PathBuf),
    #[error(
        "`{}` has snapshot format {found}, and this build reads format {SNAPSHOT_FORMAT} only; use the version of Portcullis that saved it",
        path.display()
    )]
    Format {
        path: PathBuf,
        /// The format recorded in the file.
        found: u32,
    },
    #[error("`{}` is truncated: it ends at byte {offset}, within the {part}; use another copy of the snapshot", path.display())]
    Truncated {
        path: PathBuf,
        /// Length of the file in bytes.
        offset: u64,
        /// The part that is incomplete.
        part: &'static str,
    },
    #[error("`{}` is damaged at byte {offset}: {detail}; use another copy of the snapshot", path.display())]
    Damaged {
        path: PathBuf,
        /// Offset of the damaged frame in the file, in bytes.
        offset: u64,
        detail: String,
    },
}

/// Reads a snapshot from its beginning to its end, and verifies every byte. The content is proven only when [`SnapshotReader::next_entry`]
/// has returned `None`: then [`SnapshotReader::summary`] is known.
#[derive(Debug)]
pub struct SnapshotReader<R> {
    frames: SnapshotFrames<R>,
    header: SnapshotHeader,
    state: ReadState,
    last: Option<Arc<str>>,
}

enum ReadState {
    Entries(Box<DigestBuilder>),
    Complete(SnapshotSummary),
    /// An error was returned.
    Failed,
}

impl std::fmt::Debug for ReadState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ReadState::Entries(_) => "Entries",
            ReadState::Complete(_) => "Complete",
            ReadState::Failed => "Failed",
        })
    }
}

impl SnapshotReader<BufReader<File>> {
    /// Opens a snapshot file and reads its header.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let failed = |source| SnapshotError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        SnapshotReader::new(BufReader::with_capacity(1 << 20, file), path)
    }

    /// Verifies a whole snapshot file.
    pub fn verify(path: &Path) -> Result<SnapshotSummary, SnapshotError> {
        let mut reader = SnapshotReader::open(path)?;
        while reader.next_entry()?.is_some() {}
        reader.summary().cloned().ok_or_else(|| SnapshotError::NotASnapshot(path.to_owned()))
    }
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the header. `path` is used in errors.
    pub fn new(source: R, path: &Path) -> Result<SnapshotReader<R>, SnapshotError> {
        let mut frames = SnapshotFrames { source, path: path.to_owned(), offset: 0 };
        let mut magic = [0; MAGIC.len()];
        if frames.fill(&mut magic)? < magic.len() || magic != *MAGIC {
            return Err(SnapshotError::NotASnapshot(path.to_owned()));
        }
        let mut format = [0; size_of::<u32>()];
        if frames.fill(&mut format)? < format.len() {
            return Err(frames.truncated("header"));
        }
        let found = u32::from_le_bytes(format);
        if found != SNAPSHOT_FORMAT {
            return Err(SnapshotError::Format { path: path.to_owned(), found });
        }
        debug_assert_eq!(frames.offset, preamble());
        let Frame { offset, kind, payload } = frames.next("header")?;
        let header = if kind == HEADER { decode_header(&payload) } else { None };
        let header = header
            .ok_or_else(|| frames.damaged(offset, "this is not the header of a snapshot".to_owned()))?;
        let state = ReadState::Entries(Box::new(DigestBuilder::new(&header)));
        Ok(SnapshotReader { frames, header, state, last: None })
    }

    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The verified content; `None` before the end was read.
    pub fn summary(&self) -> Option<&SnapshotSummary> {
        match &self.state {
            ReadState::Complete(summary) => Some(summary),
            ReadState::Entries(_) | ReadState::Failed => None,
        }
    }

    /// The next entry; `None` at the verified end. After an error there are no more entries.
    pub fn next_entry(&mut self) -> Result<Option<SnapshotEntry>, SnapshotError> {
        let mut digest = match std::mem::replace(&mut self.state, ReadState::Failed) {
            ReadState::Entries(digest) => digest,
            ended => {
                self.state = ended;
                return Ok(None);
            }
        };
        let Frame { offset, kind, payload } = self.frames.next("entries")?;
        match kind {
            ENTRY => {
                let entry = self.entry(&payload).map_err(|detail| self.frames.damaged(offset, detail))?;
                digest.add(&payload);
                self.last = Some(Arc::clone(&entry.key));
                self.state = ReadState::Entries(digest);
                Ok(Some(entry))
            }
            END => {
                let (entries, digest) = digest.finish();
                let known = decode_end(&payload);
                if known != Some((entries, digest)) {
                    let detail = match known {
                        Some((known, _)) if known != entries => {
                            format!("there are {entries} entries, and {known} were saved")
                        }
                        _ => "the digest of the entries does not match".to_owned(),
                    };
                    return Err(self.frames.damaged(offset, detail));
                }
                let bytes = self.frames.offset;
                if self.frames.fill(&mut [0])? > 0 {
                    return Err(self.frames.damaged(bytes, "there are bytes after the end".to_owned()));
                }
                let header = self.header.clone();
                self.state = ReadState::Complete(SnapshotSummary { header, entries, bytes, digest });
                Ok(None)
            }
            _ => Err(self.frames.damaged(offset, format!("a frame has the unknown type {kind}"))),
        }
    }

    /// Decodes an entry and checks it against the header and the entry before it.
    fn entry(&self, payload: &[u8]) -> Result<SnapshotEntry, String> {
        let entry = decode_entry(payload).ok_or("an entry cannot be decoded")?;
        let key = &entry.key;
        if !key::is_key(key) || !entry.record.is_valid() {
            return Err(format!("the entry `{key}` is not valid"));
        }
        if entry.created > entry.revision || entry.revision > self.header.revision {
            return Err(format!("the revisions of the entry `{key}` are not valid"));
        }
        match &self.last {
            Some(last) if last >= key => Err(format!("the entry `{key}` comes after `{last}`")),
            _ => Ok(entry),
        }
    }
}

/// Reads frames and verifies their checksums.
#[derive(Debug)]
struct SnapshotFrames<R> {
    source: R,
    path: PathBuf,
    /// Number of bytes read so far.
    offset: u64,
}

struct Frame {
    /// Offset of the frame in the file, in bytes.
    offset: u64,
    kind: u8,
    payload: Vec<u8>,
}

impl<R: Read> SnapshotFrames<R> {
    /// Reads the next frame. `part` names it in errors.
    fn next(&mut self, part: &'static str) -> Result<Frame, SnapshotError> {
        let offset = self.offset;
        let mut head = [0; FRAME];
        if self.fill(&mut head)? < FRAME {
            return Err(self.truncated(part));
        }
        let [c0, c1, c2, c3, kind, l0, l1, l2, l3] = head;
        let expected = u32::from_le_bytes([c0, c1, c2, c3]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= MAX_PAYLOAD);
        let Some(bytes) = bytes else {
            return Err(self.damaged(offset, format!("a frame has the impossible length {length}")));
        };
        let mut payload = Vec::new();
        // The buffer grows with what arrives: a wrong length must not allocate more than the file has.
        let read = (&mut self.source).take(bytes as u64).read_to_end(&mut payload);
        let read = read.map_err(|source| SnapshotError::Io { path: self.path.clone(), source })?;
        self.offset += read as u64;
        if read < bytes {
            return Err(self.truncated(part));
        }
        if checksum(offset, kind, length, &payload) != expected {
            return Err(self.damaged(offset, "a checksum does not match".to_owned()));
        }
        Ok(Frame { offset, kind, payload })
    }

    /// Fills the buffer, or as much of it as the source has. Returns the number of bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, SnapshotError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(SnapshotError::Io { path: self.path.clone(), source }),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    fn truncated(&self, part: &'static str) -> SnapshotError {
        SnapshotError::Truncated { path: self.path.clone(), offset: self.offset, part }
    }

    fn damaged(&self, offset: u64, detail: String) -> SnapshotError {
        SnapshotError::Damaged { path: self.path.clone(), offset, detail }
    }
}

fn decode_header(mut payload: &[u8]) -> Option<SnapshotHeader> {
    let revision = u64::from_le_bytes(array(&mut payload)?);
    let store_format = u32::from_le_bytes(array(&mut payload)?);
    let saved_at = u64::from_le_bytes(array(&mut payload)?);
    let program = std::str::from_utf8(payload).ok()?.to_owned();
    Some(SnapshotHeader { revision, store_format, saved_at, program })
}

fn decode_entry(mut payload: &[u8]) -> Option<SnapshotEntry> {
    let created = u64::from_le_bytes(array(&mut payload)?);
    let revision = u64::from_le_bytes(array(&mut payload)?);
    let version = u64::from_le_bytes(array(&mut payload)?);
    let length = u16::from_le_bytes(array(&mut payload)?);
    let key = std::str::from_utf8(part(&mut payload, length.into())?).ok()?.into();
    let revision_at = u32::from_le_bytes(array(&mut payload)?);
    let length = u32::from_le_bytes(array(&mut payload)?);
    let facts = Bytes::copy_from_slice(part(&mut payload, usize::try_from(length).ok()?)?);
    let record = Record { body: Bytes::copy_from_slice(payload), revision_at, facts };
    Some(SnapshotEntry { key, created, revision, version, record })
}

fn decode_end(mut payload: &[u8]) -> Option<(u64, SnapshotDigest)> {
    let entries = u64::from_le_bytes(array(&mut payload)?);
    let digest = SnapshotDigest(array(&mut payload)?);
    payload.is_empty().then_some((entries, digest))
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*array)
}

fn part<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

const _: () = assert!(FRAME == CHECKSUM + 1 + size_of::<u32>());
