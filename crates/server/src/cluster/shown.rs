//! Objects as clients of a kind read them, remembered for policies: every matching request asks for the same few parameters.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use storage::Entry;
use value::Value;

use crate::catalog::Kind;

/// How many bytes are remembered, as stored. When there are more, all are forgotten.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// What is shown of stored objects.
#[derive(Default)]
pub(crate) struct Shown {
    objects: RwLock<Objects>,
}

#[derive(Default)]
struct Objects {
    /// By key: one for each version in which the object was asked for.
    by_key: HashMap<Arc<str>, Vec<ShownObject>>,
    bytes: usize,
}

/// INVARIANT: what is shown follows from the revision of the entry and from the kind, which is another one after every change of
/// its CRD.
struct ShownObject {
    revision: u64,
    kind: Arc<Kind>,
    object: Arc<Value>,
}

impl Shown {
    /// What was shown of this entry in this kind.
    pub(super) fn get(&self, kind: &Arc<Kind>, entry: &Entry) -> Option<Arc<Value>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let mut versions = objects.by_key.get(&entry.key)?.iter();
        let found = versions.find(|shown| shown.revision == entry.revision && Arc::ptr_eq(&shown.kind, kind));
        found.map(|shown| Arc::clone(&shown.object))
    }

    /// Remembers what is shown of an entry, instead of what was shown of it in the same version.
    pub(super) fn put(&self, kind: &Arc<Kind>, entry: &Entry, object: &Arc<Value>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        if objects.bytes > MAX_BYTES {
            *objects = Objects::default();
        }
        objects.bytes += entry.body.len();
        let versions = objects.by_key.entry(Arc::clone(&entry.key)).or_default();
        versions.retain(|shown| shown.kind.gvk != kind.gvk);
        versions.push(ShownObject {
            revision: entry.revision,
            kind: Arc::clone(kind),
            object: Arc::clone(object),
        });
    }
}
