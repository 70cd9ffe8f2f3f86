//! Tokens that tell admission webhooks who asks them (KEP-6060): who gets one, what it says, how long it is believed, and that the
//! server shows one to every webhook of the API and to nobody else.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod attacks;
mod calls;
mod denials;
mod external;
mod gate;
mod life;
mod metrics;
mod requests;
mod setting;
