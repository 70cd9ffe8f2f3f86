//! The Services and addresses that the repair loop has to examine, by time.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use value::Backoff;

/// The delay of a key after failures.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_mins(1));

/// A Service or an address to examine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RepairKey {
    /// The storage key of a Service.
    Service(Arc<str>),
    Address(IpAddr),
}

/// Keys with the time at which they are due.
#[derive(Debug, Default)]
pub(super) struct RepairQueue {
    order: BTreeSet<(Instant, RepairKey)>,
    /// The time of each key, and the number of failures since the last success.
    keys: HashMap<RepairKey, (Instant, u32)>,
}

impl RepairQueue {
    /// Adds a key, or moves it if it is due later than `at`.
    pub(super) fn add(&mut self, key: RepairKey, at: Instant) {
        let failures = match self.keys.get(&key) {
            Some((planned, _)) if *planned <= at => return,
            Some((_, failures)) => *failures,
            None => 0,
        };
        self.plan(key, at, failures);
    }

    /// Adds a key again after a failure.
    pub(super) fn retry(&mut self, key: RepairKey, failures: u32, now: Instant) {
        self.plan(key, now + RETRY.after(failures), failures);
    }

    fn plan(&mut self, key: RepairKey, at: Instant, failures: u32) {
        self.remove(&key);
        self.order.insert((at, key.clone()));
        self.keys.insert(key, (at, failures));
    }

    pub(super) fn remove(&mut self, key: &RepairKey) {
        if let Some((at, _)) = self.keys.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// Takes the first key that is due, with its number of failures.
    pub(super) fn take(&mut self, now: Instant) -> Option<(RepairKey, u32)> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        let failures = self.keys.remove(&key).map_or(0, |(_, failures)| failures);
        Some((key, failures))
    }

    /// The time of the first key.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
