//! [`LastModes`]: the impersonation mode that was last allowed for each caller.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use super::ImpersonationMode;

/// The maximum number of callers, as in Kubernetes; the oldest are evicted.
const CAPACITY: usize = 10_000;

/// Keyed by the hash of the caller's name. Collisions are harmless: the entry only determines which mode is
/// tried first.
#[derive(Debug, Default)]
pub struct LastModes {
    hasher: RandomState,
    entries: Mutex<LastModeEntries>,
}

#[derive(Debug, Default)]
struct LastModeEntries {
    by_name: HashMap<u64, ImpersonationMode>,
    order: VecDeque<u64>,
}

impl LastModes {
    pub(super) fn of(&self, name: &str) -> Option<ImpersonationMode> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.by_name.get(&self.hasher.hash_one(name)).copied()
    }

    pub(super) fn set(&self, name: &str, mode: ImpersonationMode) {
        let key = self.hasher.hash_one(name);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.by_name.insert(key, mode).is_some() {
            return;
        }
        entries.order.push_back(key);
        if entries.order.len() > CAPACITY
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.by_name.remove(&oldest);
        }
    }
}
