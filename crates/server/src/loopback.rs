//! The loopback: lets admission plugins and the allocation of addresses send requests to the server that they are part of.

use std::sync::{Arc, Weak};

use api::Status;
use authn::InternalIdentity;

use crate::client::LoopbackClient;
use crate::state::State;

/// A handle to this server for its own parts that send requests through its pipeline.
///
/// Admission plugins charge quotas, create namespaces and request tokens with requests, which pass admission in turn; the allocation
/// of addresses stores IPAddress objects with requests. Both need the server and the server needs them. [`start`](crate::start()) builds
/// them in one step with [`Arc::new_cyclic`], so the handle is complete from the beginning. It is weak because a strong one would never
/// be freed.
#[derive(Clone)]
pub(crate) struct Loopback(Weak<State>);

impl Loopback {
    pub(crate) fn new(server: &Weak<State>) -> Self {
        Loopback(Weak::clone(server))
    }

    /// Returns a handle to no server; every request fails.
    #[cfg(test)]
    pub(crate) fn disconnected() -> Self {
        Loopback(Weak::new())
    }

    /// Returns the server. Fails with 503 and `message` while the server is being built and after it has
    /// stopped.
    pub(crate) fn server(&self, message: &str) -> Result<Arc<State>, Status> {
        self.0.upgrade().ok_or_else(|| Status::unavailable(message))
    }

    /// Returns a client with the identity `system:apiserver`. Fails like [`Loopback::server`].
    pub(crate) fn client(&self, message: &str) -> Result<LoopbackClient, Status> {
        Ok(LoopbackClient::new(self.server(message)?, InternalIdentity::ApiServer))
    }
}
