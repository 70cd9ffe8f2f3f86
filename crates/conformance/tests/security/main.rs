//! Attacks on the security plane, each over HTTPS against the built binary. Every test fails on a server without the defence.
//! Attacks on a running server, and what stops them. Each one succeeded before its defence was there.

mod bindings;
mod bodies;
mod bootstrap_denied;
mod callers;
mod descriptors;
mod identity_headers;
mod node_restriction;
mod paths;
mod store_quota;
mod subresources;
mod targets;

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]
