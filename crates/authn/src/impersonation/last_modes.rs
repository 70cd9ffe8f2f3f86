//! [`LastModes`]: the impersonation mode that was last allowed for each caller.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use value::LruCache;

use super::ImpersonationMode;

/// The maximum number of callers, as in Kubernetes.
const CAPACITY: usize = 10_000;

/// Keyed by the hash of the caller's name. Collisions are harmless: the entry only determines which mode is
/// tried first.
pub struct LastModes {
    hasher: RandomState,
    by_name: Mutex<LruCache<u64, ImpersonationMode>>,
}

impl Default for LastModes {
    fn default() -> Self {
        LastModes { hasher: RandomState::new(), by_name: Mutex::new(LruCache::of_entries(CAPACITY)) }
    }
}

impl LastModes {
    pub(super) fn of(&self, name: &str) -> Option<ImpersonationMode> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.get(&self.hasher.hash_one(name)).copied()
    }

    pub(super) fn set(&self, name: &str, mode: ImpersonationMode) {
        let key = self.hasher.hash_one(name);
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner).insert(key, mode);
    }
}

impl fmt::Debug for LastModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastModes").finish_non_exhaustive()
    }
}
