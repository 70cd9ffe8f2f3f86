//! Backoff for namespaces whose claims exceed the budget of the device search.

use std::time::Duration;

use tokio::time::Instant;
use value::Backoff;

/// The first pause; each consecutive one is twice as long.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(5);

/// The time before which no devices are searched for pods of a namespace. The pause covers the namespace because a user who can create
/// claims can usually create any number of pods, which would evade a pause per pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    until: Instant,
    backoff: Backoff,
    pub(super) length: Duration,
}

impl Pause {
    /// The pause that follows `former`, or the first one.
    pub(super) fn after(former: Option<&Pause>, now: Instant) -> Self {
        let mut backoff = former.map_or(Backoff::new(FIRST, LONGEST), |former| former.backoff);
        let length = backoff.fail();
        Pause { until: now + length, backoff, length }
    }

    /// Reports whether the pause ended so long ago that the next one starts from the minimum again.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        self.until + LONGEST < now
    }

    /// Remaining time; `None` once it is over.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn scheduling_pauses_grow_up_to_a_maximum_and_expire() {
        let now = Instant::now();
        let first = Pause::after(None, now);
        assert_eq!(first.left(now), Some(FIRST));
        assert_eq!(first.left(now + FIRST), None);
        let mut last = first;
        for _ in 0..20 {
            last = Pause::after(Some(&last), now);
        }
        assert_eq!(last.left(now), Some(LONGEST));
    }
}
