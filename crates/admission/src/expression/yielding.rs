//! Cooperative scheduling: a request with thousands of policies or parameters yields to other tasks between
//! evaluations.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Cost of expressions after which a task yields; a few milliseconds of work.
const COST_PER_TURN: u64 = 200_000;
/// The cost of one evaluation besides its expressions.
const EVALUATION_OVERHEAD: u64 = 200;

/// The cost of one unit of regular expression compilation.
const PATTERN_WORK_COST: u64 = 5;

thread_local! {
    /// Cost of the evaluations after which tasks yielded, since [`take_yielded_cost`] was last called on this
    /// thread.
    static YIELDED_COST: Cell<u64> = const { Cell::new(0) };
}

/// Returns and resets the cost of the evaluations after which tasks on this thread yielded. Call it before
/// and after polling a request to learn the cost of its evaluations.
pub fn take_yielded_cost() -> u64 {
    YIELDED_COST.take()
}

/// Counts the cost of evaluations since the task last yielded.
#[derive(Debug, Default)]
pub struct YieldPacer {
    work: AtomicU64,
}

impl YieldPacer {
    pub fn add(&self, cost: u64) {
        // Only one task counts, so load and store need not be atomic together.
        let work = self.work.load(Ordering::Relaxed).saturating_add(cost).saturating_add(EVALUATION_OVERHEAD);
        self.work.store(work, Ordering::Relaxed);
    }

    /// Counts an evaluation with the work of its regular expressions.
    pub fn add_work(&self, cost: u64, pattern_work: u64) {
        self.add(cost.saturating_add(pattern_work.saturating_mul(PATTERN_WORK_COST)));
    }

    pub fn is_due(&self) -> bool {
        self.work.load(Ordering::Relaxed) >= COST_PER_TURN
    }

    /// Yields to other tasks.
    pub async fn yield_now(&self) {
        let work = self.work.swap(0, Ordering::Relaxed);
        YIELDED_COST.set(YIELDED_COST.get().saturating_add(work));
        yield_now().await;
    }
}

/// Yields to other tasks once. Unlike the runtime's function, it does not poll the operating system for
/// events, and a request can be moved to another runtime at this point.
pub async fn yield_now() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
