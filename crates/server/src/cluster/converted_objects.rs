//! A cache of policy parameters in the version that the policy names: every matching request reads the same few.

use std::sync::Arc;

use api::GroupVersionKind;
use catalog::ServedResource;
use storage::{EntryIdentity, StoredEntry};
use value::{ByteLru, Value};

/// Approximate size limit in bytes of JSON.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Stored objects, converted to the versions in which policies read them.
pub(crate) struct ConvertedObjectCache {
    /// By storage key and version.
    objects: ByteLru<(Arc<str>, GroupVersionKind), ShownObject>,
}

/// INVARIANT: `object` depends only on the entry and on `kind`, and every change of a CRD creates a new `kind`.
#[derive(Clone)]
struct ShownObject {
    of: EntryIdentity,
    kind: Arc<ServedResource>,
    object: Arc<Value>,
}

impl Default for ConvertedObjectCache {
    fn default() -> Self {
        ConvertedObjectCache { objects: ByteLru::new(MAX_BYTES) }
    }
}

impl ConvertedObjectCache {
    /// The cached object for this entry and this kind.
    pub(super) fn get(&self, kind: &Arc<ServedResource>, entry: &Arc<StoredEntry>) -> Option<Arc<Value>> {
        let found = self.objects.get(&(Arc::clone(&entry.key), kind.gvk.clone()))?;
        (found.of.is(entry) && Arc::ptr_eq(&found.kind, kind)).then_some(found.object)
    }

    /// Caches an object. It replaces the one of the same entry and version.
    pub(super) fn put(&self, kind: &Arc<ServedResource>, entry: &Arc<StoredEntry>, object: &Arc<Value>) {
        // The size of the converted object, not of the stored bytes: defaults can make a small object large.
        let bytes = object.size_up_to(MAX_BYTES);
        let of = EntryIdentity::of(entry);
        let new = ShownObject { of, kind: Arc::clone(kind), object: Arc::clone(object) };
        self.objects.insert((Arc::clone(&entry.key), kind.gvk.clone()), new, bytes);
    }
}

#[cfg(test)]
mod tests {
    use catalog::{Catalog, encode, keys};
    use storage::{Change, Expect, Memory, Store, StoreOptions, Write, WritePriority};
    use value::Map;

    use super::*;

    /// Stores a ConfigMap of this name.
    async fn stored(store: &Store, name: &str) -> Arc<StoredEntry> {
        let record = encode::record(&encode::head("v1", "ConfigMap"), &Value::Map(Map::new()), Vec::new());
        let write = Write {
            key: format!("{}default/{name}", keys::CONFIG_MAPS).into(),
            expect: Expect::Absent,
            change: Change::Put(record),
            priority: WritePriority::Ordinary,
            ttl: None,
        };
        store.commit(write).await.unwrap().entry
    }

    #[tokio::test]
    async fn the_cache_of_converted_objects_is_bounded_by_their_size() {
        let kind = Catalog::new(kinds::table::Served::default())
            .find(&"".into(), &"v1".into(), &"configmaps".into())
            .unwrap();
        let object = Arc::new(Value::from("x".repeat(MAX_BYTES / 3)));
        let cache = ConvertedObjectCache::default();
        let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
        let mut entries = Vec::new();
        for name in ["a", "b", "c"] {
            let entry = stored(&store, name).await;
            cache.put(&kind, &entry, &object);
            entries.push(entry);
        }
        let cached: Vec<bool> = entries.iter().map(|entry| cache.get(&kind, entry).is_some()).collect();
        assert_eq!(cached, [false, true, true], "only the object that was used longest ago is evicted");
    }
}
