//! [`Observer`]: what happens in a chain, for metrics.

use std::time::Duration;

use crate::config::AuthorizerType;
use crate::decision::Decision;

/// Hears what happens. Every method may be left out.
pub trait Observer: Send + Sync {
    /// An authorizer of the chain has spoken.
    fn decided(&self, _kind: AuthorizerType, _name: &str, _decision: Decision) {}

    /// A webhook was asked.
    fn evaluated(&self, _evaluation: &Evaluation<'_>) {}

    /// A webhook could not be asked, and the request went on without it.
    fn failed_open(&self, _name: &str, _result: &'static str) {}

    /// The match conditions of a webhook were evaluated.
    fn conditions_evaluated(&self, _name: &str, _took: Duration) {}

    /// A match condition said not to ask.
    fn condition_excluded(&self, _name: &str) {}

    /// A match condition could not be evaluated.
    fn condition_failed(&self, _name: &str) {}
}

/// One call of a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// The webhook.
    pub name: &'a str,
    /// `success`, `timeout`, `canceled` or `error`.
    pub result: &'static str,
    /// The status code, if there was an answer.
    pub status: Option<u16>,
    /// What the answer means; where it could not be read, what the failure policy makes of that.
    pub decision: Decision,
    /// How long it took.
    pub latency: Duration,
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
