//! The store of a stopped server, for offline snapshots and migrations.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{DecidedChange, StoredRecord};
use crate::error::OpenError;
use crate::record::Change;
use crate::snapshot::{SnapshotEntry, SnapshotHeader, SnapshotSummary, SnapshotWriter};

use super::disk::Medium;
use super::log::{Log, Snapshot};
use super::row::LogRow;
use super::{FORMAT, is_store, migrate};

/// The store in a data directory that no server uses, locked until this is dropped. Only keys and revisions are held in memory.
pub struct StoppedStore {
    format: u32,
    revision: u64,
    /// The revision of each live key.
    live: BTreeMap<Arc<str>, u64>,
    rows: Snapshot,
    medium: Medium,
    /// Open as long as `rows` is read.
    _log: Log,
}

/// A live record, and when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringRecord {
    pub stored: StoredRecord,
    /// Since the Unix epoch; `None` for a record without a time to live.
    pub expires: Option<Duration>,
}

impl LogRow {
    /// `None` if the row is a deletion.
    pub(super) fn into_entry(self) -> Option<ExpiringRecord> {
        let DecidedChange { key, revision, created, change: Change::Put(record) } = self.done else {
            return None;
        };
        Some(ExpiringRecord {
            stored: StoredRecord { key, revision, created, record },
            expires: self.deadline,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot write the snapshot: {0}")]
    Write(#[source] io::Error),
}

impl StoppedStore {
    /// Locks the directory and reads all rows once. A store of an older format is read as it is, without migrating it.
    pub fn open(directory: &Path) -> Result<StoppedStore, OpenError> {
        let missing = || {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no store in it");
            OpenError::DataDirectory { path: directory.to_owned(), source }
        };
        // Locking would create the directory.
        if !is_store(directory) {
            return Err(missing());
        }
        let mut medium = Medium::directory(directory);
        medium.lock()?;
        let path = medium.path();
        let (log, format) = Log::find(&medium)?.ok_or_else(missing)?;
        if format != FORMAT && format != migrate::FROM {
            return Err(log.unusable(path, format));
        }
        let rows = log.snapshot().map_err(|error| OpenError::Unavailable(error.to_string()))?;
        let (revision, live) = rows.live().map_err(|fault| fault.opening(&path))?;
        Ok(StoppedStore { format, revision, live, rows, medium, _log: log })
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn format(&self) -> u32 {
        self.format
    }

    /// Writes a snapshot. The caller syncs the file.
    pub fn save(
        &self,
        saved_at: u64,
        program: &str,
        out: impl io::Write,
    ) -> Result<SnapshotSummary, SaveError> {
        let header = SnapshotHeader {
            revision: self.revision,
            store_format: self.format,
            saved_at,
            program: program.to_owned(),
        };
        let mut writer = SnapshotWriter::new(header, out);
        for entry in self.entries() {
            let StoredRecord { key, created, revision, record } = entry?.stored;
            let entry = SnapshotEntry { key, created, revision, version: 0, record };
            writer.entry(&entry).map_err(SaveError::Write)?;
        }
        writer.finish().map_err(SaveError::Write)
    }

    /// The number of live keys.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Reads all live entries in key order, one at a time.
    pub fn entries(&self) -> impl Iterator<Item = Result<ExpiringRecord, OpenError>> {
        let rows = self.live.values().map(|revision| self.rows.row(*revision));
        rows.filter_map(|row| match row {
            Ok(row) => row.into_entry().map(Ok),
            Err(fault) => Some(Err(fault.opening(&self.medium.path()))),
        })
    }
}

impl fmt::Debug for StoppedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppedStore").field("revision", &self.revision).finish_non_exhaustive()
    }
}
