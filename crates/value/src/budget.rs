//! [`Budget`]: a limit on the work for one request, which can be canceled.
//!
//! Decision code reads no clock. Loops whose length a client controls count their steps instead, and the server
//! cancels the budget from another thread when the request times out or the client disconnects.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The remaining steps of one request. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// `None` for an unlimited budget.
    shared: Option<Arc<BudgetState>>,
}

#[derive(Debug)]
struct BudgetState {
    total: u64,
    spent: AtomicU64,
    /// Shared with the budgets derived by [`Budget::attempt`], and with the one this is derived from.
    canceled: Arc<AtomicBool>,
}

/// Why work must stop early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetEnded {
    /// All steps are spent.
    Exhausted,
    /// The result is no longer needed.
    Canceled,
}

impl Budget {
    /// A budget without limit that cannot be canceled.
    pub const UNLIMITED: Budget = Budget { shared: None };

    pub fn new(steps: u64) -> Self {
        Budget::with(steps, Arc::default())
    }

    fn with(steps: u64, canceled: Arc<AtomicBool>) -> Self {
        Budget { shared: Some(Arc::new(BudgetState { total: steps, spent: AtomicU64::new(0), canceled })) }
    }

    /// A budget for a first attempt at work that is restarted with this budget if `steps` do not suffice. The steps
    /// are not taken from this budget, but canceling it cancels the attempt.
    #[must_use]
    pub fn attempt(&self, steps: u64) -> Self {
        let canceled = self.shared.as_ref().map(|shared| Arc::clone(&shared.canceled));
        Budget::with(steps, canceled.unwrap_or_default())
    }

    /// Makes all further checks of this budget, its clones and its attempts fail.
    pub fn cancel(&self) {
        if let Some(shared) = &self.shared {
            shared.canceled.store(true, Ordering::Relaxed);
        }
    }

    /// Takes steps before the work is done. Fails if the budget is exhausted or canceled.
    pub fn spend(&self, steps: u64) -> Result<(), BudgetEnded> {
        let Some(shared) = &self.shared else { return Ok(()) };
        shared.spent.fetch_add(steps, Ordering::Relaxed);
        self.check()
    }

    /// Fails if the budget is exhausted or canceled.
    pub fn check(&self) -> Result<(), BudgetEnded> {
        let Some(shared) = &self.shared else { return Ok(()) };
        if shared.canceled.load(Ordering::Relaxed) {
            Err(BudgetEnded::Canceled)
        } else if shared.spent.load(Ordering::Relaxed) > shared.total {
            Err(BudgetEnded::Exhausted)
        } else {
            Ok(())
        }
    }

    /// Remaining steps; `u64::MAX` for an unlimited budget.
    pub fn left(&self) -> u64 {
        let left = |shared: &BudgetState| shared.total.saturating_sub(shared.spent.load(Ordering::Relaxed));
        self.shared.as_deref().map_or(u64::MAX, left)
    }

    /// Steps taken so far; 0 for an unlimited budget.
    pub fn spent(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.spent.load(Ordering::Relaxed))
    }
}

/// Counts the steps of one loop and takes them from the budget in batches, which is cheaper than an atomic operation
/// per step.
#[derive(Debug)]
pub struct Meter<'b> {
    budget: &'b Budget,
    unsettled: Cell<u64>,
    ended: Cell<Option<BudgetEnded>>,
}

/// Steps counted before they are taken from the budget.
const SETTLED_STEPS: u64 = 1024;

impl<'b> Meter<'b> {
    /// A meter that takes its steps from `budget`.
    pub fn new(budget: &'b Budget) -> Self {
        Meter { budget, unsettled: Cell::new(0), ended: Cell::new(None) }
    }

    /// Counts steps. If it returns false, the loop must end, and its result must not be used: see [`Meter::finish`].
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

    /// Takes the remaining steps. Fails if the loop ended early.
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
    fn a_canceled_budget_ends_a_loop_that_is_under_way() {
        let budget = Budget::new(u64::MAX);
        let meter = Meter::new(&budget);
        assert!(meter.step(1));
        budget.clone().cancel();
        assert!(!(0..SETTLED_STEPS).all(|_| meter.step(1)));
        assert_eq!(meter.finish(), Err(BudgetEnded::Canceled));
    }

    #[test]
    fn attempt_has_its_own_steps_and_is_canceled_with_its_budget() {
        let budget = Budget::new(1000);
        let attempt = budget.attempt(10);
        assert_eq!(attempt.spend(11), Err(BudgetEnded::Exhausted));
        assert_eq!((budget.check(), budget.left(), attempt.left()), (Ok(()), 1000, 0));
        budget.cancel();
        assert_eq!(budget.attempt(10).check(), Err(BudgetEnded::Canceled));
        assert_eq!(Budget::UNLIMITED.attempt(10).spend(11), Err(BudgetEnded::Exhausted));
    }

    #[test]
    fn meter_charges_every_step_to_its_budget() {
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
