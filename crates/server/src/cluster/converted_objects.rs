//! A cache of policy parameters in the version that the policy names: every matching request reads the same few.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use catalog::ServedResource;
use storage::StoredEntry;
use value::Value;

/// Approximate size limit in bytes of JSON. When it is exceeded, the whole cache is cleared.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Stored objects, converted to the versions in which policies read them.
#[derive(Default)]
pub(crate) struct ConvertedObjectCache {
    objects: RwLock<Objects>,
}

#[derive(Default)]
struct Objects {
    /// By storage key: one object for each version that was requested.
    by_key: HashMap<Arc<str>, Vec<ShownObject>>,
    bytes: usize,
}

/// INVARIANT: `object` depends only on the revision of the entry and on `kind`, and every change of a CRD creates a new `kind`.
struct ShownObject {
    revision: u64,
    kind: Arc<ServedResource>,
    object: Arc<Value>,
}

impl ConvertedObjectCache {
    /// The cached object for this revision of the entry and this kind.
    pub(super) fn get(&self, kind: &Arc<ServedResource>, entry: &StoredEntry) -> Option<Arc<Value>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let mut versions = objects.by_key.get(&entry.key)?.iter();
        let found = versions.find(|shown| shown.revision == entry.revision && Arc::ptr_eq(&shown.kind, kind));
        found.map(|shown| Arc::clone(&shown.object))
    }

    /// Caches an object. It replaces the one of the same entry and version.
    pub(super) fn put(&self, kind: &Arc<ServedResource>, entry: &StoredEntry, object: &Arc<Value>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let new =
            ShownObject { revision: entry.revision, kind: Arc::clone(kind), object: Arc::clone(object) };
        objects.add(&entry.key, new);
    }
}

impl Objects {
    fn add(&mut self, key: &Arc<str>, new: ShownObject) {
        if self.bytes > MAX_BYTES {
            *self = Objects::default();
        }
        // The size of the converted object, not of the stored bytes: defaults can make a small object large.
        self.bytes += new.object.size_up_to(MAX_BYTES);
        let versions = self.by_key.entry(Arc::clone(key)).or_default();
        versions.retain(|shown| shown.kind.gvk != new.kind.gvk);
        versions.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::Catalog;

    #[test]
    fn the_cache_of_converted_objects_is_bounded_by_their_size() {
        let kind = Catalog::new(kinds::table::Served::default())
            .find(&"".into(), &"v1".into(), &"configmaps".into())
            .unwrap();
        let object = Arc::new(Value::from("x".repeat(MAX_BYTES / 2)));
        let mut objects = Objects::default();
        for (number, remembered) in [(1, 1), (2, 2), (3, 1)] {
            let key: Arc<str> = format!("/registry/configmaps/default/{number}").into();
            let new = ShownObject { revision: number, kind: Arc::clone(&kind), object: Arc::clone(&object) };
            objects.add(&key, new);
            assert_eq!(objects.by_key.len(), remembered, "{number}");
        }
    }
}
