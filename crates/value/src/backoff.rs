//! Exponential backoff: the delays between attempts.

use std::time::Duration;

/// Delays that double with every consecutive failure, up to a maximum. The caller waits; nothing here reads a clock.
///
/// ```
/// use std::time::Duration;
/// use value::Backoff;
///
/// let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3));
/// assert_eq!([backoff.fail(), backoff.fail(), backoff.fail()].map(|delay| delay.as_secs()), [1, 2, 3]);
/// backoff.reset();
/// assert_eq!(backoff.next().as_secs(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Consecutive failures so far.
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Backoff { first, longest, failures: 0 }
    }

    /// The delay after the `failures`th consecutive failure.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.checked_mul(factor).unwrap_or(self.longest).min(self.longest)
    }

    /// The delay that the next failure causes.
    #[must_use]
    pub fn next(self) -> Duration {
        self.after(self.failures.saturating_add(1))
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn fail(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.after(self.failures)
    }

    /// Starts with the first delay again, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn delays_double_up_to_the_longest_and_never_overflow() {
        let backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
        let millis = |failures| backoff.after(failures).as_millis();
        assert_eq!([1, 2, 3, 8, 9].map(millis), [5, 10, 20, 640, 1000]);
        assert_eq!([33, u32::MAX].map(millis), [1000, 1000]);
        let mut last = backoff;
        for _ in 0..40 {
            last.fail();
        }
        assert_eq!(last.next(), Duration::from_secs(1));
        last.reset();
        assert_eq!(last, backoff);
    }
}
