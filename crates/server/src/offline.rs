//! A store without a server: what an operator does to it while none runs.

use std::path::{Path, PathBuf};

use storage::{Embedded, Options, Store};

use crate::keys;
use crate::unreadable;
use crate::write;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// There is no store in the folder.
    #[error("there is no store in `{0}`: name the folder that the server is given with --data-dir")]
    Missing(PathBuf),
    /// It cannot be opened; a server that holds it is one reason.
    #[error(transparent)]
    Open(#[from] storage::OpenError),
    /// Nothing is stored under the key.
    #[error(
        "nothing is stored under the key `{0}`; keys are shown in the server's errors and by `portcullis store check`"
    )]
    NoSuchKey(String),
    /// The removal could not be written.
    #[error("the key was not removed: {0}")]
    Commit(#[from] storage::CommitError),
}

/// An object that was removed.
#[derive(Debug)]
pub struct Removed {
    /// The revision of its last change.
    pub revision: u64,
    /// Its size in bytes.
    pub bytes: usize,
    /// Why it could not be read; nothing if it could.
    pub unreadable: Option<String>,
}

/// An object that cannot be read.
#[derive(Debug)]
pub struct UnreadableKey {
    /// Its key.
    pub key: String,
    /// Why.
    pub why: String,
}

/// Opens the store of a data folder: that of `serve`, or that of `up`, which has its store in a folder below.
async fn open(data: &Path) -> Result<Store, OfflineError> {
    let folders = [data.to_owned(), data.join("store")];
    let folder = folders.into_iter().find(|folder| storage::is_store(folder));
    let folder = folder.ok_or_else(|| OfflineError::Missing(data.to_owned()))?;
    let options = Options { shard_end: keys::prefix_end, ..Options::default() };
    Ok(Store::open(Embedded::at(folder).migrating(keys::migrate), options).await?)
}

/// Removes what is stored under a key, whatever it is.
pub async fn delete_key(data: &Path, key: &str) -> Result<Removed, OfflineError> {
    let store = open(data).await?;
    let removed = write::remove_offline(&store, key).await;
    store.close().await;
    let entry = removed?.ok_or_else(|| OfflineError::NoSuchKey(key.to_owned()))?;
    let unreadable = crate::encode::tree(&entry).err().map(|status| status.message().to_owned());
    Ok(Removed { revision: entry.revision, bytes: entry.body.len(), unreadable })
}

/// Every key whose object cannot be read, and how many objects there are.
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
