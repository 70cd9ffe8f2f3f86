//! Limits on the work of compiling and matching regular expressions.
//!
//! Kubernetes' cost rules do not account for compiling: `[\pL\pN]{18}` is short and becomes thousands of states. This
//! work is counted separately, in units of about 100 ns, computed from the parsed pattern and never from a clock.
//! Each expression, each evaluation and each validated object has an allowance; inner allowances are also charged to
//! outer ones. Allowances are thread-local, because everything that compiles is synchronous and would otherwise have
//! to pass them through the compiler, the evaluation and the validation of forty kinds. Without an allowance
//! (patterns of stored schemas, formats) only the size of each pattern is bounded.
//!
//! The cost of matching depends on the lengths of text and pattern, but `[ab]{1000}` is short and may visit a
//! thousand states per character. State visits are therefore counted too. Ordinary patterns visit few states and
//! exceed Kubernetes' cost limits before these.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Pattern, PatternError};

/// Limit for the patterns written in one expression.
pub(crate) const PER_EXPRESSION: PatternWorkLimit =
    PatternWorkLimit { whose: "an expression", units: 1_000_000, matching: 1_000_000 };
/// Limit for the patterns that one evaluation compiles from data.
pub(crate) const PER_EVALUATION: PatternWorkLimit =
    PatternWorkLimit { whose: "an evaluation", units: 500_000, matching: 1_000_000 };
/// Limit for validating one object.
pub const PER_OBJECT: PatternWorkLimit =
    PatternWorkLimit { whose: "an object", units: 5_000_000, matching: 10_000_000 };

/// Number of recently charged patterns, so that a pattern used for every item of a list is charged once.
const REMEMBERED: usize = 8;

/// A limit on pattern work, in units of about 100 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternWorkLimit {
    pub(super) whose: &'static str,
    /// Units for compiling patterns.
    pub(super) units: u64,
    /// Units for matching texts.
    pub(super) matching: u64,
}

impl PatternWorkLimit {
    /// Lowers the limit for matching to `units`.
    #[must_use]
    pub fn matching_at_most(self, units: u64) -> Self {
        PatternWorkLimit { matching: self.matching.min(units), ..self }
    }
}

/// An active limit with its remaining units.
#[derive(Debug)]
pub(crate) struct ActiveWorkLimit {
    limit: PatternWorkLimit,
    left: u64,
    left_to_match: u64,
    /// The most recently charged patterns, latest last.
    paid: Vec<Arc<Pattern>>,
}

thread_local! {
    /// Active allowances of this thread, innermost last.
    static ALLOWANCES: RefCell<Vec<ActiveWorkLimit>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` within a limit, in addition to the active ones.
pub fn within<T>(limit: PatternWorkLimit, work: impl FnOnce() -> T) -> T {
    let _scope = AllowanceGuard::new(limit);
    work()
}

/// Like [`within`]; also returns the units used for compiling and matching.
pub(crate) fn within_counted<T>(limit: PatternWorkLimit, work: impl FnOnce() -> T) -> (T, u64) {
    let _scope = AllowanceGuard::new(limit);
    let done = work();
    let left = ALLOWANCES.with_borrow(|all| {
        all.last().map_or(0, |allowance| allowance.left.saturating_add(allowance.left_to_match))
    });
    (done, limit.units.saturating_add(limit.matching).saturating_sub(left))
}

/// Removes the innermost allowance when dropped.
struct AllowanceGuard;

impl AllowanceGuard {
    fn new(limit: PatternWorkLimit) -> Self {
        let allowance =
            ActiveWorkLimit { limit, left: limit.units, left_to_match: limit.matching, paid: Vec::new() };
        ALLOWANCES.with_borrow_mut(|all| all.push(allowance));
        AllowanceGuard
    }
}

impl Drop for AllowanceGuard {
    fn drop(&mut self) {
        ALLOWANCES.with_borrow_mut(Vec::pop);
    }
}

/// Charges compile work to every active allowance, before it is done.
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

/// Charges the upper bound of a search to every active allowance, if at least half of each remains; otherwise charges
/// nothing and returns false.
pub(super) fn estimate_match(units: u64) -> bool {
    ALLOWANCES.with_borrow_mut(|all| {
        let has_plenty = |allowance: &ActiveWorkLimit| {
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

/// Charges the work of a search to every active allowance.
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

/// A recently charged pattern with this text.
pub(super) fn already_paid(text: &str) -> Option<Arc<Pattern>> {
    ALLOWANCES.with_borrow(|all| {
        let paid = &all.first()?.paid;
        paid.iter().rev().find(|pattern| pattern.text() == text).cloned()
    })
}

/// Records that a pattern was charged.
pub(super) fn remember(pattern: &Arc<Pattern>) {
    ALLOWANCES.with_borrow_mut(|all| {
        let Some(outermost) = all.first_mut() else { return };
        if outermost.paid.len() >= REMEMBERED {
            outermost.paid.remove(0);
        }
        outermost.paid.push(Arc::clone(pattern));
    });
}

/// Swaps the allowances of this thread, to hand them to a thread that works on its behalf and back.
pub(crate) fn swap(theirs: Vec<ActiveWorkLimit>) -> Vec<ActiveWorkLimit> {
    ALLOWANCES.with_borrow_mut(|own| std::mem::replace(own, theirs))
}
