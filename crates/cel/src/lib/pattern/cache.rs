//! A least-recently-used cache of patterns compiled from data. Cached patterns are charged like new ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Pattern;

/// Upper bound of cached patterns.
const MAX_PATTERNS: usize = 32;
/// Upper bound of the cached patterns' total work. A unit takes about 30 bytes, so this bounds memory too.
const MAX_WORK: u64 = 400_000;

static CACHE: Mutex<PatternCache> = Mutex::new(PatternCache { patterns: VecDeque::new(), work: 0 });

struct PatternCache {
    /// In order of use, latest last.
    patterns: VecDeque<Arc<Pattern>>,
    work: u64,
}

fn cache() -> MutexGuard<'static, PatternCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds a cached pattern and marks it as used.
pub(super) fn get(text: &str) -> Option<Arc<Pattern>> {
    let mut cache = cache();
    let at = cache.patterns.iter().position(|pattern| pattern.text() == text)?;
    let found = cache.patterns.remove(at)?;
    cache.patterns.push_back(Arc::clone(&found));
    Some(found)
}

/// Caches a pattern and evicts the oldest while a limit is exceeded.
pub(super) fn put(pattern: &Arc<Pattern>) {
    let mut cache = cache();
    if cache.patterns.iter().any(|known| known.text() == pattern.text()) {
        return;
    }
    cache.work += pattern.work();
    cache.patterns.push_back(Arc::clone(pattern));
    while cache.patterns.len() > MAX_PATTERNS || cache.work > MAX_WORK {
        let Some(oldest) = cache.patterns.pop_front() else { break };
        cache.work = cache.work.saturating_sub(oldest.work());
    }
}
