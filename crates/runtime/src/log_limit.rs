//! [`LogLimit`]: a rate limit for a log line.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use value::TokenBucket;

/// Limits a log line that a client can cause once per request or connection, so that no client fills the log: after a burst, which is one
/// line by default, the line is logged once every ten seconds, with the number of lines suppressed since.
#[derive(Debug)]
pub struct LogLimit {
    burst: u32,
    state: Mutex<LogLimitState>,
}

#[derive(Debug)]
struct LogLimitState {
    /// The time of the first line, from which the bucket counts.
    bucket: Option<(Instant, TokenBucket)>,
    unlogged: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        LogLimit::new()
    }
}

impl LogLimit {
    const EVERY: Duration = Duration::from_secs(10);

    /// A limit without a burst, for lines that say the same each time.
    pub const fn new() -> Self {
        LogLimit::with_burst(1)
    }

    /// A limit for lines that differ, such as by the name of an object: the first `burst` lines are logged.
    pub const fn with_burst(burst: u32) -> Self {
        LogLimit { burst, state: Mutex::new(LogLimitState { bucket: None, unlogged: 0 }) }
    }

    /// `None` if the line must not be logged now, otherwise the number of lines suppressed since the last
    /// one.
    pub fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let LogLimitState { bucket, unlogged } = &mut *state;
        let (first, bucket) = bucket.get_or_insert_with(|| {
            (now, TokenBucket::new(Self::EVERY.as_secs_f64().recip(), self.burst, Duration::ZERO))
        });
        if bucket.take(now.saturating_duration_since(*first)) {
            return Some(std::mem::take(unlogged));
        }
        *unlogged = unlogged.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(limit: &LogLimit, start: Instant, seconds: &[u64]) -> Vec<Option<u64>> {
        seconds.iter().map(|second| limit.due_at(start + Duration::from_secs(*second))).collect()
    }

    #[test]
    fn a_log_line_is_let_through_every_ten_seconds() {
        let due = at(&LogLimit::new(), Instant::now(), &[0, 1, 9, 10, 11, 100]);
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn lines_that_differ_may_come_in_a_burst() {
        let due = at(&LogLimit::with_burst(2), Instant::now(), &[0, 0, 0, 1, 10, 10, 50, 50, 50]);
        assert_eq!(due, [Some(0), Some(0), None, None, Some(2), None, Some(1), Some(0), None]);
    }
}
