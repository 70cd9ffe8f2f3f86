//! Why devices cannot be allocated.

use value::Str;

/// Why an allocation was not even tried to the end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A claim says something that cannot be served.
    #[error("claim {claim}: {reason}")]
    Claim {
        /// Namespace and name.
        claim: Str,
        /// What is wrong.
        reason: String,
    },
    /// A request of a claim says something that cannot be served.
    #[error("claim {claim}, request {request}: {reason}")]
    Request {
        /// Namespace and name of the claim.
        claim: Str,
        /// The name of the request.
        request: Str,
        /// What is wrong.
        reason: String,
    },
    /// A device class is wrong.
    #[error("class {class}: {reason}")]
    Class {
        /// Its name.
        class: Str,
        /// What is wrong.
        reason: String,
    },
    /// A slice says which nodes it is for in a way that cannot be understood.
    #[error("slice {slice}: {reason}")]
    Slice {
        /// Its name.
        slice: Str,
        /// What is wrong.
        reason: String,
    },
    /// Devices of the node are published in a way that cannot be used, and the others are not enough.
    #[error("invalid resource pools were encountered: {0}")]
    InvalidPools(String),
    /// The search took too many steps.
    #[error("no allocation was found within {0} steps")]
    TooComplex(u64),
    /// The claims of a pod used up their [`AllocationBudget`](crate::Budget), on all nodes together.
    #[error("allocating devices for the pod's claims costs too much; use fewer or simpler selectors")]
    TooCostly,
}

impl Error {
    /// Whether other nodes may still serve the claims. Any other error is there on every node.
    pub fn concerns_only_the_node(&self) -> bool {
        matches!(self, Error::InvalidPools(_) | Error::TooComplex(_))
    }
}
