//! Sending reviews to webhooks. The server implements [`Transport`] with its outbound HTTP client.

use std::time::{Duration, Instant};

use value::Str;

use crate::AdmissionFuture;
use crate::webhook::{TokenRecipient, WebhookTarget};

#[derive(Clone, Debug)]
pub struct OutgoingReview<'a> {
    pub target: &'a WebhookTarget,
    /// If set, a token for this recipient must be sent along; if not, no token may be.
    pub recipient: Option<&'a TokenRecipient>,
    /// The review as JSON.
    pub body: Vec<u8>,
    /// The webhook's `timeoutSeconds`; `None` if unset.
    pub timeout: Option<Duration>,
    /// The deadline of the client's request.
    pub deadline: Option<Instant>,
}

/// A webhook's HTTP response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookReply {
    pub status: u16,
    /// Empty if the header is missing.
    pub content_type: String,
    pub body: Vec<u8>,
}

/// The webhook returned no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The webhook cannot be called: for example an invalid CA bundle or an unreadable credential.
    Unusable(String),
    /// The call failed; the message is that of Go's HTTP client.
    Failed(String),
}

pub trait Transport: Send + Sync {
    /// Sends a review and waits for the response.
    fn send<'a>(
        &'a self,
        outgoing: OutgoingReview<'a>,
    ) -> AdmissionFuture<'a, Result<WebhookReply, TransportError>>;

    /// A new random uid for a review.
    fn new_uid(&self) -> Str;
}
