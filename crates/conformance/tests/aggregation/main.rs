//! API aggregation with a real API server behind the one under test, over real TLS.
//!
//! Who is calling is decided here and believed there; what is wrong there stays there.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod availability;
mod callers;
mod discovery;
mod local;
mod namespaces;
mod proxy;
mod setting;
mod streams;
