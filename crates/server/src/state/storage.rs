//! Storage: the store, and what is derived from its whole content at start.

use std::sync::Arc;

use storage::{Embedded, Memory, Store, StoreOptions};

use crate::addresses::Addresses;
use crate::config::{ConfigError, Data, StorageConfig};
use crate::encode;
use crate::keys;
use crate::unreadable::{Concern, Unreadable};

pub struct Storage {
    pub store: Store,
    /// The stored objects that cannot be decoded. Decisions that would need one of them are refused.
    pub(crate) unreadable: Arc<Unreadable>,
    /// The cluster IPs and node ports that stored Services hold.
    pub addresses: Addresses,
}

impl StorageConfig {
    /// Opens the store, looks for objects that cannot be decoded, and reserves the addresses of the stored Services.
    pub(crate) async fn build(self) -> Result<Storage, ConfigError> {
        let StorageConfig { data, quota, service_ranges } = self;
        let options = StoreOptions { quota, shard_end: keys::prefix_end, ..StoreOptions::default() };
        let store = match data {
            Data::Memory => Store::open(Memory::new(), options).await,
            Data::Directory(directory) => {
                Store::open(Embedded::at(directory).migrating(keys::migrate), options).await
            }
        }
        .map_err(ConfigError::other)?;

        let scanned = store.clone();
        let unreadable = tokio::task::spawn_blocking(move || Unreadable::scan(&scanned)).await;
        let unreadable = Arc::new(unreadable.map_err(ConfigError::other)?);

        let addresses = Addresses::new(&service_ranges);
        for entry in &store.snapshot(keys::SERVICES).entries {
            match encode::tree(entry) {
                Ok(service) => addresses.load(&service),
                // Its addresses are unknown, so no others can be allocated safely.
                Err(why) => unreadable.note(entry, &why, Some(Concern::Addresses)),
            }
        }
        Ok(Storage { store, unreadable, addresses })
    }
}
