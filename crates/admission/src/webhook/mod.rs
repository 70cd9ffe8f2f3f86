//! Admission webhooks: selecting them for a request, calling them, and applying their responses.
//!
//! [`WebhookSet`] holds the compiled webhooks of one plugin. [`MutatingWebhooks`] and [`ValidatingWebhooks`]
//! are the plugins: they match webhooks ([`crate::matching`]), write an `AdmissionReview`, send it through a
//! [`Transport`] and interpret the response. This module does no I/O.

mod compiled;
mod set;
mod target;

mod object_versions;
mod selection;

mod call;
mod review;
mod transport;

mod denial;
mod patch;
mod reply;
mod response;

mod mutating;
mod validating;

pub use compiled::{AdmissionReviewVersion, Webhook};
pub use mutating::MutatingWebhooks;
pub use reply::status_of_reply;
pub use set::WebhookSet;
pub use target::{TokenRecipient, WebhookEndpoint, WebhookTarget};
pub use transport::{OutgoingReview, Transport, TransportError, WebhookReply};
pub use validating::ValidatingWebhooks;
