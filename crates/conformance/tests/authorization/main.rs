//! Chains of authorizers with real webhooks over TLS, seen from outside.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "this is a test")]

mod chain;
mod deciding;
mod reload;
mod reviews;
mod starting;
