//! [`TokenBucket`]: a rate limit that permits bursts.

use std::time::Duration;

/// Holds up to `burst` tokens, is full at first, and is refilled at a steady rate, like Go's `rate.Limiter`.
///
/// Times are durations since any fixed point; the caller passes them, and time that goes back adds no tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// Below zero while callers of [`TokenBucket::reserve`] wait.
    tokens: f64,
    updated: Duration,
}

impl TokenBucket {
    /// A full bucket that is refilled by `per_second` tokens.
    pub fn new(per_second: f64, burst: u32, now: Duration) -> Self {
        let burst = f64::from(burst);
        TokenBucket { per_second, burst, tokens: burst, updated: now }
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.updated).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.updated = now;
    }

    /// Takes a token. Returns false if there is none.
    #[must_use]
    pub fn take(&mut self, now: Duration) -> bool {
        self.refill(now);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }

    /// Takes a token, maybe one that is not there yet, and returns the time until it is.
    #[must_use]
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        let missing = (-self.tokens).max(0.0);
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::TokenBucket;

    const START: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Duration {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_bucket_permits_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(0.5, 2, START);
        let taken = [0, 0, 0, 1, 2, 3, 4].map(|seconds| bucket.take(at(seconds)));
        assert_eq!(taken, [true, true, false, false, true, false, true]);
        // A long pause fills it, and not more than fills it.
        assert_eq!([100, 100, 100].map(|seconds| bucket.take(at(seconds))), [true, true, false]);
    }

    #[test]
    fn reserved_tokens_are_waited_for_in_turn() {
        let mut bucket = TokenBucket::new(1.0, 2, START);
        assert_eq!([0, 0, 0, 0, 1].map(|s| bucket.reserve(at(s)).as_secs()), [0, 0, 1, 2, 2]);
        assert_eq!([60, 60, 60].map(|s| bucket.reserve(at(s)).as_secs()), [0, 0, 1]);
    }

    #[test]
    fn time_that_goes_back_adds_no_tokens() {
        let mut bucket = TokenBucket::new(1.0, 1, START);
        assert!(bucket.take(at(10)) && !bucket.take(at(5)) && bucket.take(at(6)));
    }
}
