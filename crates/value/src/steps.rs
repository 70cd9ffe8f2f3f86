//! Counts accesses to trees, for tests that algorithms are not quadratic.
//!
//! With the feature `steps`, every access to a key, item, string or number, every comparison, and every entry moved
//! by an insertion or removal counts as a step of the current thread. Without the feature there is no overhead.

#[cfg(feature = "steps")]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Adds steps to the counter of this thread.
    #[inline]
    pub(crate) fn count(steps: usize) {
        STEPS.with(|counter| counter.set(counter.get().saturating_add(steps as u64)));
    }

    /// Runs `work` and returns its steps on this thread.
    pub fn of(work: impl FnOnce()) -> u64 {
        let before = STEPS.with(Cell::get);
        work();
        STEPS.with(Cell::get).saturating_sub(before)
    }
}

#[cfg(feature = "steps")]
pub(crate) use counted::count;
#[cfg(feature = "steps")]
pub use counted::of;

/// Without the feature `steps`, counts nothing.
#[cfg(not(feature = "steps"))]
#[inline]
pub(crate) fn count(_: usize) {}
