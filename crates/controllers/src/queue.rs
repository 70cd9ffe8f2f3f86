//! Keys that wait to be worked on: each at most once, never twice at the same time, later and later after failures.
//!
//! Time is given in, so that this is a plain data structure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// How long to wait after failures: `first`, then twice that, and so on up to `longest`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The wait after the `failures`th failure in a row.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.checked_mul(factor).unwrap_or(self.longest).min(self.longest)
    }
}

/// What came of working on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is as it should be.
    Done,
    /// It must be looked at again after a while.
    After(Duration),
    /// It did not work.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Queue<K> {
    backoff: Backoff,
    ready: VecDeque<K>,
    waiting: BTreeMap<(Instant, u64), K>,
    known: HashMap<K, Known>,
    tickets: u64,
}

#[derive(Debug)]
struct Known {
    stage: Stage,
    failures: u32,
}

#[derive(Debug)]
enum Stage {
    Ready,
    Waiting(Instant, u64),
    /// Being worked on; to be worked on again at that time.
    Busy(Option<Instant>),
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Queue { backoff, ready: VecDeque::new(), waiting: BTreeMap::new(), known: HashMap::new(), tickets: 0 }
    }

    /// Wants `key` worked on at `at`, or earlier if that is planned already.
    pub(crate) fn add(&mut self, key: K, at: Instant, now: Instant) {
        match self.known.get_mut(&key) {
            None => self.plan(key, at, now, 0),
            Some(known) => match &mut known.stage {
                Stage::Busy(again) => *again = Some(again.map_or(at, |planned| planned.min(at))),
                Stage::Waiting(planned, ticket) if at < *planned => {
                    let (planned, ticket, failures) = (*planned, *ticket, known.failures);
                    self.waiting.remove(&(planned, ticket));
                    self.plan(key, at, now, failures);
                }
                Stage::Ready | Stage::Waiting(..) => {}
            },
        }
    }

    /// The next key to work on.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if let Some(known) = self.known.get_mut(&key) {
                known.stage = Stage::Ready;
            }
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        if let Some(known) = self.known.get_mut(&key) {
            known.stage = Stage::Busy(None);
        }
        Some(key)
    }

    /// Says what came of a key that was taken. Returns how often in a row it has failed now.
    pub(crate) fn finish(&mut self, key: K, outcome: Outcome, now: Instant) -> u32 {
        let Some(known) = self.known.remove(&key) else { return 0 };
        let again = if let Stage::Busy(again) = known.stage { again } else { None };
        let failures = if outcome == Outcome::Failed { known.failures.saturating_add(1) } else { 0 };
        let planned = match outcome {
            Outcome::Done => None,
            Outcome::After(wait) => Some(now + wait),
            Outcome::Failed => Some(now + self.backoff.after(failures)),
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

    /// When the next key that waits is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    fn plan(&mut self, key: K, at: Instant, now: Instant, failures: u32) {
        let stage = if at <= now {
            self.ready.push_back(key.clone());
            Stage::Ready
        } else {
            self.tickets += 1;
            self.waiting.insert((at, self.tickets), key.clone());
            Stage::Waiting(at, self.tickets)
        };
        self.known.insert(key, Known { stage, failures });
    }
}

#[cfg(test)]
mod tests;
