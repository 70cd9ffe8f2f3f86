//! One enum per operation.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Entry;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the folder.
    #[error("the data folder `{}` is in use by another process; stop it, or use another folder", .0.display())]
    Locked(PathBuf),
    /// The folder or a file in it cannot be created or read.
    #[error("cannot open the data folder `{}`: {source}", path.display())]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others can read or write the folder.
    #[error("the data folder `{}` has mode {mode:04o} and is open to others; run `chmod 700` on it", path.display())]
    TooOpen {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file is of a format that this build does not know.
    #[error(
        "`{}` has store format {found}, and this build knows format {known} only; use the version of Portcullis that wrote it",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format it says it has.
        found: u32,
        /// The format this build reads and writes.
        known: u32,
    },
    /// The records of an older file cannot be given the keys of this format. The file is as it was.
    #[error("the store cannot be migrated: {0}")]
    Migration(String),
    /// The file is something else.
    #[error("`{}` is not a Portcullis store: {detail}; move it away to start with an empty store", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is instead, as far as known.
        detail: String,
    },
    /// The file is damaged.
    #[error(
        "`{}` is damaged: {detail}; restore it from a backup, or move it away to start with an empty store",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// Anything else the backend ran into.
    #[error("the store cannot be opened: {0}")]
    Unavailable(String),
}

/// Why a write was not committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The key is not in the state that the write expects.
    #[error("the key is not in the expected state")]
    Conflict {
        /// What the key holds now; `None` if it does not exist.
        current: Option<Arc<Entry>>,
    },
    /// The key, or the record, is not one that can be stored.
    #[error("the write is invalid: {0}")]
    Invalid(String),
    /// The key or the record is over a limit.
    #[error("the {what} has {size} bytes, and the limit is {limit}")]
    TooLarge {
        /// `key` or `record`.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The write needs room, and the store is full.
    #[error("the store is full: {live} bytes are live, and the quota is {quota}")]
    OverQuota {
        /// How many bytes are live.
        live: u64,
        /// The quota.
        quota: u64,
    },
    /// The backend could not make the write durable. It is not visible, and was not acknowledged.
    #[error("the store cannot write: {0}")]
    Unavailable(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a list could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The revision is no longer kept.
    #[error("the revision has been compacted; the oldest one kept is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: u64,
    },
    /// The revision does not exist yet.
    #[error("the revision does not exist yet; the current one is {current}")]
    Future {
        /// The current revision.
        current: u64,
    },
    /// The backend could not read.
    #[error("the store cannot read: {0}")]
    Unavailable(String),
}

/// Why a watch could not begin, or why it ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The events after that revision are no longer kept.
    #[error("the revision has been compacted; the oldest one kept is {oldest}")]
    Compacted {
        /// The oldest revision that a watch can begin at.
        oldest: u64,
    },
    /// The revision does not exist yet.
    #[error("the revision does not exist yet; the current one is {current}")]
    Future {
        /// The current revision.
        current: u64,
    },
    /// The watcher was too slow: events it has not seen are no longer kept.
    #[error("the watcher was too slow")]
    Lagged,
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}
