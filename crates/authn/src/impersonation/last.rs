//! [`LastModes`]: by which mode callers were last allowed to act as somebody else.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use super::Mode;

/// How many callers are remembered, as in Kubernetes; the oldest make room.
const CAPACITY: usize = 10_000;

/// Modes by the names of callers. It decides only which mode is tried first, so a hash is name enough.
#[derive(Debug, Default)]
pub struct LastModes {
    hasher: RandomState,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<u64, Mode>,
    order: VecDeque<u64>,
}

impl LastModes {
    pub(super) fn of(&self, name: &str) -> Option<Mode> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.by_name.get(&self.hasher.hash_one(name)).copied()
    }

    pub(super) fn set(&self, name: &str, mode: Mode) {
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
