//! Counts accesses to trees, and interrupts work that takes too many of them or whose result is no longer needed.
//!
//! Every access to a key, item, string or number, every comparison, every value cloned or written, and every entry moved
//! by an insertion or removal counts as an access of the current thread. [`within`] takes them from a [`Budget`], so that
//! synchronous code over trees can be limited and canceled without checks of its own. Tests measure with [`of`] that an
//! algorithm is not quadratic.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{Budget, BudgetEnded};

/// How many accesses are one step of a budget: an access takes a few nanoseconds, a step some ten.
pub const ACCESSES_PER_STEP: u64 = 8;

/// Accesses between two checks of the budget, well below a millisecond of work.
const ACCESSES_PER_CHECK: u64 = 8192;

thread_local! {
    static COUNTER: Counter = const { Counter { taken: Cell::new(0), check_at: Cell::new(u64::MAX) } };
    static SCOPE: RefCell<BudgetScope> = const { RefCell::new(BudgetScope { budget: Budget::UNLIMITED, settled: 0 }) };
}

/// The accesses of a thread.
struct Counter {
    taken: Cell<u64>,
    /// The value of `taken` at which the budget is checked; never outside of [`within`].
    check_at: Cell<u64>,
}

/// The innermost [`within`] of a thread.
struct BudgetScope {
    budget: Budget,
    /// The accesses of the thread that are already taken from a budget.
    settled: u64,
}

/// The panic payload with which [`within`] is left early.
struct Interrupted(BudgetEnded);

/// Counts accesses. Inside of [`within`] this may not return.
#[inline]
pub fn count(accesses: usize) {
    COUNTER.with(|counter| {
        let taken = counter.taken.get().saturating_add(accesses as u64);
        counter.taken.set(taken);
        if taken >= counter.check_at.get() {
            check(counter);
        }
    });
}

/// Takes the accesses since the last check from the budget, and unwinds to [`within`] if it has ended.
#[cold]
fn check(counter: &Counter) {
    let taken = counter.taken.get();
    counter.check_at.set(taken.saturating_add(ACCESSES_PER_CHECK));
    let spent = SCOPE.with_borrow_mut(|scope| scope.settle(taken));
    // Destructors that run because of another panic must not panic.
    if let Err(ended) = spent
        && !std::thread::panicking()
    {
        resume_unwind(Box::new(Interrupted(ended)));
    }
}

impl BudgetScope {
    fn settle(&mut self, taken: u64) -> Result<(), BudgetEnded> {
        let accesses = taken.saturating_sub(self.settled);
        self.settled = taken;
        self.budget.spend(accesses.div_ceil(ACCESSES_PER_STEP))
    }
}

/// Runs `work`, and takes a step from `budget` for every [`ACCESSES_PER_STEP`] accesses. Once the budget has ended, the
/// next access unwinds to here, so that neither loops nor lists in `work` have to check it, and no result of interrupted
/// work can be taken for a complete one. Other panics pass through.
///
/// Interrupting the initialization of a `LazyLock` poisons it, so code that initializes one and accesses trees must be
/// [`uninterrupted`]; an interrupted `OnceLock` only stays empty. A scope inside of this one counts only for its own budget.
pub fn within<T>(budget: &Budget, work: impl FnOnce() -> T) -> Result<T, BudgetEnded> {
    budget.check()?;
    let taken = COUNTER.with(|counter| {
        // An outer scope pays for what it did before this one. Otherwise work that begins many scopes would never be charged.
        if counter.check_at.get() != u64::MAX {
            check(counter);
        }
        counter.taken.get()
    });
    let outer = SCOPE.replace(BudgetScope { budget: budget.clone(), settled: taken });
    let outer_check =
        COUNTER.with(|counter| counter.check_at.replace(taken.saturating_add(ACCESSES_PER_CHECK)));
    let done = catch_unwind(AssertUnwindSafe(work));
    COUNTER.with(|counter| {
        let taken = counter.taken.get();
        let skipped = outer_check != u64::MAX;
        counter.check_at.set(if skipped { taken.saturating_add(ACCESSES_PER_CHECK) } else { u64::MAX });
        let mut inner = SCOPE.replace(BudgetScope { settled: taken, ..outer });
        // Complete work needs no more steps; the next check of the budget sees the last ones.
        let _ = inner.settle(taken);
    });
    done.map_err(|panic: Box<dyn Any + Send>| match panic.downcast::<Interrupted>() {
        Ok(interrupted) => interrupted.0,
        Err(panic) => resume_unwind(panic),
    })
}

/// Runs `work`, which must be short, without interruption. The next check takes its accesses.
pub fn uninterrupted<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            COUNTER.with(|counter| counter.check_at.set(self.0));
        }
    }
    let _restore = Restore(COUNTER.with(|counter| counter.check_at.replace(u64::MAX)));
    work()
}

/// The budget that accesses of this thread are taken from: that of the innermost [`within`]; without limit outside of one, and
/// in work that is [`uninterrupted`]. Code that continues on another thread begins a scope with it there, and ends
/// with [`interrupt`] if that scope was left early.
pub fn current_budget() -> Budget {
    if COUNTER.with(|counter| counter.check_at.get()) == u64::MAX {
        return Budget::UNLIMITED;
    }
    SCOPE.with_borrow(|scope| scope.budget.clone())
}

/// Unwinds to [`within`] because the [`current_budget`] has ended on another thread.
pub fn interrupt(ended: BudgetEnded) -> ! {
    resume_unwind(Box::new(Interrupted(ended)))
}

/// Runs `work` and returns its accesses on this thread.
pub fn of(work: impl FnOnce()) -> u64 {
    let before = COUNTER.with(|counter| counter.taken.get());
    work();
    COUNTER.with(|counter| counter.taken.get()).saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn endless(value: &Value) {
        while value.get("name").is_none() {}
    }

    #[test]
    fn exhausted_budget_interrupts_a_loop_that_does_not_check_it() {
        let budget = Budget::new(5000);
        assert_eq!(within(&budget, || endless(&Value::Null)), Err(BudgetEnded::Exhausted));
        assert!(budget.spent() <= 5000 + ACCESSES_PER_CHECK / ACCESSES_PER_STEP + 1);
        assert_eq!(within(&budget, || ()), Err(BudgetEnded::Exhausted), "it does not begin");
    }

    #[test]
    fn budget_canceled_by_another_thread_interrupts_a_loop() {
        let budget = Budget::new(u64::MAX);
        let other = budget.clone();
        let cancels = std::thread::spawn(move || {
            while other.spent() == 0 {
                std::thread::yield_now();
            }
            other.cancel();
        });
        assert_eq!(within(&budget, || endless(&Value::Null)), Err(BudgetEnded::Canceled));
        cancels.join().unwrap();
    }

    #[test]
    fn work_below_its_budget_is_charged_and_returns_its_result() {
        let budget = Budget::new(100);
        let value = Value::map([("n", 1)]);
        let sum = within(&budget, || (0..100).filter_map(|_| value.int_at(&["n"])).sum::<i64>());
        assert_eq!(sum, Ok(100));
        assert!((100 / ACCESSES_PER_STEP..=100).contains(&budget.spent()), "{}", budget.spent());
        // Outside of a scope nothing is charged or interrupted.
        let spent = budget.spent();
        budget.cancel();
        (0..100_000).for_each(|_| drop(value.clone()));
        assert_eq!(budget.spent(), spent);
    }

    #[test]
    fn inner_scope_ends_alone_and_the_outer_one_goes_on() {
        let outer = Budget::new(5000);
        let inner = Budget::new(10);
        let ended = within(&outer, || {
            assert_eq!(within(&inner, || endless(&Value::Null)), Err(BudgetEnded::Exhausted));
            assert!(outer.spent() < 5000);
            endless(&Value::Null);
        });
        assert_eq!(ended, Err(BudgetEnded::Exhausted));
    }

    #[test]
    fn accesses_between_inner_scopes_are_charged_to_the_outer_one() {
        let outer = Budget::new(5000);
        let inner = Budget::new(u64::MAX);
        let value = Value::map([("n", 1)]);
        let accesses = of(|| {
            let ended = within(&outer, || {
                for _ in 0..100_000 {
                    let _ = value.int_at(&["n"]);
                    within(&inner, || value.int_at(&["n"])).unwrap();
                }
            });
            assert_eq!(ended, Err(BudgetEnded::Exhausted));
        });
        assert!(accesses <= 4 * 5000 * ACCESSES_PER_STEP, "{accesses}");
        assert!(inner.spent() > 0);
    }

    #[test]
    fn uninterrupted_work_ends_before_the_scope_does() {
        let mut is_done = false;
        let ended = within(&Budget::new(10), || {
            uninterrupted(|| (0..100_000).for_each(|_| drop(Value::Null.clone())));
            is_done = true;
            endless(&Value::Null);
        });
        assert_eq!((ended, is_done), (Err(BudgetEnded::Exhausted), true));
    }

    #[test]
    fn work_on_another_thread_is_charged_and_interrupted() {
        let budget = Budget::new(5000);
        let elsewhere = |work: fn()| {
            let budget = current_budget();
            let done = std::thread::scope(|scope| scope.spawn(|| within(&budget, work)).join().unwrap());
            done.unwrap_or_else(|ended| interrupt(ended));
        };
        let counts = || (0..8000).for_each(|_| count(1));
        assert_eq!(within(&budget, || elsewhere(counts)), Ok(()));
        assert_eq!(budget.spent(), 1000);
        assert_eq!(within(&budget, || elsewhere(|| endless(&Value::Null))), Err(BudgetEnded::Exhausted));
        // Uninterrupted work stays so.
        let ended = within(&Budget::new(1), || uninterrupted(|| elsewhere(counts)));
        assert_eq!(ended, Ok(()));
    }

    #[test]
    fn other_panics_pass_through() {
        let caught = catch_unwind(|| within(&Budget::new(1), || resume_unwind(Box::new("a bug"))));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"a bug"));
    }
}
