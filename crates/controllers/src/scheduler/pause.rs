//! How long a namespace waits whose claims cost too much.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause; each one in a row is twice as long.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(5);

/// A time before which no devices are searched for the pods of a namespace. Whoever can create claims in it can create any number of
/// pods, so that a pause of one pod would be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    until: Instant,
    pub(super) length: Duration,
}

impl Pause {
    /// The pause after another one, if there was any.
    pub(super) fn after(former: Option<&Pause>, now: Instant) -> Self {
        let length = former.map_or(FIRST, |former| former.length.saturating_mul(2).min(LONGEST));
        Pause { until: now + length, length }
    }

    /// Whether it is too long ago for another one to follow it.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        self.until + LONGEST < now
    }

    /// How much of it is left.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_become_longer_and_end() {
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
