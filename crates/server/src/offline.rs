//! Operations on a store while no server is running.

use std::path::{Path, PathBuf};

use storage::{Embedded, Store, StoreOptions};

use crate::keys;
use crate::unreadable;
use crate::write;

/// The reason why an operation on a store failed.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("there is no store in `{0}`: name the directory that the server is given with --data-dir")]
    Missing(PathBuf),
    /// For example because a running server has locked it.
    #[error(transparent)]
    Open(#[from] storage::OpenError),
    #[error(
        "nothing is stored under the key `{0}`; keys are shown in the server's errors and by `portcullis store check`"
    )]
    NoSuchKey(String),
    #[error("the key was not removed: {0}")]
    Commit(#[from] storage::CommitError),
}

#[derive(Debug)]
pub struct Removed {
    pub revision: u64,
    pub bytes: usize,
    /// The decoding error, if the object could not be decoded.
    pub unreadable: Option<String>,
}

/// A stored object that cannot be decoded.
#[derive(Debug)]
pub struct UnreadableKey {
    pub key: String,
    pub why: String,
}

/// The directory of the store: `serve` has it in the data directory itself, `up` in the subdirectory `store`.
pub(crate) fn store_directory(data: &Path) -> Result<PathBuf, OfflineError> {
    let directories = [data.to_owned(), data.join("store")];
    let directory = directories.into_iter().find(|directory| storage::is_store(directory));
    directory.ok_or_else(|| OfflineError::Missing(data.to_owned()))
}

async fn open(data: &Path) -> Result<Store, OfflineError> {
    let directory = store_directory(data)?;
    let options = StoreOptions { shard_end: keys::prefix_end, ..StoreOptions::default() };
    Ok(Store::open(Embedded::at(directory).migrating(keys::migrate), options).await?)
}

/// Deletes the object stored under a key, even if it cannot be decoded.
pub async fn delete_key(data: &Path, key: &str) -> Result<Removed, OfflineError> {
    let store = open(data).await?;
    let removed = write::remove_offline(&store, key).await;
    store.close().await;
    let entry = removed?.ok_or_else(|| OfflineError::NoSuchKey(key.to_owned()))?;
    let unreadable = crate::encode::tree(&entry).err().map(|status| status.message().to_owned());
    Ok(Removed { revision: entry.revision, bytes: entry.body.len(), unreadable })
}

/// The objects that cannot be decoded, and the number of all objects.
pub async fn check(data: &Path) -> Result<(Vec<UnreadableKey>, usize), OfflineError> {
    let store = open(data).await?;
    let found = unreadable::check(&store);
    let all = store.count(keys::ROOT);
    store.close().await;
    let found = found.into_iter().map(|(entry, status)| UnreadableKey {
        key: entry.key.to_string(),
        why: status.message().to_owned(),
    });
    Ok((found.collect(), all))
}
