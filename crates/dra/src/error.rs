//! Errors of an allocation.

use value::Str;

/// Why an allocation failed, other than for lack of devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A claim is invalid or not supported.
    #[error("claim {claim}: {reason}")]
    Claim {
        /// Namespace and name of the claim.
        claim: Str,
        /// Explanation, in Kubernetes' words where it has any.
        reason: String,
    },
    /// A request of a claim is invalid or not supported.
    #[error("claim {claim}, request {request}: {reason}")]
    Request {
        /// Namespace and name of the claim.
        claim: Str,
        /// Name of the request.
        request: Str,
        /// Explanation, in Kubernetes' words where it has any.
        reason: String,
    },
    /// A DeviceClass is invalid.
    #[error("class {class}: {reason}")]
    Class {
        /// Name of the DeviceClass.
        class: Str,
        /// Explanation, in Kubernetes' words where it has any.
        reason: String,
    },
    /// The node selector of a slice is invalid.
    #[error("slice {slice}: {reason}")]
    Slice {
        /// Name of the ResourceSlice.
        slice: Str,
        /// Explanation, in Kubernetes' words where it has any.
        reason: String,
    },
    /// Pools of the node are invalid, and the devices of the others do not suffice.
    #[error("invalid resource pools were encountered: {0}")]
    InvalidPools(String),
    /// The search on one node exceeded this number of steps.
    #[error("no allocation was found within {0} steps")]
    TooComplex(u64),
    /// The claims of a pod exhausted their [`AllocationBudget`](crate::AllocationBudget).
    #[error("allocating devices for the pod's claims costs too much; use fewer or simpler selectors")]
    TooCostly,
}

impl Error {
    /// True if other nodes may still serve the claims; all other errors occur on every node.
    pub fn concerns_only_the_node(&self) -> bool {
        matches!(self, Error::InvalidPools(_) | Error::TooComplex(_))
    }
}
