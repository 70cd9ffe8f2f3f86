//! A map that a patch changes: what it removes and adds is brought in at the end, all at once.
//!
//! Maps are sorted vectors. A patch may remove or add as many keys as the largest object has, and to move the entries behind each of
//! them one after the other takes the square of that.

use std::collections::{BTreeMap, HashSet};

use value::{Map, Str, Value};

/// So many new keys are put in one by one.
const FEW: usize = 8;

pub(super) struct Edited {
    map: Map,
    /// Keys that are in the map and should not be.
    gone: HashSet<Str>,
    /// What is at keys that are gone or not in the map.
    added: BTreeMap<Str, Value>,
}

impl Edited {
    pub(super) fn of(map: Map) -> Self {
        Edited { map, gone: HashSet::new(), added: BTreeMap::new() }
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        match self.map.get_mut(key) {
            Some(value) if !self.gone.contains(key) => Some(value),
            _ => self.added.get_mut(key),
        }
    }

    pub(super) fn insert(&mut self, key: Str, value: Value) {
        match self.get_mut(&key) {
            Some(old) => *old = value,
            None => drop(self.added.insert(key, value)),
        }
    }

    pub(super) fn remove(&mut self, key: Str) {
        self.added.remove(&key);
        if self.map.contains_key(&key) {
            self.gone.insert(key);
        }
    }

    pub(super) fn finish(self) -> Map {
        let Edited { mut map, gone, added } = self;
        if !gone.is_empty() {
            map.retain(|key, _| !gone.contains(key));
        }
        if added.len() > FEW {
            return map.into_iter().chain(added).collect();
        }
        for (key, value) in added {
            map.insert(key, value);
        }
        map
    }
}
