//! A map under modification by a patch, which applies all removals and additions at once at the end.
//!
//! Maps are sorted vectors. A patch may remove or add as many keys as the largest object has, and moving the entries behind each key
//! one by one would take quadratic time.

use std::collections::{BTreeMap, HashSet};

use value::{Map, Str, Value};

pub(super) struct Edited {
    map: Map,
    /// Keys of `map` that are removed.
    gone: HashSet<Str>,
    /// Values at keys that are removed from `map` or not in it.
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
        map.extend(added);
        map
    }
}
