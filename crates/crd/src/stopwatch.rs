//! How long rules take, for whoever counts it. Nothing that decides reads a clock, so time comes from there, too.

use std::fmt::Debug;
use std::time::Duration;

/// Who is told.
pub trait Stopwatch: Debug + Send + Sync {
    /// The time since a moment that stays the same.
    fn now(&self) -> Duration;

    /// The rules of one schema were compiled.
    fn compiled(&self, took: Duration);

    /// The rules of one schema, and of those below it, were run on a value.
    fn evaluated(&self, took: Duration);
}

/// Does something and tells how long it took.
pub(crate) fn timed<T>(
    watch: Option<&dyn Stopwatch>,
    tell: fn(&dyn Stopwatch, Duration),
    work: impl FnOnce() -> T,
) -> T {
    let start = watch.map(Stopwatch::now);
    let done = work();
    if let Some((watch, start)) = watch.zip(start) {
        tell(watch, watch.now().saturating_sub(start));
    }
    done
}
