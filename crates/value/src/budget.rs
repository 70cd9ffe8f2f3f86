//! [`Budget`]: how much work may still be done for a request, and whether it should stop.
//!
//! Code that decides reads no clock. Loops whose length a client chooses count their steps here instead, and whoever knows the
//! time, or that the client is gone, cancels the budget from another thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The steps that are left for one request. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// None where nothing is counted.
    shared: Option<Arc<BudgetState>>,
}

#[derive(Debug)]
struct BudgetState {
    total: u64,
    spent: AtomicU64,
    /// BudgetState with the budgets that this is a part of, or that are parts of it.
    cancelled: Arc<AtomicBool>,
}

/// Why work stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetEnded {
    /// All steps are spent.
    Exhausted,
    /// Nobody waits for the result any more.
    Cancelled,
}

impl Budget {
    /// Without an end, and impossible to cancel.
    pub const UNLIMITED: Budget = Budget { shared: None };

    /// So many steps.
    pub fn new(steps: u64) -> Self {
        Budget::with(steps, Arc::default())
    }

    fn with(steps: u64, cancelled: Arc<AtomicBool>) -> Self {
        Budget { shared: Some(Arc::new(BudgetState { total: steps, spent: AtomicU64::new(0), cancelled })) }
    }

    /// So many steps for a first attempt at work that is done again, from its beginning, if they do not suffice. They are not taken
    /// from this budget; cancelling it cancels the attempt, too.
    #[must_use]
    pub fn attempt(&self, steps: u64) -> Self {
        let cancelled = self.shared.as_ref().map(|shared| Arc::clone(&shared.cancelled));
        Budget::with(steps, cancelled.unwrap_or_default())
    }

    /// Stops all work that counts its steps here.
    pub fn cancel(&self) {
        if let Some(shared) = &self.shared {
            shared.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Takes steps, before the work is done.
    pub fn spend(&self, steps: u64) -> Result<(), BudgetEnded> {
        let Some(shared) = &self.shared else { return Ok(()) };
        shared.spent.fetch_add(steps, Ordering::Relaxed);
        self.check()
    }

    /// Whether work may go on.
    pub fn check(&self) -> Result<(), BudgetEnded> {
        let Some(shared) = &self.shared else { return Ok(()) };
        if shared.cancelled.load(Ordering::Relaxed) {
            Err(BudgetEnded::Cancelled)
        } else if shared.spent.load(Ordering::Relaxed) > shared.total {
            Err(BudgetEnded::Exhausted)
        } else {
            Ok(())
        }
    }

    /// The steps that are left; as many as there can be where nothing is counted.
    pub fn left(&self) -> u64 {
        let left = |shared: &BudgetState| shared.total.saturating_sub(shared.spent.load(Ordering::Relaxed));
        self.shared.as_deref().map_or(u64::MAX, left)
    }

    /// The steps taken so far; 0 where nothing is counted.
    pub fn spent(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.spent.load(Ordering::Relaxed))
    }
}

/// Counts the steps of one loop, and settles them with the budget every now and then: cheaper than sharing each of them.
#[derive(Debug)]
pub struct Meter<'b> {
    budget: &'b Budget,
    unsettled: Cell<u64>,
    ended: Cell<Option<BudgetEnded>>,
}

/// As many steps as are counted before they are settled.
const SETTLED_STEPS: u64 = 1024;

impl<'b> Meter<'b> {
    /// A meter whose steps are taken from `budget`.
    pub fn new(budget: &'b Budget) -> Self {
        Meter { budget, unsettled: Cell::new(0), ended: Cell::new(None) }
    }

    /// Takes steps; false means that the loop should end. What it then returns must not be used: see [`Meter::finish`].
    pub fn step(&self, steps: usize) -> bool {
        if self.ended.get().is_some() {
            return false;
        }
        let unsettled = self.unsettled.get().saturating_add(steps as u64);
        if unsettled < SETTLED_STEPS {
            self.unsettled.set(unsettled);
            return true;
        }
        self.unsettled.set(0);
        self.ended.set(self.budget.spend(unsettled).err());
        self.ended.get().is_none()
    }

    /// Settles the last steps; an error means that the work ended early.
    pub fn finish(&self) -> Result<(), BudgetEnded> {
        if let Some(ended) = self.ended.get() {
            return Err(ended);
        }
        self.budget.spend(self.unsettled.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_exhausted_after_its_last_step() {
        let budget = Budget::new(3);
        assert_eq!(budget.spend(3), Ok(()));
        assert_eq!(budget.clone().spend(1), Err(BudgetEnded::Exhausted));
        assert_eq!(budget.check(), Err(BudgetEnded::Exhausted));
        assert_eq!(Budget::UNLIMITED.spend(u64::MAX), Ok(()));
    }

    #[test]
    fn a_cancelled_budget_ends_a_loop_that_is_under_way() {
        let budget = Budget::new(u64::MAX);
        let meter = Meter::new(&budget);
        assert!(meter.step(1));
        budget.clone().cancel();
        assert!(!(0..SETTLED_STEPS).all(|_| meter.step(1)));
        assert_eq!(meter.finish(), Err(BudgetEnded::Cancelled));
    }

    #[test]
    fn an_attempt_has_steps_of_its_own_and_is_cancelled_with_its_budget() {
        let budget = Budget::new(1000);
        let attempt = budget.attempt(10);
        assert_eq!(attempt.spend(11), Err(BudgetEnded::Exhausted));
        assert_eq!((budget.check(), budget.left(), attempt.left()), (Ok(()), 1000, 0));
        budget.cancel();
        assert_eq!(budget.attempt(10).check(), Err(BudgetEnded::Cancelled));
        assert_eq!(Budget::UNLIMITED.attempt(10).spend(11), Err(BudgetEnded::Exhausted));
    }

    #[test]
    fn a_meter_settles_every_step() {
        let budget = Budget::new(10_000);
        let meter = Meter::new(&budget);
        assert!((0..5000).all(|_| meter.step(1)));
        assert_eq!(meter.finish(), Ok(()));
        assert_eq!(budget.spent(), 5000);
        let meter = Meter::new(&budget);
        assert!(!(0..7000).all(|_| meter.step(1)));
        assert_eq!(meter.finish(), Err(BudgetEnded::Exhausted));
    }
}
