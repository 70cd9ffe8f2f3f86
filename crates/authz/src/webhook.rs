//! Webhook authorizer: asks a remote service with a SubjectAccessReview.
//!
//! [`WebhookAuthorizer`] evaluates match conditions, builds the review, caches responses, lets identical
//! concurrent requests share one call, retries, and applies the failure policy. A [`ReviewTransport`] does the
//! I/O.

mod response;
mod retries;
mod review;
mod shared_calls;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::User;
use value::{Str, TtlCache, write};

pub use response::{SendError, WebhookFailure, WebhookResponse, decode_object};
pub use retries::send_with_retries;

use crate::attributes::AuthorizationAttributes;
use crate::conditions::{Conditions, ConditionsResult};
use crate::config::{FailurePolicy, SubjectAccessReviewVersion, WebhookConfiguration};
use crate::decision::{AuthorizerDecision, Decision, DecisionReason};
use crate::observe::{AuthorizationObserver, WebhookEvaluation};
use response::ReviewVerdict;
use shared_calls::{CallRole, SharedCalls};

pub type AuthorizationFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends reviews to one service.
pub trait ReviewTransport: Send + Sync {
    /// POSTs a review as JSON and waits for the response, with the configured timeout and a limit on the
    /// body's size.
    fn send<'a>(&'a self, review: &'a [u8]) -> AuthorizationFuture<'a, Result<WebhookResponse, SendError>>;

    /// Waits before a retry.
    fn pause(&self, how_long: Duration) -> AuthorizationFuture<'_, ()>;

    /// The current time, for the cache.
    fn now(&self) -> Instant;
}

const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Decisions about requests with longer attributes (in bytes) are not cached, so that clients cannot fill the
/// cache.
const MAX_CACHED_BYTES: usize = 10_000;

/// The maximum number of cached verdicts.
const CACHE_CAPACITY: usize = 8192;

pub struct WebhookAuthorizer {
    name: Str,
    version: SubjectAccessReviewVersion,
    authorized_ttl: Option<Duration>,
    unauthorized_ttl: Option<Duration>,
    failure_policy: FailurePolicy,
    conditions: Conditions,
    sender: Arc<dyn ReviewTransport>,
    observer: Arc<dyn AuthorizationObserver>,
    cache: TtlCache<Arc<str>, ReviewVerdict, Instant>,
    calls: SharedCalls<Result<ReviewVerdict, WebhookFailure>>,
}

impl WebhookAuthorizer {
    pub fn new(
        name: impl Into<Str>,
        configuration: &WebhookConfiguration,
        sender: Arc<dyn ReviewTransport>,
        observer: Arc<dyn AuthorizationObserver>,
    ) -> Self {
        WebhookAuthorizer {
            name: name.into(),
            version: configuration.version,
            authorized_ttl: configuration.authorized_ttl,
            unauthorized_ttl: configuration.unauthorized_ttl,
            failure_policy: configuration.failure_policy,
            conditions: configuration.conditions.clone(),
            sender,
            observer,
            cache: TtlCache::new(CACHE_CAPACITY),
            calls: SharedCalls::default(),
        }
    }

    /// Decides from match conditions or the cache if possible, else calls the webhook.
    pub async fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        if !self.conditions.is_empty() {
            let started = self.sender.now();
            let matched = self.conditions.evaluate(user, attributes);
            let took = self.sender.now().saturating_duration_since(started);
            self.observer.conditions_evaluated(&self.name, took);
            if matches!(matched, ConditionsResult::Failed(_) | ConditionsResult::No { failed: true }) {
                self.observer.condition_failed(&self.name);
            }
            match matched {
                ConditionsResult::Yes => {}
                ConditionsResult::No { .. } => {
                    self.observer.condition_excluded(&self.name);
                    return AuthorizerDecision {
                        reason: DecisionReason::None,
                        ..AuthorizerDecision::no_opinion("")
                    };
                }
                ConditionsResult::Failed(error) => return self.failed(error),
            }
        }
        let spec = review::spec(user, attributes, self.version);
        let key = write::to_string(&spec);
        loop {
            if let Some(verdict) = self.cache.get(key.as_str(), self.sender.now()) {
                return verdict.to_decision();
            }
            match self.calls.join(&key) {
                CallRole::Leader(leader) => {
                    let outcome = self.send_review(&review::body(spec, self.version)).await;
                    if let Ok(verdict) = &outcome
                        && attributes.weight() < MAX_CACHED_BYTES
                    {
                        let ttl = if verdict.allowed { self.authorized_ttl } else { self.unauthorized_ttl };
                        let now = self.sender.now();
                        if let Some(until) = ttl.and_then(|ttl| now.checked_add(ttl)) {
                            self.cache.insert(key.as_str().into(), verdict.clone(), now..until);
                        }
                    }
                    leader.complete(outcome.clone());
                    return self.decision(outcome);
                }
                // If the leader gave up (its client disconnected), a waiting request makes the call.
                CallRole::Follower(shared_call) => {
                    if let Some(outcome) = shared_call.await {
                        return self.decision(outcome);
                    }
                }
            }
        }
    }

    fn decision(&self, outcome: Result<ReviewVerdict, WebhookFailure>) -> AuthorizerDecision {
        match outcome {
            Ok(verdict) => verdict.to_decision(),
            Err(failure) => {
                if self.failure_policy == FailurePolicy::NoOpinion {
                    self.observer.failed_open(&self.name, failure.result());
                }
                self.failed(failure.message)
            }
        }
    }

    /// The decision of the failure policy, which is never an allow.
    fn failed(&self, error: String) -> AuthorizerDecision {
        AuthorizerDecision {
            decision: self.decision_on_failure(),
            reason: DecisionReason::None,
            error: Some(error),
        }
    }

    fn decision_on_failure(&self) -> Decision {
        match self.failure_policy {
            FailurePolicy::NoOpinion => Decision::NoOpinion,
            FailurePolicy::Deny => Decision::Deny,
        }
    }

    async fn send_review(&self, body: &[u8]) -> Result<ReviewVerdict, WebhookFailure> {
        let decode = |sent: Result<WebhookResponse, SendError>, started| {
            let status = sent.as_ref().ok().map(|answered| answered.status);
            let outcome = response::decode_verdict(sent, self.version);
            let outcome = match self.failure_policy {
                FailurePolicy::NoOpinion => response::undecided_as_no_opinion(outcome),
                FailurePolicy::Deny => outcome,
            };
            self.observer.evaluated(&WebhookEvaluation {
                name: &self.name,
                result: outcome.as_ref().map_or_else(WebhookFailure::result, |_| "success"),
                status,
                decision: outcome
                    .as_ref()
                    .map_or(self.decision_on_failure(), |verdict| verdict.to_decision().decision),
                latency: self.sender.now().saturating_duration_since(started),
            });
            outcome
        };
        send_with_retries(&*self.sender, body, FIRST_RETRY_DELAY, decode).await
    }
}

impl fmt::Debug for WebhookAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("name", &self.name)
            .field("failure_policy", &self.failure_policy)
            .field("conditions", &self.conditions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
