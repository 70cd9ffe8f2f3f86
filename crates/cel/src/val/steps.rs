//! How far one evaluation may walk through values.
//!
//! Costs follow Kubernetes' rules, and those see only the outside of a value: `[x, x]` of `[x, x]` of … is cheap to build, and
//! has twice as many leaves with every level. What a cost does not see is counted here, so that no comparison outlasts its
//! caller.

use std::cell::Cell;

use crate::eval::Error;

/// How many steps one evaluation may take: several times as many as the largest request has parts.
const MAX_STEPS: u64 = 1 << 21;
/// After how many steps the caller is asked whether to go on.
const STEPS_PER_INTERRUPT_CHECK: u64 = 1 << 16;

/// The steps of an evaluation.
#[derive(Default)]
pub(crate) struct Steps<'a> {
    taken: Cell<u64>,
    interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Steps<'a> {
    /// No steps yet; the caller is asked now and then.
    pub(crate) fn new(interrupted: Option<&'a (dyn Fn() -> bool + Sync)>) -> Self {
        Steps { taken: Cell::new(0), interrupted }
    }

    /// Takes some steps; fails where they are too many or the caller wants to end.
    pub(crate) fn take(&self, count: usize) -> Result<(), Error> {
        let before = self.taken.get();
        let after = before.saturating_add(count as u64);
        self.taken.set(after);
        if after > MAX_STEPS {
            return Err(Error::cost_limit());
        }
        if before / STEPS_PER_INTERRUPT_CHECK == after / STEPS_PER_INTERRUPT_CHECK {
            Ok(())
        } else {
            self.check_interrupt()
        }
    }

    /// Asks the caller whether to go on.
    pub(crate) fn check_interrupt(&self) -> Result<(), Error> {
        match self.interrupted {
            Some(interrupted) if interrupted() => Err(Error::interrupted()),
            _ => Ok(()),
        }
    }
}
