//! [`ByteLru`]: a shared cache that is bounded by the bytes of its values.

use std::borrow::Borrow;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::LruCache;

/// A cache of values with sizes. Where an insertion exceeds the limit, those that were used longest ago are evicted. A value larger than
/// the limit is not cached.
pub struct ByteLru<K, V> {
    hasher: BuildHasherDefault<DefaultHasher>,
    shards: Vec<Mutex<LruCache<K, V>>>,
}

impl<K: Clone + Eq + Hash, V: Clone> ByteLru<K, V> {
    pub fn new(max_bytes: usize) -> Self {
        Self::sharded(max_bytes, 1)
    }

    /// A cache for threads that read it at a high rate: it is divided by the hash of the key into `shards` caches, each with a lock and with
    /// its part of `max_bytes` as its limit.
    pub fn sharded(max_bytes: usize, shards: usize) -> Self {
        let shards = shards.max(1);
        let shard = || Mutex::new(LruCache::weighted(usize::MAX, (max_bytes / shards) as u64));
        ByteLru {
            hasher: BuildHasherDefault::default(),
            shards: std::iter::repeat_with(shard).take(shards).collect(),
        }
    }

    /// The shard of a key.
    fn lock<Q: Hash + ?Sized>(&self, key: &Q) -> Option<MutexGuard<'_, LruCache<K, V>>> {
        let hash = self.hasher.hash_one(key);
        let at = usize::try_from(hash % self.shards.len().max(1) as u64).ok()?;
        Some(self.shards.get(at)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The value of a key, which becomes the one used last.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.lock(key)?.get(key).map(|value| value.clone())
    }

    /// Inserts a value of `bytes`, or replaces the one of this key.
    pub fn insert(&self, key: K, value: V, bytes: usize) {
        if let Some(mut shard) = self.lock(&key) {
            shard.insert_weighted(key, value, bytes as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteLru;

    fn cached(cache: &ByteLru<&'static str, u8>, keys: &[&'static str]) -> Vec<Option<u8>> {
        keys.iter().map(|key| cache.get(key)).collect()
    }

    #[test]
    fn a_full_cache_evicts_only_the_values_that_were_used_longest_ago() {
        let cache = ByteLru::new(10);
        for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
            cache.insert(key, value, 3);
        }
        assert_eq!(cache.get("a"), Some(1), "used after b and c");
        cache.insert("d", 4, 3);
        assert_eq!(cached(&cache, &["a", "b", "c", "d"]), [Some(1), None, Some(3), Some(4)]);
        cache.insert("e", 5, 7);
        assert_eq!(cached(&cache, &["a", "c", "d", "e"]), [None, None, Some(4), Some(5)]);
    }

    #[test]
    fn a_cache_with_shards_finds_its_values_and_keeps_its_limit() {
        let cache = ByteLru::sharded(400, 4);
        for key in 0..1000 {
            cache.insert(key, key, 10);
        }
        let held: Vec<u32> = (0..1000).filter_map(|key: u32| cache.get(&key)).collect();
        assert_eq!(held.len(), 40, "each shard is full");
        assert!(held.iter().all(|key| cache.get(key) == Some(*key)));
        cache.insert(1000, 1000, 101);
        assert_eq!(cache.get(&1000), None, "larger than a shard");
    }

    #[test]
    fn a_replaced_value_frees_its_bytes() {
        let cache = ByteLru::new(10);
        cache.insert("other", 0, 1);
        for size in [9, 5, 9, 1] {
            cache.insert("key", 1, size);
        }
        cache.insert("third", 2, 8);
        assert_eq!(cached(&cache, &["other", "key", "third"]), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn a_value_larger_than_the_limit_is_not_cached_and_evicts_nothing() {
        let cache = ByteLru::new(10);
        cache.insert("small", 1, 5);
        cache.insert("key", 2, 5);
        cache.insert("key", 3, 11);
        assert_eq!(cached(&cache, &["small", "key"]), [Some(1), None], "the former value is outdated");
    }
}
