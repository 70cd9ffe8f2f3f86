//! Operations on a store while no server is running.

use std::path::Path;

use catalog::keys;
use catalog::unreadable;
use maintenance::{OfflineError, store_directory};
use storage::{Embedded, Store, StoreOptions};

use crate::write;

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

/// A store that no server uses. Only this file can open one, so that no request can write without admission.
pub(crate) struct OfflineStore(Store);

impl OfflineStore {
    async fn open(data: &Path) -> Result<Self, OfflineError> {
        let directory = store_directory(data)?;
        let options = StoreOptions { shard_end: keys::prefix_end, ..StoreOptions::default() };
        Ok(OfflineStore(Store::open(Embedded::at(directory).migrating(keys::migrate), options).await?))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0
    }
}

/// Deletes the object stored under a key, even if it cannot be decoded.
pub async fn delete_key(data: &Path, key: &str) -> Result<Removed, OfflineError> {
    let store = OfflineStore::open(data).await?;
    let removed = write::remove_offline(&store, key).await;
    store.0.close().await;
    let entry = removed?.ok_or_else(|| OfflineError::NoSuchKey(key.to_owned()))?;
    let unreadable = catalog::encode::tree(&entry).err().map(|status| status.message().to_owned());
    Ok(Removed { revision: entry.revision, bytes: entry.body.len(), unreadable })
}

/// The objects that cannot be decoded, and the number of all objects.
pub async fn check(data: &Path) -> Result<(Vec<UnreadableKey>, usize), OfflineError> {
    let OfflineStore(store) = OfflineStore::open(data).await?;
    let found = unreadable::check(&store);
    let all = store.count(keys::ROOT);
    store.close().await;
    let found = found.into_iter().map(|(entry, status)| UnreadableKey {
        key: entry.key.to_string(),
        why: status.message().to_owned(),
    });
    Ok((found.collect(), all))
}
