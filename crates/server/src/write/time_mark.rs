//! [`TimeMark`]: measures the age of data that a write depends on.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A point in time by two clocks: the monotonic clock of a virtual machine may stop while the machine is paused, and the wall clock may be
/// set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeMark {
    monotonic: Instant,
    wall: SystemTime,
}

impl TimeMark {
    pub(crate) fn now() -> Self {
        TimeMark { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The time that has passed: the longer one of the times of both clocks.
    pub(crate) fn elapsed(&self) -> Duration {
        self.monotonic.elapsed().max(self.wall.elapsed().unwrap_or_default())
    }
}
