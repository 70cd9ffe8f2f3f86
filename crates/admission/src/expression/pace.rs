//! Evaluation is quick and never waits, but there may be much of it: so that a request with thousands of policies or parameters
//! holds nobody else up, it lets others run now and then.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// After how much work others are let run; the unit is what expressions cost. It takes a few milliseconds.
const STRETCH: u64 = 200_000;
/// What a run costs besides its expressions.
const RUN: u64 = 200;

/// How much a unit of compiling regular expressions is in units of cost.
const PATTERN_WORK: u64 = 5;

thread_local! {
    /// The cost of evaluations after which the task gave way to others, since [`take_rested`] was last called.
    static RESTED: Cell<u64> = const { Cell::new(0) };
}

/// The cost of evaluations after which the task on this thread gave way to others ([`give_way`]), since this was last called. Whoever
/// polls a request calls it before and after the poll, and so learns what the request's evaluations cost.
pub fn take_rested() -> u64 {
    RESTED.take()
}

/// How much was done since others could run.
#[derive(Debug, Default)]
pub struct Pace {
    work: AtomicU64,
}

impl Pace {
    /// Counts an evaluation.
    pub fn add(&self, cost: u64) {
        // One task counts: there is nobody to race with.
        let work = self.work.load(Ordering::Relaxed).saturating_add(cost).saturating_add(RUN);
        self.work.store(work, Ordering::Relaxed);
    }

    /// Counts an evaluation that compiled regular expressions.
    pub fn add_work(&self, cost: u64, pattern_work: u64) {
        self.add(cost.saturating_add(pattern_work.saturating_mul(PATTERN_WORK)));
    }

    /// Whether others should run now.
    pub fn is_due(&self) -> bool {
        self.work.load(Ordering::Relaxed) >= STRETCH
    }

    /// Lets others run.
    pub async fn rest(&self) {
        let work = self.work.swap(0, Ordering::Relaxed);
        RESTED.set(RESTED.get().saturating_add(work));
        give_way().await;
    }
}

/// Returns after other tasks had their turn. Unlike the runtime's own function for it, this does not ask the operating system for events
/// first, and a request that gives way can be moved to another runtime at this point.
pub async fn give_way() {
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
