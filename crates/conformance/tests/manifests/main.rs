//! Static manifests (KEP-5793): policies that are active before the first request and that no request can remove.
//!
//! Every denial names the policy and its binding, and the same request succeeds on a server without the policy.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod documents;
mod examples;
mod folder;
mod gates;
mod in_flight;
mod offline;
mod protection;
mod reload;
mod seen;
mod start;
mod store;
mod torture;
mod trouble;
mod webhooks;
