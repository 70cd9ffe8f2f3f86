//! How much work regular expressions may be: compiling them, and matching texts with them.
//!
//! Costs follow Kubernetes' rules, and those do not see what compiling a pattern takes: `[\pL\pN]{18}` is short and becomes
//! thousands of states. So that is counted apart, in units of about 100 ns, from the parsed pattern and never by a clock. Each
//! expression, each evaluation and each validated object has an allowance; the inner ones are taken from the outer ones. They belong
//! to the thread because everything that compiles is synchronous, and the compiler, the evaluation and the rules of forty kinds would
//! pass them through otherwise. Where there is none (patterns that are part of a stored schema, formats), only the size of each
//! pattern is bounded.
//!
//! The cost of matching follows from the lengths of text and pattern, but `[ab]{1000}` is short and may be in a thousand states after
//! every character. So visits of states are counted, too. Ordinary patterns are in few states at a time, and reach Kubernetes' limits on
//! cost before these.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Pattern, PatternError};

/// The regular expressions that are written in one expression.
pub(crate) const PER_EXPRESSION: PatternWorkLimit =
    PatternWorkLimit { whose: "an expression", units: 1_000_000, matching: 1_000_000 };
/// The regular expressions that one evaluation takes from data.
pub(crate) const PER_EVALUATION: PatternWorkLimit =
    PatternWorkLimit { whose: "an evaluation", units: 500_000, matching: 1_000_000 };
/// All that validating one object compiles.
pub const PER_OBJECT: PatternWorkLimit =
    PatternWorkLimit { whose: "an object", units: 5_000_000, matching: 10_000_000 };

/// How many different patterns are remembered, so that one that is used for every item of a list counts once.
const REMEMBERED: usize = 8;

/// A limit on the units of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternWorkLimit {
    pub(super) whose: &'static str,
    /// The units of compiling patterns.
    pub(super) units: u64,
    /// The units of matching texts.
    pub(super) matching: u64,
}

impl PatternWorkLimit {
    /// This limit, with no more than `units` for matching.
    #[must_use]
    pub fn matching_at_most(self, units: u64) -> Self {
        PatternWorkLimit { matching: self.matching.min(units), ..self }
    }
}

/// A limit that applies now, and how many of its units are left.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: PatternWorkLimit,
    left: u64,
    left_to_match: u64,
    /// The patterns that were paid for last, the latest at the end.
    paid: Vec<Arc<Pattern>>,
}

thread_local! {
    /// The allowances that apply, the innermost last.
    static ALLOWANCES: RefCell<Vec<Allowance>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` within a limit, and within those that apply already.
pub fn within<T>(limit: PatternWorkLimit, work: impl FnOnce() -> T) -> T {
    let _scope = AllowanceGuard::new(limit);
    work()
}

/// As [`within`], and returns how many units `work` used, of compiling and of matching.
pub(crate) fn within_counted<T>(limit: PatternWorkLimit, work: impl FnOnce() -> T) -> (T, u64) {
    let _scope = AllowanceGuard::new(limit);
    let done = work();
    let left = ALLOWANCES.with_borrow(|all| {
        all.last().map_or(0, |allowance| allowance.left.saturating_add(allowance.left_to_match))
    });
    (done, limit.units.saturating_add(limit.matching).saturating_sub(left))
}

/// Ends an allowance when it is dropped.
struct AllowanceGuard;

impl AllowanceGuard {
    fn new(limit: PatternWorkLimit) -> Self {
        let allowance =
            Allowance { limit, left: limit.units, left_to_match: limit.matching, paid: Vec::new() };
        ALLOWANCES.with_borrow_mut(|all| all.push(allowance));
        AllowanceGuard
    }
}

impl Drop for AllowanceGuard {
    fn drop(&mut self) {
        ALLOWANCES.with_borrow_mut(Vec::pop);
    }
}

/// Takes work from every allowance that applies, before it is done.
pub(super) fn spend(units: u64) -> Result<(), PatternError> {
    ALLOWANCES.with_borrow_mut(|all| {
        for allowance in all.iter_mut().rev() {
            match allowance.left.checked_sub(units) {
                Some(left) => allowance.left = left,
                None => {
                    allowance.left = 0;
                    return Err(PatternError::Exhausted(allowance.limit));
                }
            }
        }
        Ok(())
    })
}

/// Takes the most work that a search can be from every allowance that applies, if half of each is left then.
pub(super) fn estimate_match(units: u64) -> bool {
    ALLOWANCES.with_borrow_mut(|all| {
        let has_plenty = |allowance: &Allowance| {
            allowance.left_to_match.saturating_sub(units) >= allowance.limit.matching / 2
        };
        if !all.iter().all(has_plenty) {
            return false;
        }
        for allowance in all.iter_mut() {
            allowance.left_to_match = allowance.left_to_match.saturating_sub(units);
        }
        true
    })
}

/// Takes the work of a search from every allowance that applies.
pub(super) fn spend_match(units: u64) -> Result<(), PatternError> {
    ALLOWANCES.with_borrow_mut(|all| {
        for allowance in all.iter_mut().rev() {
            match allowance.left_to_match.checked_sub(units) {
                Some(left) => allowance.left_to_match = left,
                None => {
                    allowance.left_to_match = 0;
                    return Err(PatternError::Unmatched(allowance.limit));
                }
            }
        }
        Ok(())
    })
}

/// A pattern that was paid for, by its text.
pub(super) fn already_paid(text: &str) -> Option<Arc<Pattern>> {
    ALLOWANCES.with_borrow(|all| {
        let paid = &all.first()?.paid;
        paid.iter().rev().find(|pattern| pattern.text() == text).cloned()
    })
}

/// Remembers that a pattern was paid for.
pub(super) fn remember(pattern: &Arc<Pattern>) {
    ALLOWANCES.with_borrow_mut(|all| {
        let Some(outermost) = all.first_mut() else { return };
        if outermost.paid.len() >= REMEMBERED {
            outermost.paid.remove(0);
        }
        outermost.paid.push(Arc::clone(pattern));
    });
}

/// Hands the allowances of this thread to another one that works for it, and back.
pub(crate) fn swap(theirs: Vec<Allowance>) -> Vec<Allowance> {
    ALLOWANCES.with_borrow_mut(|own| std::mem::replace(own, theirs))
}
