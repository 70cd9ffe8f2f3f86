//! The time, which tests inject.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A clock: the time since a fixed moment.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that calls this function.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The monotonic clock of the system.
    pub fn system() -> Clock {
        let start = Instant::now();
        Clock::new(move || start.elapsed())
    }

    /// The time of day of the system, since the Unix epoch.
    pub fn since_epoch() -> Clock {
        Clock::new(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

impl Deref for Clock {
    type Target = dyn Fn() -> Duration + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
