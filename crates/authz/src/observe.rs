//! [`AuthorizationObserver`]: receives events for metrics.

use std::time::Duration;

use crate::config::AuthorizerType;
use crate::decision::Decision;

/// All methods default to doing nothing.
pub trait AuthorizationObserver: Send + Sync {
    fn decided(&self, _kind: AuthorizerType, _name: &str, _decision: Decision) {}

    fn evaluated(&self, _evaluation: &WebhookEvaluation<'_>) {}

    /// A webhook call failed, and the next authorizer was asked.
    fn failed_open(&self, _name: &str, _result: &'static str) {}

    fn conditions_evaluated(&self, _name: &str, _took: Duration) {}

    /// A match condition was false.
    fn condition_excluded(&self, _name: &str) {}

    fn condition_failed(&self, _name: &str) {}
}

#[derive(Clone, Copy, Debug)]
pub struct WebhookEvaluation<'a> {
    /// The webhook's name in the chain.
    pub name: &'a str,
    /// `success`, `timeout`, `canceled` or `error`.
    pub result: &'static str,
    /// The HTTP status code, if there was a response.
    pub status: Option<u16>,
    /// After a failure, the decision of the failure policy.
    pub decision: Decision,
    pub latency: Duration,
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl AuthorizationObserver for NoObserver {}
