//! Webhooks: which are asked about a request, what they are asked, and what their answers mean.
//!
//! [`Set`] holds the webhooks of one kind as their configurations describe them. [`MutatingWebhooks`] and [`ValidatingWebhooks`] are
//! stages of the chain: they select webhooks ([`crate::matching`]), write a review, send it through a [`Transport`] and interpret
//! what comes back. Nothing here opens a connection.

mod hook;
mod set;
mod target;

mod selection;
mod views;

mod exchange;
mod review;
mod transport;

mod denial;
mod patch;
mod reply;
mod response;

mod mutating;
mod validating;

pub use hook::{Hook, ReviewVersion};
pub use mutating::MutatingWebhooks;
pub use reply::unexpected;
pub use set::Set;
pub use target::{Place, Recipient, Target};
pub use transport::{NoReply, Outgoing, Reply, Transport};
pub use validating::ValidatingWebhooks;
