//! Attacks on the security plane, each over HTTPS against the built binary. Every test fails on a server without the defence.
//! Attacks on the security plane, over the wire: each test fails on a server without the defence it names.

mod identity_headers;
mod node_restriction;
mod paths;
mod subresources;

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
