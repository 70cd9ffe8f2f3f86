//! Compiled patterns that come from data, for the next evaluation that meets them. What they count is the same as for new ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Pattern;

/// How many patterns are kept.
const MAX_PATTERNS: usize = 32;
/// The units of work that all kept patterns may have taken. This bounds their memory as well: a unit is about 30 bytes.
const MAX_WORK: u64 = 400_000;

static CACHE: Mutex<PatternCache> = Mutex::new(PatternCache { patterns: VecDeque::new(), work: 0 });

struct PatternCache {
    /// The one used last is at the end.
    patterns: VecDeque<Arc<Pattern>>,
    work: u64,
}

fn cache() -> MutexGuard<'static, PatternCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pattern of a text, if it is kept.
pub(super) fn get(text: &str) -> Option<Arc<Pattern>> {
    let mut cache = cache();
    let at = cache.patterns.iter().position(|pattern| pattern.text() == text)?;
    let found = cache.patterns.remove(at)?;
    cache.patterns.push_back(Arc::clone(&found));
    Some(found)
}

/// Keeps a pattern, and as many of the others as there is room for.
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
