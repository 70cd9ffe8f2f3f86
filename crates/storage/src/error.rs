//! The errors of the store, one enum per operation.

use std::path::PathBuf;
use std::sync::Arc;

use crate::StoredEntry;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has locked the directory.
    #[error("the data directory `{}` is in use by another process; stop it, or use another directory", .0.display())]
    Locked(PathBuf),
    /// The directory or a file in it cannot be created or read.
    #[error("cannot open the data directory `{}`: {source}", path.display())]
    DataDirectory { path: PathBuf, source: std::io::Error },
    /// Other users can read or write the directory.
    #[error("the data directory `{}` has mode {mode:04o} and is open to others; run `chmod 700` on it", path.display())]
    TooOpen {
        path: PathBuf,
        /// Its permission bits, such as 0o755.
        mode: u32,
    },
    /// The file has a format that this build cannot read.
    #[error(
        "`{}` has store format {found}, and this build knows format {known} only; use the version of Portcullis that wrote it",
        path.display()
    )]
    Format {
        path: PathBuf,
        /// The format recorded in the file.
        found: u32,
        /// The format that this build reads and writes.
        known: u32,
    },
    /// The records of an older file could not be mapped to keys of this format. The old file is unchanged.
    #[error("the store cannot be migrated: {0}")]
    Migration(String),
    #[error("`{}` is not a Portcullis store: {detail}; move it away to start with an empty store", path.display())]
    NotAStore {
        path: PathBuf,
        /// A description of the file's actual content, as far as known.
        detail: String,
    },
    #[error(
        "`{}` is damaged: {detail}; restore it from a backup, or move it away to start with an empty store",
        path.display()
    )]
    Damaged { path: PathBuf, detail: String },
    /// The data is the target of a migration that has not ended.
    #[error("{location} has an incomplete copy of another store; complete it with `{resume}`")]
    IncompleteMigration {
        /// The directory or the etcd.
        location: String,
        /// The command that resumes the migration.
        resume: String,
    },
    /// Any other error of the backend.
    #[error("the store cannot be opened: {0}")]
    Unavailable(String),
}

/// Errors of a write that was not confirmed. Only after [`CommitError::Unknown`] and [`CommitError::TimedOut`] it may nevertheless be
/// stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The key is not in the state that the write expects.
    #[error("the key is not in the expected state")]
    Conflict {
        /// The current entry of the key; `None` if it does not exist.
        current: Option<Arc<StoredEntry>>,
    },
    /// A key that fences the write has another revision. The write is not stored.
    #[error("a key that fences the write has another revision")]
    Fenced,
    /// The key or the record is malformed.
    #[error("the write is invalid: {0}")]
    Invalid(String),
    #[error("the {what} has {size} bytes, and the limit is {limit}")]
    TooLarge {
        /// Either `key` or `record`.
        what: &'static str,
        size: usize,
        limit: usize,
    },
    #[error("the store is full: {live} bytes are live, and the quota is {quota}")]
    OverQuota { live: u64, quota: u64 },
    /// The backend could not make the write durable. It is not stored.
    #[error("the store cannot write: {0}")]
    Unavailable(String),
    /// The backend did not confirm the write, which may be stored, now or later: nothing that it needs may be given to others.
    #[error("the store did not confirm a write, which may have been stored: {0}")]
    Unknown(String),
    /// Like [`CommitError::Unknown`]: the backend did not answer in the time that one write may take.
    #[error("the store did not confirm a write in time, which may have been stored: {0}")]
    TimedOut(String),
    #[error("the store is closed")]
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the revision has been compacted; the oldest available one is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: u64,
    },
    #[error("the revision does not exist yet; the current one is {current}")]
    Future { current: u64 },
    #[error("the store cannot read: {0}")]
    Unavailable(String),
}

/// Errors that prevent or end a watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The events after that revision have been discarded.
    #[error("the revision has been compacted; the oldest available one is {oldest}")]
    Compacted {
        /// The oldest revision at which a watch can begin.
        oldest: u64,
    },
    #[error("the revision does not exist yet; the current one is {current}")]
    Future { current: u64 },
    /// The watcher was too slow: events it has not received have been discarded.
    #[error("the watcher was too slow")]
    Lagged,
    #[error("the store is closed")]
    Closed,
}
