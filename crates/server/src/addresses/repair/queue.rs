//! The Services and addresses that the repair loop has to examine, by time.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Delay after a failure: doubles from the first to the second.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_mins(1);

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
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let wait = FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY);
        self.plan(key, now + wait, failures);
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
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{RepairKey, RepairQueue};

    fn key(last: u8) -> RepairKey {
        RepairKey::Address(std::net::Ipv4Addr::new(10, 0, 0, last).into())
    }

    #[test]
    fn keys_are_taken_when_they_are_due() {
        let now = Instant::now();
        let mut queue = RepairQueue::default();
        queue.add(key(1), now + Duration::from_mins(1));
        queue.add(key(2), now);
        assert_eq!(queue.take(now), Some((key(2), 0)));
        assert_eq!(queue.take(now), None);
        queue.add(key(1), now);
        assert_eq!(queue.take(now), Some((key(1), 0)), "a key moves to an earlier time");
        assert_eq!(queue.due(), None);
    }

    #[test]
    fn a_removed_key_is_not_taken() {
        let now = Instant::now();
        let mut queue = RepairQueue::default();
        queue.add(key(1), now);
        queue.remove(&key(1));
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn failures_delay_a_key_longer_and_longer() {
        let now = Instant::now();
        let mut queue = RepairQueue::default();
        queue.retry(key(1), 1, now);
        let first = queue.due().unwrap();
        queue.retry(key(1), 20, now);
        assert!(first > now && queue.due().unwrap() > first);
        assert_eq!(queue.take(now + Duration::from_mins(1)), Some((key(1), 20)));
    }
}
