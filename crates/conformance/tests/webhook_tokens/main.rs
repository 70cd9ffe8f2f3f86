//! Tokens that authenticate the API server to admission webhooks (KEP-6060): who may request one, its claims, its lifetime, and
//! that the server sends one to every API webhook and to no other server.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod attacks;
mod calls;
mod denials;
mod external;
mod gate;
mod life;
mod metrics;
mod requests;
mod token_requests;
