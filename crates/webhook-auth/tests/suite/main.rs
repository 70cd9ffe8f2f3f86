//! Integration tests of webhook-auth: which callers are accepted and which are rejected.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod https;
mod issuer;
mod keys;
mod layer;
mod property;
mod tokens;
mod vectors;
mod verify;
