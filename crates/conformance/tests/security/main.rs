//! Attacks on the security plane, each over HTTPS against the built binary. Every test fails on a server without the defence.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bindings;
mod bootstrap_denied;
mod identity_headers;
mod node_restriction;
mod paths;
mod subresources;
mod targets;
