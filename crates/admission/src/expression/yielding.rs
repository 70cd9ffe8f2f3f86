//! Cooperative scheduling: a request with thousands of policies or parameters yields to other tasks between
//! evaluations.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

/// Cost of expressions after which a task yields; a few milliseconds of work.
const COST_PER_TURN: u64 = 200_000;
/// Cost of expressions that a request may evaluate on the main runtime, which runs other requests in between. A request whose expressions
/// cost more continues in the heavy lane.
pub const QUICK_COST: u64 = 1_000_000;
/// How often evaluations may ask whether to stop before the turn is long. They ask at least every 100 turns of a loop, 1,024 parts of an
/// expression, or 65,536 steps through values, so that this takes some milliseconds.
const QUICK_QUESTIONS: u64 = 500;
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
    /// How often evaluations have asked whether to stop since the task last yielded.
    questions: AtomicU64,
    /// The request has left the main runtime, so that its turns may be long.
    may_be_long: AtomicBool,
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

    /// Counts a question of a running evaluation whether to stop. True if it has taken too long for the main runtime: it must end, and be
    /// repeated after [`YieldPacer::leave_main_runtime`].
    pub fn interrupts(&self) -> bool {
        let questions = self.questions.load(Ordering::Relaxed).saturating_add(1);
        self.questions.store(questions, Ordering::Relaxed);
        self.is_too_long()
    }

    /// True if the evaluations since the task last yielded have taken too long for the main runtime.
    pub fn is_too_long(&self) -> bool {
        let work = self.work.load(Ordering::Relaxed);
        let questions = self.questions.load(Ordering::Relaxed);
        (work > QUICK_COST || questions > QUICK_QUESTIONS) && !self.may_be_long.load(Ordering::Relaxed)
    }

    /// Makes the request continue in the heavy lane, where evaluations may be long.
    pub async fn leave_main_runtime(&self) {
        self.add(QUICK_COST);
        self.may_be_long.store(true, Ordering::Relaxed);
        self.yield_now().await;
    }

    /// Yields to other tasks.
    pub async fn yield_now(&self) {
        self.questions.store(0, Ordering::Relaxed);
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
