//! The server that a stage writes to, which is made after the stage.

use std::sync::{Arc, OnceLock, Weak};

use api::Status;

use crate::state::State;

/// Nobody at first, then one server for good.
#[derive(Default)]
pub(crate) struct Attached(OnceLock<Weak<State>>);

impl Attached {
    /// Tells whose it is, once.
    pub(super) fn attach(&self, state: &Arc<State>) {
        // A second server cannot have the same value.
        let _ = self.0.set(Arc::downgrade(state));
    }

    /// The server; `why` says what cannot be done without it.
    pub(super) fn server(&self, why: &str) -> Result<Arc<State>, Status> {
        self.0.get().and_then(Weak::upgrade).ok_or_else(|| Status::unavailable(why))
    }
}
