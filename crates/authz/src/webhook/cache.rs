//! Answers kept for a while, by the text of the question.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::webhook::answer::Verdict;

/// How many answers are kept at most; the oldest make room.
const CAPACITY: usize = 8192;

#[derive(Default)]
pub(super) struct Cache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<String, (Instant, Verdict)>,
    /// Keys in the order they came; one that came again stands twice.
    order: VecDeque<String>,
}

impl Cache {
    /// The answer to a question, if it is still good.
    pub(super) fn get(&self, key: &str, now: Instant) -> Option<Verdict> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, verdict) = entries.by_key.get(key)?;
        (now < *until).then(|| verdict.clone())
    }

    /// Keeps an answer, unless it is not to be kept.
    pub(super) fn put(&self, key: &str, verdict: &Verdict, ttl: Option<Duration>, now: Instant) {
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
