//! Measures how long CEL rules take, for metrics. This crate does not read a clock, so the [`Stopwatch`] also provides the time.

use std::fmt::Debug;
use std::time::Duration;

/// Provides the time and receives durations.
pub trait Stopwatch: Debug + Send + Sync {
    /// Time since an arbitrary fixed instant.
    fn now(&self) -> Duration;

    /// The rules of one schema were compiled.
    fn compiled(&self, took: Duration);

    /// The rules of one schema and of the schemas below it were run on a value.
    fn evaluated(&self, took: Duration);
}

/// Runs `work` and reports its duration through `report`.
pub(crate) fn timed<T>(
    watch: Option<&dyn Stopwatch>,
    report: fn(&dyn Stopwatch, Duration),
    work: impl FnOnce() -> T,
) -> T {
    let start = watch.map(Stopwatch::now);
    let done = work();
    if let Some((watch, start)) = watch.zip(start) {
        report(watch, watch.now().saturating_sub(start));
    }
    done
}
