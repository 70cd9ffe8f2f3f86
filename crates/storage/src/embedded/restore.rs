//! Restores a snapshot into a new data directory.
//!
//! The store is built in a directory beside the new one, and renamed when it is complete and synced. So a restore that is interrupted at
//! any moment leaves either the complete store or no data directory, and the rename replaces nothing but an empty directory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::backend::DecidedChange;
use crate::error::OpenError;
use crate::record::Change;
use crate::snapshot::{SnapshotError, SnapshotReader, SnapshotSummary};

use super::disk::Medium;
use super::log::{Changes, Log};
use super::{FORMAT, directory, migrate, row};

/// Bytes written in one transaction.
const BATCH_BYTES: usize = 32 << 20;
/// Largest revision: Kubernetes and etcd use signed 64-bit numbers.
const MAX_REVISION: u64 = i64::MAX as u64;

/// Errors of a restore. In every case the data directory is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the data directory `{}` is not empty; name a new one: a restore never overwrites a store", .0.display())]
    NotEmpty(PathBuf),
    #[error("cannot restore to `{}`: {source}", path.display())]
    Target { path: PathBuf, source: io::Error },
    #[error(
        "the snapshot `{}` is of a store of format {found}, and this build knows formats {} to {FORMAT} only; use the version of Portcullis that saved it",
        path.display(), migrate::FROM
    )]
    StoreFormat { path: PathBuf, found: u32 },
    #[error("the revision {revision} cannot be raised by {by}: revisions end at {MAX_REVISION}")]
    TooFar { revision: u64, by: u64 },
    #[error("the snapshot `{}` has several entries with the same revision, which this store cannot have", .0.display())]
    SharedRevision(PathBuf),
    #[error("cannot write the store: {0}")]
    Write(String),
    /// The directory in which the store is built cannot be used, for example because another restore uses it.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The size and revision of a restored store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredStore {
    pub snapshot: SnapshotSummary,
    /// The revision of the store: that of the snapshot, raised as requested.
    pub revision: u64,
}

/// Restores a snapshot into `target`, which must not exist or be empty.
///
/// Entries have the revisions that they had. The revision of the store is that of the snapshot plus `bump_revision`; older revisions are
/// compacted, so that a client that continues from one must list again.
pub fn restore(snapshot: &Path, target: &Path, bump_revision: u64) -> Result<RestoredStore, RestoreError> {
    let failed = |source| RestoreError::Target { path: target.to_owned(), source };
    let resolved = resolve(target).map_err(failed)?;
    check_empty(&resolved)?;
    // Verify everything before writing anything.
    let summary = SnapshotReader::verify(snapshot)?;
    let store_format = summary.header.store_format;
    if store_format != FORMAT && store_format != migrate::FROM {
        return Err(RestoreError::StoreFormat { path: snapshot.to_owned(), found: store_format });
    }
    let saved = summary.header.revision;
    let revision = saved.checked_add(bump_revision).filter(|revision| *revision <= MAX_REVISION);
    let revision = revision.ok_or(RestoreError::TooFar { revision: saved, by: bump_revision })?;

    let building = building_directory(&resolved).map_err(failed)?;
    let mut medium = Medium::directory(&building);
    medium.lock()?;
    // An interrupted restore may have left files.
    directory::clear(&building).map_err(failed)?;
    let result = build(&medium, snapshot, &summary, revision).and_then(|()| {
        fs::rename(&building, &resolved).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty => RestoreError::NotEmpty(target.to_owned()),
            io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => {
                failed(io::Error::other("it is a mount point; name a new directory inside it"))
            }
            _ => failed(source),
        })
    });
    if result.is_err() {
        // The directory may stay behind; the next restore to the same target uses it again.
        let _ = directory::clear(&building);
        let _ = fs::remove_dir_all(&building);
    }
    result?;
    let parent = resolved.parent().unwrap_or(&resolved);
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    Ok(RestoredStore { snapshot: summary, revision })
}

/// Writes the complete file into the building directory.
fn build(
    medium: &Medium,
    snapshot: &Path,
    summary: &SnapshotSummary,
    revision: u64,
) -> Result<(), RestoreError> {
    let fault = |fault: super::fault::Fault| RestoreError::Write(fault.message);
    let log = Log::begin(medium, summary.header.store_format, revision).map_err(fault)?;
    let mut reader = SnapshotReader::open(snapshot)?;
    let (mut changes, mut bytes) = (Changes::default(), 0);
    while let Some(entry) = reader.next_entry()? {
        let done = DecidedChange {
            key: entry.key,
            revision: entry.revision,
            created: entry.created,
            change: Change::Put(entry.record),
        };
        let row = row::encode(&done, 0, None)
            .ok_or_else(|| RestoreError::Write(format!("the record of `{}` is too large", done.key)))?;
        bytes += row.len();
        changes.append.push((done.revision, row));
        if bytes >= BATCH_BYTES {
            log.commit(&std::mem::take(&mut changes)).map_err(fault)?;
            bytes = 0;
        }
    }
    log.commit(&changes).map_err(fault)?;
    if reader.summary() != Some(summary) {
        return Err(RestoreError::Write("the snapshot changed while it was read".to_owned()));
    }
    if log.rows().map_err(fault)? != summary.entries {
        return Err(RestoreError::SharedRevision(snapshot.to_owned()));
    }
    drop(log);
    medium.replace().map_err(|error| RestoreError::Write(error.to_string()))
}

/// The target with all symbolic links resolved. Creates the directories above it.
fn resolve(target: &Path) -> io::Result<PathBuf> {
    match target.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        resolved => return resolved,
    }
    let name = target.file_name().ok_or_else(|| io::Error::other("it does not name a directory"))?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    Ok(parent.canonicalize()?.join(name))
}

fn check_empty(target: &Path) -> Result<(), RestoreError> {
    let failed = |source| RestoreError::Target { path: target.to_owned(), source };
    match fs::read_dir(target) {
        Ok(mut files) => match files.next() {
            None => Ok(()),
            Some(_) => Err(RestoreError::NotEmpty(target.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// The directory beside the target in which its store is built. No server is started from it, because its name is hidden.
fn building_directory(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or_else(|| io::Error::other("it does not name a directory"))?;
    let mut building = OsString::from(".");
    building.push(name);
    building.push(".restoring");
    Ok(target.with_file_name(building))
}
