//! How much work compiling regular expressions may be.
//!
//! Costs follow Kubernetes' rules, and those do not see what compiling a pattern takes: `[\pL\pN]{18}` is short and becomes
//! thousands of states. So that is counted apart, in units of about 100 ns, from the parsed pattern and never by a clock. Each
//! expression, each evaluation and each validated object has an allowance; the inner ones are taken from the outer ones. They belong
//! to the thread because everything that compiles is synchronous, and the compiler, the evaluation and the rules of forty kinds would
//! pass them through otherwise. Where there is none (patterns that are part of a stored schema, formats), only the size of each
//! pattern is bounded.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Pattern, PatternError};

/// The regular expressions that are written in one expression.
pub(crate) const PER_EXPRESSION: Limit = Limit { whose: "an expression", units: 1_000_000 };
/// The regular expressions that one evaluation takes from data.
pub(crate) const PER_EVALUATION: Limit = Limit { whose: "an evaluation", units: 500_000 };
/// All that validating one object compiles.
pub const PER_OBJECT: Limit = Limit { whose: "an object", units: 5_000_000 };

/// How many different patterns are remembered, so that one that is used for every item of a list counts once.
const REMEMBERED: usize = 8;

/// A limit on the units of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub(super) whose: &'static str,
    pub(super) units: u64,
}

/// A limit that applies now, and how many of its units are left.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: Limit,
    left: u64,
    /// The patterns that were paid for last, the latest at the end.
    paid: Vec<Arc<Pattern>>,
}

thread_local! {
    /// The allowances that apply, the innermost last.
    static ALLOWANCES: RefCell<Vec<Allowance>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` within a limit, and within those that apply already.
pub fn within<T>(limit: Limit, work: impl FnOnce() -> T) -> T {
    let _scope = Scope::new(limit);
    work()
}

/// As [`within`], and returns how many units of the limit `work` used.
pub(crate) fn within_counted<T>(limit: Limit, work: impl FnOnce() -> T) -> (T, u64) {
    let _scope = Scope::new(limit);
    let done = work();
    let left = ALLOWANCES.with_borrow(|all| all.last().map_or(0, |allowance| allowance.left));
    (done, limit.units.saturating_sub(left))
}

/// Ends an allowance when it is dropped.
struct Scope;

impl Scope {
    fn new(limit: Limit) -> Self {
        let allowance = Allowance { limit, left: limit.units, paid: Vec::new() };
        ALLOWANCES.with_borrow_mut(|all| all.push(allowance));
        Scope
    }
}

impl Drop for Scope {
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

/// A pattern that was paid for, by its text.
pub(super) fn paid(text: &str) -> Option<Arc<Pattern>> {
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
pub(crate) fn exchange(theirs: Vec<Allowance>) -> Vec<Allowance> {
    ALLOWANCES.with_borrow_mut(|own| std::mem::replace(own, theirs))
}
