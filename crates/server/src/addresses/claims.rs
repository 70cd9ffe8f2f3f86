//! The addresses and ports that were allocated for a Service that is being written.

use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use kinds::strategy::service::AddressesAndPorts;
use service_addresses::ServiceRef;
use value::Str;

use super::Allocations;
use super::limits::USE_WITHIN;
use crate::write::TimeMark;

/// An IPAddress that this process has created.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedAddress {
    pub(crate) address: IpAddr,
    pub(crate) uid: Str,
}

/// Addresses and ports allocated for a write of a Service. One of [`AddressClaims::commit`], [`AddressClaims::revert`] and
/// [`AddressClaims::abandon`] ends it; dropping it reverts in the background.
#[derive(Debug, Default)]
pub struct AddressClaims(Option<OpenClaims>);

#[derive(Debug)]
pub(super) struct OpenClaims {
    pub(super) allocations: Arc<Allocations>,
    pub(super) service: ServiceRef,
    /// A time before the first of these addresses and ports was allocated.
    pub(super) since: TimeMark,
    pub(super) addresses: Vec<ClaimedAddress>,
    pub(super) ports: Vec<i64>,
    /// The addresses and ports that the Service no longer uses once it is written.
    pub(super) to_release: AddressesAndPorts,
}

impl AddressClaims {
    pub(super) fn begin(allocations: Arc<Allocations>, service: ServiceRef) -> Self {
        AddressClaims(Some(OpenClaims {
            allocations,
            service,
            since: TimeMark::now(),
            addresses: Vec::new(),
            ports: Vec::new(),
            to_release: AddressesAndPorts::default(),
        }))
    }

    pub(super) fn open(&mut self) -> Option<&mut OpenClaims> {
        self.0.as_mut()
    }

    /// Fails if the write comes too late. Must be called immediately before the Service is written.
    pub(crate) fn check_age(&self) -> Result<(), Status> {
        let is_late = |open: &OpenClaims| {
            (!open.addresses.is_empty() || !open.ports.is_empty()) && open.since.elapsed() > USE_WITHIN
        };
        if self.0.as_ref().is_some_and(is_late) {
            return Err(Status::timeout(
                "the cluster IPs and node ports were allocated too long ago; try again",
                0,
            ));
        }
        Ok(())
    }

    /// The Service was written: releases what it no longer uses.
    pub(crate) async fn commit(mut self) {
        if let Some(open) = self.0.take() {
            open.allocations.release(&open.service, &open.to_release).await;
        }
    }

    /// The Service was not written: releases what was allocated for it.
    pub(crate) async fn revert(mut self) {
        if let Some(open) = self.0.take() {
            open.revert().await;
        }
    }

    /// The Service may have been written. Nothing is released; the repair loops find out.
    pub(crate) fn abandon(mut self) {
        self.0 = None;
    }
}

impl OpenClaims {
    async fn revert(self) {
        for claimed in &self.addresses {
            self.allocations.delete_address(claimed.address, &claimed.uid).await;
        }
        if !self.ports.is_empty() {
            self.allocations.ports.release(&self.ports).await;
        }
    }
}

impl Drop for AddressClaims {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        let holds_any = !open.addresses.is_empty() || !open.ports.is_empty();
        // Without a runtime the process ends, and the repair loop of the next one releases the claims.
        if holds_any && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(open.revert());
        }
    }
}
