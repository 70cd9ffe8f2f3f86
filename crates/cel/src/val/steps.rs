//! Limits how far one evaluation walks through values.
//!
//! Kubernetes' cost rules see only the top level of a value: `[x, x]` of `[x, x]` of … is cheap to build and doubles
//! its leaves with every level. Comparing or printing such values counts steps here, so that no evaluation outlasts
//! its caller.

use std::cell::Cell;

use crate::eval::Error;

/// Upper bound of steps in one evaluation, several times the number of values in the largest request.
const MAX_STEPS: u64 = 1 << 21;
/// Steps between two checks for interruption.
const STEPS_PER_INTERRUPT_CHECK: u64 = 1 << 16;

/// Step counter of an evaluation.
#[derive(Default)]
pub(crate) struct Steps<'a> {
    taken: Cell<u64>,
    interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Steps<'a> {
    /// A counter at zero, with the caller's interrupt callback.
    pub(crate) fn new(interrupted: Option<&'a (dyn Fn() -> bool + Sync)>) -> Self {
        Steps { taken: Cell::new(0), interrupted }
    }

    /// Counts steps. Fails if they exceed the limit or the caller interrupts.
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

    /// Fails if the caller interrupts the evaluation.
    pub(crate) fn check_interrupt(&self) -> Result<(), Error> {
        match self.interrupted {
            Some(interrupted) if interrupted() => Err(Error::interrupted()),
            _ => Ok(()),
        }
    }
}
