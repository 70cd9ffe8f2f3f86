//! API aggregation with a real aggregated API server over TLS: authentication, discovery, forwarding, and failures of that
//! server.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod availability;
mod both_servers;
mod callers;
mod discovery;
mod local;
mod namespaces;
mod proxy;
mod streams;
