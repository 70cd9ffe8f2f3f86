//! Counts and hashes the objects of a store.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::item::MigrationItem;

/// The number of objects of each resource, and a digest over all keys and objects in key order. Revisions are not part of it, because
/// etcd assigns its own.
#[derive(Default)]
pub(super) struct StoreTally {
    hasher: Sha256,
    resources: BTreeMap<String, u64>,
    objects: u64,
}

impl StoreTally {
    pub(super) fn add(&mut self, item: &MigrationItem) {
        for part in [item.key.as_bytes(), item.record.body.as_ref()] {
            self.hasher.update((part.len() as u64).to_le_bytes());
            self.hasher.update(part);
        }
        match self.resources.get_mut(&item.resource) {
            Some(count) => *count += 1,
            None => drop(self.resources.insert(item.resource.clone(), 1)),
        }
        self.objects += 1;
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// The digest, as `sha256:…`, and the number of objects of each resource.
    pub(super) fn finish(self) -> (String, BTreeMap<String, u64>) {
        (format!("sha256:{}", HEXLOWER.encode(&self.hasher.finalize())), self.resources)
    }
}
