//! Limits how far one evaluation walks through values.
//!
//! Kubernetes' cost rules see only the top level of a value: `[x, x]` of `[x, x]` of … is cheap to build and doubles
//! its leaves with every level. They also charge one for most functions, whatever the length of the arguments.
//! Comparing and printing such values, reading long texts and creating large results count steps here, so that no
//! evaluation outlasts its caller.

use std::cell::Cell;

use crate::eval::Error;

/// Upper bound of steps in one evaluation, several times the number of values in the largest request.
const MAX_STEPS: u64 = 1 << 21;
/// Bytes of text that count as one step, where reading them is not part of the cost.
const BYTES_PER_STEP: usize = 512;
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

    /// Counts reading a text whose length the cost does not depend on.
    #[inline]
    pub(crate) fn take_bytes(&self, bytes: usize) -> Result<(), Error> {
        if bytes < BYTES_PER_STEP { Ok(()) } else { self.take(bytes / BYTES_PER_STEP) }
    }

    /// Fails if the caller interrupts the evaluation.
    pub(crate) fn check_interrupt(&self) -> Result<(), Error> {
        match self.interrupted {
            Some(interrupted) if interrupted() => Err(Error::interrupted()),
            _ => Ok(()),
        }
    }
}
