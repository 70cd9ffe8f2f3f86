//! A cache of patterns compiled from data. Cached patterns are charged like new ones.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use value::LruCache;

use super::Pattern;

/// Upper bound of cached patterns.
const MAX_PATTERNS: usize = 32;
/// Upper bound of the cached patterns' total work. A unit takes about 30 bytes, so this bounds memory too.
const MAX_WORK: u64 = 400_000;

/// Patterns by their text.
type PatternCache = LruCache<Arc<str>, Arc<Pattern>>;

static CACHE: LazyLock<Mutex<PatternCache>> =
    LazyLock::new(|| Mutex::new(LruCache::weighted(MAX_PATTERNS, MAX_WORK)));

fn cache() -> MutexGuard<'static, PatternCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds a cached pattern and marks it as used.
pub(super) fn get(text: &str) -> Option<Arc<Pattern>> {
    cache().get(text).cloned()
}

/// Caches a pattern, unless its work alone exceeds the limit.
pub(super) fn put(pattern: &Arc<Pattern>) {
    cache().insert_weighted(Arc::clone(&pattern.text), Arc::clone(pattern), pattern.work());
}
