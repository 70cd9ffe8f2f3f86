//! [`Map`]: a vector of entries sorted by key.
//!
//! Objects have few keys, are read far more often than changed, and are written in key order: a sorted vector is
//! better at all three than a tree or a hash table.

use crate::{Str, Value, steps};

/// With more keys than this, lookups use a binary search.
const MAX_SCANNED_KEYS: usize = 16;

/// Up to this many new entries are inserted one by one.
const MAX_SINGLE_INSERTS: usize = 8;

/// A map from strings to values, sorted by key (bytewise, as Go's encoder sorts).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    // INVARIANT: strictly ascending by key.
    entries: Vec<(Str, Value)>,
}

impl Map {
    /// Bytes of memory that are reserved for further entries.
    pub(crate) fn unused_bytes(&self) -> usize {
        let unused = self.entries.capacity().saturating_sub(self.entries.len());
        unused.saturating_mul(size_of::<(Str, Value)>())
    }

    /// A map without entries.
    pub const fn new() -> Self {
        Map { entries: Vec::new() }
    }

    /// An empty map with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Map { entries: Vec::with_capacity(capacity) }
    }

    /// Number of entries in the map.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Index of `key`, or the index at which to insert it.
    fn find(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// Index of `key`. Small maps are scanned, which is faster than a binary search, because keys of different
    /// lengths need no comparison.
    fn position(&self, key: &str) -> Option<usize> {
        steps::count(1);
        if self.entries.len() <= MAX_SCANNED_KEYS {
            return self.entries.iter().position(|(k, _)| same(k.as_bytes(), key.as_bytes()));
        }
        self.find(key).ok()
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        let at = self.position(key)?;
        self.entries.get(at).map(|(_, v)| v)
    }

    /// The value at `key`, for modification.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let at = self.position(key)?;
        self.entries.get_mut(at).map(|(_, v)| v)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Inserts or replaces the value at `key`; returns the previous value.
    pub fn insert(&mut self, key: impl Into<Str> + AsRef<str>, value: impl Into<Value>) -> Option<Value> {
        steps::count(1);
        // Readers of canonical JSON insert in order, so that appending is the common case.
        if self.entries.last().is_none_or(|(last, _)| last.as_str() < key.as_ref()) {
            self.entries.push((key.into(), value.into()));
            return None;
        }
        match self.find(key.as_ref()) {
            Ok(at) => self.entries.get_mut(at).map(|(_, old)| std::mem::replace(old, value.into())),
            Err(at) => {
                steps::count(self.entries.len() - at);
                self.entries.insert(at, (key.into(), value.into()));
                None
            }
        }
    }

    /// The value at `key`; inserts the result of `make` if there is none.
    pub fn entry_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Value) -> &mut Value {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(at) => {
                steps::count(self.entries.len() - at);
                self.entries.insert(at, (key.into(), make()));
                at
            }
        };
        #[expect(clippy::indexing_slicing, reason = "`at` was found or inserted just above")]
        &mut self.entries[at].1
    }

    /// Removes and returns the value at `key`.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.position(key)?;
        steps::count(self.entries.len() - at);
        Some(self.entries.remove(at).1)
    }

    /// Removes the entries for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&Str, &mut Value) -> bool) {
        self.entries.retain_mut(|(k, v)| keep(k, v));
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Value)> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|(k, v)| {
            steps::count(1);
            (k, v)
        })
    }

    /// All entries in key order, with mutable values.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&Str, &mut Value)> {
        self.entries.iter_mut().map(|(k, v)| (&*k, v))
    }

    /// All keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Str> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|(k, _)| {
            steps::count(1);
            k
        })
    }

    /// All values in key order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|(_, v)| {
            steps::count(1);
            v
        })
    }

    /// The entry at a position in key order.
    pub fn entry_at(&self, position: usize) -> Option<(&Str, &Value)> {
        self.entries.get(position).map(|(k, v)| (k, v))
    }

    /// Builds a map from entries in any order. The last entry of a key wins; returns the repeated keys, each as often
    /// as it was repeated.
    pub fn from_entries(mut entries: Vec<(Str, Value)>) -> (Self, Vec<Str>) {
        let mut repeated = Vec::new();
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b)); // stable: of equal keys the last stays last
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    repeated.push(later.0.clone());
                    std::mem::swap(later, earlier);
                }
                same
            });
        }
        entries.shrink_to_fit();
        (Map { entries }, repeated)
    }
}

/// Compares two keys. Keys of at most sixteen bytes, the majority, are compared as two words.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if let (Some(a_head), Some(b_head), Some(a_tail), Some(b_tail)) =
        (a.first_chunk::<8>(), b.first_chunk::<8>(), a.last_chunk::<8>(), b.last_chunk::<8>())
    {
        return a_head == b_head && a_tail == b_tail && (a.len() <= 16 || a == b);
    }
    if let (Some(a_head), Some(b_head), Some(a_tail), Some(b_tail)) =
        (a.first_chunk::<4>(), b.first_chunk::<4>(), a.last_chunk::<4>(), b.last_chunk::<4>())
    {
        return a_head == b_head && a_tail == b_tail;
    }
    a.iter().zip(b).all(|(a, b)| a == b)
}

impl FromIterator<(Str, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Str, Value)>>(entries: I) -> Self {
        Map::from_entries(entries.into_iter().collect()).0
    }
}

/// Inserts or replaces entries. Many are inserted at once: one by one, each would move all later entries of the map.
impl Extend<(Str, Value)> for Map {
    fn extend<I: IntoIterator<Item = (Str, Value)>>(&mut self, added: I) {
        let mut added = added.into_iter();
        for (key, value) in added.by_ref().take(MAX_SINGLE_INSERTS) {
            self.insert(key, value);
        }
        let Some(next) = added.next() else { return };
        self.entries.push(next);
        self.entries.extend(added);
        steps::count(self.entries.len());
        *self = Map::from_entries(std::mem::take(&mut self.entries)).0;
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}
