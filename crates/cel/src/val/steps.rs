//! Limits how far one evaluation walks through values.
//!
//! Kubernetes' cost rules see only the top level of a value: `[x, x]` of `[x, x]` of … is cheap to build and doubles
//! its leaves with every level. They also charge one for most functions, whatever the length of the arguments.
//! Comparing and printing such values, reading long texts and creating large results count steps here, so that no
//! evaluation outlasts its caller.
//!
//! The bytes of created values are counted too: a list literal of 40,000 constants and a variable costs ten units.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::eval::Error;

/// Upper bound of the bytes of all values that one evaluation creates, whether it still holds them or not. Values that
/// earlier evaluations left in the same [`ValueMemory`] count too.
const MAX_CREATED_BYTES: u64 = 64 << 20;

/// Upper bound of steps in one evaluation, several times the number of values in the largest request.
const MAX_STEPS: u64 = 1 << 21;
/// Bytes of text that count as one step, where reading them is not part of the cost.
const BYTES_PER_STEP: usize = 512;
/// Steps between two checks for interruption.
const STEPS_PER_INTERRUPT_CHECK: u64 = 1 << 16;

/// Bytes of the values that several evaluations hold at the same time, such as the variables of a policy.
#[derive(Debug, Default)]
pub struct ValueMemory {
    /// Only one thread counts at a time, so that loads and stores need not be atomic together.
    bytes: AtomicU64,
}

impl ValueMemory {
    /// Counts `bytes` of values that the caller holds after the evaluation that created them has ended.
    pub fn retain(&self, bytes: u64) {
        self.add(bytes);
    }

    fn add(&self, bytes: u64) -> u64 {
        let held = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.bytes.store(held, Ordering::Relaxed);
        held
    }

    fn subtract(&self, bytes: u64) {
        self.bytes.store(self.bytes.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// Counts the steps of an evaluation and the bytes of the values that it creates.
#[derive(Default)]
pub(crate) struct Steps<'a> {
    taken: Cell<u64>,
    /// Bytes of the values created so far.
    created: Cell<u64>,
    /// The counter that other evaluations share; this one adds to it while it runs.
    memory: Option<&'a ValueMemory>,
    interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl<'a> Steps<'a> {
    /// Counters at zero, with the caller's interrupt callback and the memory that other evaluations share.
    pub(crate) fn new(
        interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
        memory: Option<&'a ValueMemory>,
    ) -> Self {
        Steps { taken: Cell::new(0), created: Cell::new(0), memory, interrupted }
    }

    /// Steps taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Bytes of the values created so far.
    pub(crate) fn created(&self) -> u64 {
        self.created.get()
    }

    /// Counts the bytes of a value. Call it before the value is created, if its size is known.
    #[inline]
    pub(crate) fn create(&self, bytes: usize) -> Result<(), Error> {
        let created = self.created.get().saturating_add(bytes as u64);
        self.created.set(created);
        let held = match self.memory {
            None => created,
            Some(memory) => memory.add(bytes as u64),
        };
        if held > MAX_CREATED_BYTES { Err(Error::cost_limit()) } else { Ok(()) }
    }

    /// Subtracts the bytes of a value that only the evaluator used.
    pub(crate) fn release(&self, bytes: usize) {
        self.created.set(self.created.get().saturating_sub(bytes as u64));
        if let Some(memory) = self.memory {
            memory.subtract(bytes as u64);
        }
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

impl Drop for Steps<'_> {
    /// Subtracts the values of this evaluation from the shared memory. A caller that holds the result counts it with [`ValueMemory::retain`].
    fn drop(&mut self) {
        if let Some(memory) = self.memory {
            memory.subtract(self.created.get());
        }
    }
}
