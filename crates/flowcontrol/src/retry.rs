//! Computes `Retry-After` for rejected requests: the more requests of a level are rejected, the longer.

use std::collections::VecDeque;

/// Maximum value of `Retry-After`, in seconds.
const MAX_RETRY_AFTER: u64 = 32;

/// The rejections of one priority level, by second.
#[derive(Debug)]
pub struct RetryAfter {
    /// The current value of `Retry-After`.
    seconds: u64,
    /// Unix time in seconds at which it was last raised.
    raised: u64,
    /// The current second, and its number of rejections.
    current: (u64, u64),
    /// Earlier seconds with their rejections, oldest first.
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        RetryAfter { seconds: 1, raised: 0, current: (0, 0), history: VecDeque::new() }
    }
}

impl RetryAfter {
    /// Records a rejected request at this Unix time in seconds. Returns the value of `Retry-After` in seconds.
    pub fn record_rejection(&mut self, second: u64) -> u64 {
        if self.current.0 == second {
            self.current.1 += 1;
            return self.seconds;
        }
        let previous = std::mem::replace(&mut self.current, (second, 1));
        self.history.push_back(previous);
        let doubled = (2 * self.seconds).min(MAX_RETRY_AFTER);
        while self.history.front().is_some_and(|(then, _)| previous.0.saturating_sub(*then) > doubled) {
            self.history.pop_front();
        }
        self.adjust(second);
        self.seconds
    }

    /// Examines the last `seconds` seconds, without the current one: doubles `seconds` if they had three rejections per second, decrements
    /// it if they had less than one. After it was raised, it is not raised again for that many seconds.
    fn adjust(&mut self, second: u64) {
        let window = self.seconds;
        let seconds =
            self.history.iter().rev().take_while(|(then, _)| second.saturating_sub(*then) <= window);
        let total_rejections: u64 =
            seconds.filter(|(then, _)| *then < second).map(|(_, rejections)| rejections).sum();
        if second.saturating_sub(self.raised) >= window && total_rejections >= 3 * window {
            self.seconds = (2 * window).min(MAX_RETRY_AFTER);
            self.raised = second;
        } else if total_rejections < window && window > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_grows_while_rejections_continue_and_shrinks_when_they_stop() {
        let mut level = RetryAfter::default();
        let mut reject_times =
            |second: u64, times: u64| (0..times).map(|_| level.record_rejection(second)).last().unwrap();
        assert_eq!(reject_times(1000, 5), 1, "a first burst is not known to last");
        assert_eq!(reject_times(1001, 5), 2);
        assert_eq!(reject_times(1002, 5), 2, "it was just raised");
        assert_eq!(reject_times(1003, 5), 4);
        assert_eq!(reject_times(1007, 20), 4, "5 refusals in the 4 seconds before are neither many nor few");
        assert_eq!(reject_times(1008, 1), 8);
        assert_eq!(reject_times(1100, 1), 7, "a quiet time lowers it by one");
        for second in 1101..1400 {
            reject_times(second, 100);
        }
        assert_eq!(reject_times(1400, 1), 32);
    }
}
