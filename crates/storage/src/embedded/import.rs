//! Fills a new data directory with the records of another store, in steps that survive the end of the process.
//!
//! The file has a format of its own and a [`MigrationMarker`] until it is complete, so that no server uses it before. Each batch of
//! records is one transaction; a process that resumes finds which records are there.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{DecidedChange, StoredRecord};
use crate::error::OpenError;
use crate::migration_marker::MigrationMarker;
use crate::record::Change;

use super::directory;
use super::disk::Medium;
use super::fault::Fault;
use super::log::{Changes, INCOMPLETE, Log};
use super::row;
use super::stopped::ExpiringRecord;

/// Bytes written in one transaction.
const BATCH_BYTES: usize = 8 << 20;
/// Records written in one transaction.
const BATCH_RECORDS: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the data directory `{}` is not empty; name a new one: a migration never overwrites a store", .0.display())]
    NotEmpty(PathBuf),
    #[error(
        "the data directory `{}` has a copy that another version of Portcullis has not completed; complete it with that version, or remove the directory",
        .0.display()
    )]
    OtherVersion(PathBuf),
    #[error("cannot read the data directory `{}`: {error}", path.display())]
    Directory { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot write the store: {0}")]
    Write(String),
}

impl From<Fault> for ImportError {
    fn from(fault: Fault) -> ImportError {
        ImportError::Write(fault.message)
    }
}

/// A locked data directory that is empty or has an incomplete import.
pub struct ImportDirectory {
    medium: Medium,
    found: Option<(Log, MigrationMarker)>,
}

impl fmt::Debug for ImportDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportDirectory").field("marker", &self.marker()).finish_non_exhaustive()
    }
}

impl ImportDirectory {
    /// Creates the directory if needed and locks it.
    pub fn lock(path: &Path) -> Result<ImportDirectory, ImportError> {
        ImportDirectory::check(path)?;
        let mut medium = Medium::directory(path);
        medium.lock()?;
        let Some((log, format)) = Log::find(&medium)? else {
            return Ok(ImportDirectory { medium, found: None });
        };
        if format != INCOMPLETE {
            return Err(ImportError::NotEmpty(path.to_owned()));
        }
        let marker = log.marker()?.ok_or_else(|| ImportError::OtherVersion(path.to_owned()))?;
        Ok(ImportDirectory { medium, found: Some((log, marker)) })
    }

    /// Fails if the directory has files that are not those of a store. It need not exist.
    pub fn check(path: &Path) -> Result<(), ImportError> {
        let failed = |error| ImportError::Directory { path: path.to_owned(), error };
        let files = match fs::read_dir(path) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        for file in files {
            if !directory::is_own_file(&file.map_err(failed)?.file_name()) {
                return Err(ImportError::NotEmpty(path.to_owned()));
            }
        }
        Ok(())
    }

    /// The marker of the incomplete import.
    pub fn marker(&self) -> Option<&MigrationMarker> {
        self.found.as_ref().map(|(_, marker)| marker)
    }

    /// Begins an import with this marker, or resumes the one that is there.
    pub fn open(self, marker: &MigrationMarker) -> Result<StoreImport, ImportError> {
        let ImportDirectory { medium, found } = self;
        let log = match found {
            Some((log, _)) => log,
            None => {
                let log = Log::begin(&medium, INCOMPLETE, marker.source_revision)?;
                log.mark(marker)?;
                medium.replace().map_err(|error| ImportError::Write(error.to_string()))?;
                log
            }
        };
        let rows = log.snapshot().map_err(|error| ImportError::Write(error.to_string()))?;
        let (_, present) = rows.live()?;
        Ok(StoreImport { medium, log, present, changes: Changes::default(), bytes: 0 })
    }
}

/// A store that is being filled. Its directory is locked until this is dropped.
pub struct StoreImport {
    medium: Medium,
    log: Log,
    /// The revisions of the records that were there when the import was opened.
    present: BTreeMap<Arc<str>, u64>,
    /// Records that are not written yet.
    changes: Changes,
    bytes: usize,
}

impl fmt::Debug for StoreImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreImport").field("present", &self.present.len()).finish_non_exhaustive()
    }
}

impl StoreImport {
    /// True if an earlier process has written this key.
    pub fn contains(&self, key: &str) -> bool {
        self.present.contains_key(key)
    }

    /// Adds a record. Revisions are unique, and not above that of [`StoreImport::complete`].
    pub fn put(&mut self, entry: ExpiringRecord) -> Result<(), ImportError> {
        let ExpiringRecord { stored: StoredRecord { key, revision, created, record }, expires } = entry;
        let done = DecidedChange { key, revision, created, change: Change::Put(record) };
        let row = row::encode(&done, 0, expires)
            .ok_or_else(|| ImportError::Write(format!("the record of `{}` is too large", done.key)))?;
        self.bytes += row.len();
        self.changes.append.push((revision, row));
        if self.bytes >= BATCH_BYTES || self.changes.append.len() >= BATCH_RECORDS {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the added records durably.
    pub fn flush(&mut self) -> Result<(), ImportError> {
        self.bytes = 0;
        Ok(self.log.commit(&std::mem::take(&mut self.changes))?)
    }

    /// Reads all records back from the file, in key order.
    pub fn entries(
        &mut self,
    ) -> Result<impl Iterator<Item = Result<ExpiringRecord, OpenError>>, ImportError> {
        self.flush()?;
        let path = self.medium.path();
        let rows = self.log.snapshot().map_err(|error| ImportError::Write(error.to_string()))?;
        let (_, live) = rows.live()?;
        Ok(live.into_values().filter_map(move |revision| match rows.row(revision) {
            Ok(row) => row.into_entry().map(Ok),
            Err(fault) => Some(Err(fault.opening(&path))),
        }))
    }

    /// Makes this a complete store at `revision`, in one transaction.
    pub fn complete(mut self, revision: u64) -> Result<(), ImportError> {
        self.flush()?;
        Ok(self.log.complete(revision)?)
    }
}
