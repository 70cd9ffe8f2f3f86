//! Counts how often a tree is looked at, for tests that no rule looks at a list once for each of its items.
//!
//! With the feature `steps`, every access to a key, an item, a text or a number, every comparison, and every entry that an insertion
//! or removal moves is a step of the thread. Without it nothing is counted and nothing costs anything.

#[cfg(feature = "steps")]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Adds steps to those of this thread.
    #[inline]
    pub(crate) fn count(steps: usize) {
        STEPS.with(|counter| counter.set(counter.get().saturating_add(steps as u64)));
    }

    /// The steps that `work` takes on this thread.
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

/// Nothing is counted.
#[cfg(not(feature = "steps"))]
#[inline]
pub(crate) fn count(_: usize) {}
