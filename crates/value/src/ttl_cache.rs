//! [`TtlCache`]: a bounded map whose entries expire.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// At most `capacity` entries, each valid for a range of times `T` that its insertion gives.
///
/// A full cache evicts the entry that was inserted longest ago; inserting a key again makes it the newest. Reading does not
/// change the order. The caller passes the time, so that nothing here reads a clock.
pub struct TtlCache<K, V, T> {
    capacity: usize,
    entries: Mutex<TtlEntries<K, V, T>>,
}

struct TtlEntries<K, V, T> {
    by_key: HashMap<K, TtlEntry<V, T>>,
    /// Keys by [`TtlEntry::insertion`], the oldest first.
    by_insertion: BTreeMap<u64, K>,
    insertions: u64,
}

struct TtlEntry<V, T> {
    value: V,
    valid: Range<T>,
    /// The number of insertions into the cache before this one.
    insertion: u64,
}

impl<K: Clone + Eq + Hash, V: Clone, T: Copy + Ord> TtlCache<K, V, T> {
    pub fn new(capacity: usize) -> Self {
        let entries = TtlEntries { by_key: HashMap::new(), by_insertion: BTreeMap::new(), insertions: 0 };
        TtlCache { capacity, entries: Mutex::new(entries) }
    }

    fn lock(&self) -> MutexGuard<'_, TtlEntries<K, V, T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key, if it is valid at `now`.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: T) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let entries = self.lock();
        entries.by_key.get(key).filter(|entry| entry.valid.contains(&now)).map(|entry| entry.value.clone())
    }

    /// Inserts a value that is valid from the first time up to, but without, the second. A clock that is set back to before
    /// the first time makes the entry invalid, not eternal.
    pub fn insert(&self, key: K, value: V, valid: Range<T>) {
        let entries = &mut *self.lock();
        let insertion = entries.insertions;
        entries.insertions += 1;
        let former = entries.by_key.insert(key.clone(), TtlEntry { value, valid, insertion });
        if let Some(former) = former {
            entries.by_insertion.remove(&former.insertion);
        }
        entries.by_insertion.insert(insertion, key);
        if entries.by_insertion.len() > self.capacity
            && let Some((_, oldest)) = entries.by_insertion.pop_first()
        {
            entries.by_key.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TtlCache;

    #[test]
    fn an_entry_is_valid_from_its_insertion_until_it_expires() {
        let cache = TtlCache::new(1);
        cache.insert("key", 1, 10..20);
        let found: Vec<Option<i32>> = [9, 10, 19, 20].iter().map(|now| cache.get("key", *now)).collect();
        assert_eq!(found, [None, Some(1), Some(1), None]);
        assert_eq!(cache.get("other", 10), None);
    }

    #[test]
    fn a_full_cache_evicts_the_entry_that_was_inserted_longest_ago() {
        let cache = TtlCache::new(2);
        for key in ["a", "b", "c"] {
            cache.insert(key, (), 0..9);
        }
        assert_eq!(["a", "b", "c"].map(|key| cache.get(key, 0)), [None, Some(()), Some(())]);
    }

    #[test]
    fn a_key_that_was_inserted_again_is_not_evicted_with_its_first_insertion() {
        let cache = TtlCache::new(3);
        for (key, value) in [("again", 1), ("a", 2), ("again", 3), ("b", 4), ("c", 5)] {
            cache.insert(key, value, 0..9);
        }
        assert_eq!(["again", "a", "b", "c"].map(|key| cache.get(key, 0)), [Some(3), None, Some(4), Some(5)]);
    }

    #[test]
    fn a_key_that_is_inserted_often_does_not_displace_others() {
        let cache = TtlCache::new(2);
        cache.insert("other", 0, 0..9);
        (0..10).for_each(|n| cache.insert("again", n, 0..9));
        assert_eq!((cache.get("other", 0), cache.get("again", 0)), (Some(0), Some(9)));
    }
}
