//! API servers that authenticate to webhooks (KEP-6060), and webhooks that verify it with `webhook-auth`: the three flows of the
//! KEP, attacks, and a roll-out.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod aggregated;
mod guard;
mod page;
mod roll_out;
mod site;
mod turtles;
mod webhook;

/// The published examples of the library.
#[expect(dead_code, reason = "the examples' own `main` and flags")]
#[path = "../../../webhook-auth/examples/aggregated.rs"]
mod aggregated_example;
#[expect(dead_code, reason = "the example's own `main`")]
#[path = "../../../webhook-auth/examples/webhook.rs"]
mod webhook_example;
