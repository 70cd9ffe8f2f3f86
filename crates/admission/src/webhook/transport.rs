//! How reviews get to webhooks and answers come back. The server implements [`Transport`] over its one outbound client.

use std::time::{Duration, Instant};

use value::Str;

use crate::Later;
use crate::webhook::{Recipient, Target};

/// A review on its way to a webhook.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Where to.
    pub target: &'a Target,
    /// Whom a token must be for that goes with it; none may without.
    pub recipient: Option<&'a Recipient>,
    /// The review, as JSON.
    pub body: Vec<u8>,
    /// How long the webhook may take.
    pub timeout: Option<Duration>,
    /// When the request it is about must be answered.
    pub deadline: Option<Instant>,
}

/// What a webhook's server answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status code.
    pub status: u16,
    /// The `Content-Type`; empty where there is none.
    pub content_type: String,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The target cannot be called, whatever the network says: a bundle of authorities that is none, a credential that cannot be
    /// read.
    Unusable(String),
    /// It was called, and nothing came back, in the words of Go's client.
    Failed(String),
}

/// Sends reviews.
pub trait Transport: Send + Sync {
    /// Sends a review and waits for the answer.
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Later<'a, Result<Reply, NoReply>>;

    /// A fresh uid.
    fn uid(&self) -> Str;
}
