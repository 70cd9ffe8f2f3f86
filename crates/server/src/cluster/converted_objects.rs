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
mod tests;
