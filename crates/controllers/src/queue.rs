//! A work queue of keys: each key is queued at most once, is never processed twice at the same time, and is delayed after failures.
//!
//! Callers pass the current time in, so this is a plain data structure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;
use value::Backoff;

/// The result of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOutcome {
    /// The key is in its desired state.
    Done,
    /// The key must be processed again after this delay.
    After(Duration),
    /// Processing failed; the key is retried after its backoff.
    Failed,
}

#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    backoff: Backoff,
    ready: VecDeque<K>,
    waiting: BTreeMap<(Instant, u64), K>,
    keys: HashMap<K, KeyState>,
    tickets: u64,
}

#[derive(Debug)]
struct KeyState {
    stage: KeyStage,
    failures: u32,
}

#[derive(Debug)]
enum KeyStage {
    Ready,
    Waiting(Instant, u64),
    /// Being processed; to be processed again at this time.
    Busy(Option<Instant>),
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    pub(crate) fn new(backoff: Backoff) -> Self {
        WorkQueue {
            backoff,
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            keys: HashMap::new(),
            tickets: 0,
        }
    }

    /// Queues `key` for `at`, unless it is already queued for an earlier time.
    pub(crate) fn add(&mut self, key: K, at: Instant, now: Instant) {
        match self.keys.get_mut(&key) {
            None => self.plan(key, at, now, 0),
            Some(keys) => match &mut keys.stage {
                KeyStage::Busy(again) => *again = Some(again.map_or(at, |planned| planned.min(at))),
                KeyStage::Waiting(planned, ticket) if at < *planned => {
                    let (planned, ticket, failures) = (*planned, *ticket, keys.failures);
                    self.waiting.remove(&(planned, ticket));
                    self.plan(key, at, now, failures);
                }
                KeyStage::Ready | KeyStage::Waiting(..) => {}
            },
        }
    }

    /// Takes the next key that is due; the caller must pass it to `finish` afterwards.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if let Some(keys) = self.keys.get_mut(&key) {
                keys.stage = KeyStage::Ready;
            }
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        if let Some(keys) = self.keys.get_mut(&key) {
            keys.stage = KeyStage::Busy(None);
        }
        Some(key)
    }

    /// Records the outcome of a key that was taken. Returns its number of consecutive failures.
    pub(crate) fn finish(&mut self, key: K, outcome: KeyOutcome, now: Instant) -> u32 {
        let Some(keys) = self.keys.remove(&key) else { return 0 };
        let again = if let KeyStage::Busy(again) = keys.stage { again } else { None };
        let failures = if outcome == KeyOutcome::Failed { keys.failures.saturating_add(1) } else { 0 };
        let planned = match outcome {
            KeyOutcome::Done => None,
            KeyOutcome::After(wait) => Some(now + wait),
            KeyOutcome::Failed => Some(now + self.backoff.after(failures)),
        };
        let at = match (again, planned) {
            (Some(again), Some(planned)) => Some(again.min(planned)),
            (again, planned) => again.or(planned),
        };
        if let Some(at) = at {
            self.plan(key, at, now, failures);
        }
        failures
    }

    /// Time at which the earliest delayed key becomes due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    fn plan(&mut self, key: K, at: Instant, now: Instant, failures: u32) {
        let stage = if at <= now {
            self.ready.push_back(key.clone());
            KeyStage::Ready
        } else {
            self.tickets += 1;
            self.waiting.insert((at, self.tickets), key.clone());
            KeyStage::Waiting(at, self.tickets)
        };
        self.keys.insert(key, KeyState { stage, failures });
    }
}

#[cfg(test)]
mod tests;
