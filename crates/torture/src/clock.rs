//! The time of a run.

use std::time::Instant;

/// Counts microseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct RunClock(Instant);

impl RunClock {
    pub fn start() -> RunClock {
        RunClock(Instant::now())
    }

    pub fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
