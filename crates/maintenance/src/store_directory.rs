//! The store of a stopped server.

use std::path::{Path, PathBuf};

/// The reason why an operation on a store failed.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("there is no store in `{0}`: name the directory that the server is given with --data-dir")]
    Missing(PathBuf),
    /// The store could not be opened, for example because a running server has locked it.
    #[error(transparent)]
    Open(#[from] storage::OpenError),
    #[error(
        "nothing is stored under the key `{0}`; keys are shown in the server's errors and by `portcullis store check`"
    )]
    NoSuchKey(String),
    #[error("the key was not removed: {0}")]
    Commit(#[from] storage::CommitError),
}

/// The directory of the store: `serve` has it in the data directory itself, `up` in the subdirectory `store`.
pub fn store_directory(data: &Path) -> Result<PathBuf, OfflineError> {
    let directories = [data.to_owned(), data.join("store")];
    let directory = directories.into_iter().find(|directory| storage::is_store(directory));
    directory.ok_or_else(|| OfflineError::Missing(data.to_owned()))
}
