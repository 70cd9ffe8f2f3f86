//! [`LruCache`]: a map of bounded size that evicts the entry that was used longest ago.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Has at most a number of entries and at most a total weight, in a unit that the caller chooses, such as bytes.
///
/// Reading and inserting an entry are uses of it. Nothing here locks or reads a clock; [`TtlCache`](crate::TtlCache) is for entries that
/// expire.
#[derive(Debug)]
pub struct LruCache<K, V> {
    max_entries: usize,
    max_weight: u64,
    /// The sum of the weights of all entries.
    weight: u64,
    by_key: HashMap<K, LruEntry<V>>,
    /// Keys by [`LruEntry::last_use`], the one used longest ago first.
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

#[derive(Debug)]
struct LruEntry<V> {
    value: V,
    weight: u64,
    /// The number of uses of the cache before the last use of this entry.
    last_use: u64,
}

impl<K: Clone + Eq + Hash, V> LruCache<K, V> {
    /// An empty cache that only the number of its entries limits.
    pub fn of_entries(max_entries: usize) -> Self {
        Self::weighted(max_entries, u64::MAX)
    }

    /// An empty cache with both limits.
    pub fn weighted(max_entries: usize, max_weight: u64) -> Self {
        LruCache {
            max_entries,
            max_weight,
            weight: 0,
            by_key: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// The value of a key, which becomes the one used last.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let entry = self.by_key.get_mut(key)?;
        if let Some(key) = self.by_use.remove(&entry.last_use) {
            self.by_use.insert(self.uses, key);
            entry.last_use = self.uses;
            self.uses += 1;
        }
        Some(&mut entry.value)
    }

    /// Inserts or replaces an entry of weight 0.
    pub fn insert(&mut self, key: K, value: V) {
        self.insert_weighted(key, value, 0);
    }

    /// Inserts or replaces an entry, then evicts others until both limits hold. An entry that is heavier than the whole cache may be is not
    /// inserted and evicts nothing.
    pub fn insert_weighted(&mut self, key: K, value: V, weight: u64) {
        self.remove(&key);
        if weight > self.max_weight || self.max_entries == 0 {
            return;
        }
        while self.by_key.len() >= self.max_entries || self.weight > self.max_weight - weight {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.forget(&oldest);
        }
        self.weight += weight;
        self.by_use.insert(self.uses, key.clone());
        self.by_key.insert(key, LruEntry { value, weight, last_use: self.uses });
        self.uses += 1;
    }

    /// Removes an entry and returns its value.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let entry = self.forget(key)?;
        self.by_use.remove(&entry.last_use);
        Some(entry.value)
    }

    /// Removes an entry except from `by_use`.
    fn forget<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<LruEntry<V>>
    where
        K: Borrow<Q>,
    {
        let entry = self.by_key.remove(key)?;
        self.weight = self.weight.saturating_sub(entry.weight);
        Some(entry)
    }

    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_use.clear();
        self.weight = 0;
    }

    /// The sum of the weights of all entries.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::LruCache;

    fn present(cache: &LruCache<&str, i32>, keys: [&str; 4]) -> [bool; 4] {
        keys.map(|key| cache.by_key.contains_key(key))
    }

    #[test]
    fn the_entry_that_was_used_longest_ago_is_evicted() {
        let mut cache = LruCache::of_entries(3);
        for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
            cache.insert(key, value);
        }
        assert_eq!(cache.get("a").copied(), Some(1));
        cache.insert("d", 4);
        assert_eq!(present(&cache, ["a", "b", "c", "d"]), [true, false, true, true]);
        assert_eq!((cache.get("b").copied(), cache.len()), (None, 3));
    }

    #[test]
    fn entries_are_evicted_until_the_weight_is_within_its_limit() {
        let mut cache = LruCache::weighted(10, 10);
        for (key, weight) in [("a", 4), ("b", 4), ("c", 2)] {
            cache.insert_weighted(key, 0, weight);
        }
        assert_eq!(cache.weight(), 10);
        cache.insert_weighted("d", 0, 5);
        assert_eq!(present(&cache, ["a", "b", "c", "d"]), [false, false, true, true]);
        assert_eq!(cache.weight(), 7);
    }

    #[test]
    fn an_entry_that_is_too_heavy_is_not_cached_and_evicts_only_the_former_value_of_its_key() {
        let mut cache = LruCache::weighted(10, 10);
        for key in ["a", "b"] {
            cache.insert_weighted(key, 0, 5);
        }
        cache.insert_weighted("a", 1, 11);
        assert_eq!(present(&cache, ["a", "b", "c", "d"]), [false, true, false, false]);
        assert_eq!(cache.weight(), 5);
        let mut none = LruCache::of_entries(0);
        none.insert("a", 1);
        assert!(none.is_empty());
    }

    #[test]
    fn replaced_and_removed_entries_leave_no_weight() {
        let mut cache = LruCache::weighted(10, 10);
        for weight in [7, 3, 9] {
            cache.insert_weighted("a", 0, weight);
            assert_eq!((cache.weight(), cache.len(), cache.by_use.len()), (weight, 1, 1));
        }
        assert_eq!(cache.remove("a"), Some(0));
        assert_eq!((cache.weight(), cache.len(), cache.by_use.len()), (0, 0, 0));
        cache.insert_weighted("a", 1, 10);
        cache.clear();
        assert_eq!((cache.weight(), cache.remove("a")), (0, None));
    }
}
