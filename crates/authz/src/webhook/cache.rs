//! A cache of webhook decisions, by the text of the review.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::webhook::response::ReviewVerdict;

/// The oldest entries are evicted first.
const CAPACITY: usize = 8192;

#[derive(Default)]
pub(super) struct ReviewCache {
    entries: Mutex<ReviewCacheEntries>,
}

#[derive(Default)]
struct ReviewCacheEntries {
    by_key: HashMap<String, (Instant, ReviewVerdict)>,
    /// Keys in the order of insertion. A key that was inserted again occurs twice.
    order: VecDeque<String>,
}

impl ReviewCache {
    /// The decision, unless it has expired.
    pub(super) fn get(&self, key: &str, now: Instant) -> Option<ReviewVerdict> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, verdict) = entries.by_key.get(key)?;
        (now < *until).then(|| verdict.clone())
    }

    /// Caches a decision. `ttl` is `None` if caching is disabled.
    pub(super) fn put(&self, key: &str, verdict: &ReviewVerdict, ttl: Option<Duration>, now: Instant) {
        let Some(until) = ttl.and_then(|ttl| now.checked_add(ttl)) else { return };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        while entries.order.len() >= CAPACITY {
            let Some(oldest) = entries.order.pop_front() else { break };
            entries.by_key.remove(&oldest);
        }
        entries.order.push_back(key.to_owned());
        entries.by_key.insert(key.to_owned(), (until, verdict.clone()));
    }
}
