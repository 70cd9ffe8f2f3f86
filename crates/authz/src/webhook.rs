//! A remote service that is asked by SubjectAccessReview.
//!
//! [`Webhook`] decides whether to ask at all (match conditions), builds the review, keeps answers for a while, lets identical
//! questions share one call, tries again where that may help, and says what an answer, or none, means. Sending is somebody
//! else's ([`Sender`]).

mod answer;
mod flight;
mod review;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::User;
use value::{Str, TtlCache, write};

pub use answer::{Answered, Failure, SendError, received};

use crate::attributes::Attributes;
use crate::conditions::{Conditions, Match};
use crate::config::{FailurePolicy, ReviewVersion, WebhookConfiguration};
use crate::decision::{Answer, Decision, Reason};
use crate::observe::{Evaluation, Observer};
use answer::Verdict;
use flight::{Flights, Seat};

/// A future that may be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends reviews to one service.
pub trait Sender: Send + Sync {
    /// POSTs a review as JSON and waits for the answer, no longer than configured and for no more than a bounded body.
    fn send<'a>(&'a self, review: &'a [u8]) -> BoxFuture<'a, Result<Answered, SendError>>;

    /// Waits before another try.
    fn pause(&self, how_long: Duration) -> BoxFuture<'_, ()>;

    /// The time, as far as keeping answers goes.
    fn now(&self) -> Instant;
}

/// How often a review is tried, and how long the first wait is; each later one is half as long again.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Requests whose attributes are longer than this in sum are not kept: somebody may try to fill the cache.
const MAX_CACHED: usize = 10_000;

/// How many verdicts are cached.
const CACHE_CAPACITY: usize = 8192;

/// A webhook authorizer.
pub struct Webhook {
    name: Str,
    version: ReviewVersion,
    authorized_ttl: Option<Duration>,
    unauthorized_ttl: Option<Duration>,
    failure_policy: FailurePolicy,
    conditions: Conditions,
    sender: Arc<dyn Sender>,
    observer: Arc<dyn Observer>,
    cache: TtlCache<Arc<str>, Verdict, Instant>,
    flights: Flights<Result<Verdict, Failure>>,
}

impl Webhook {
    /// A webhook as configured.
    pub fn new(
        name: impl Into<Str>,
        configuration: &WebhookConfiguration,
        sender: Arc<dyn Sender>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Webhook {
            name: name.into(),
            version: configuration.version,
            authorized_ttl: configuration.authorized_ttl,
            unauthorized_ttl: configuration.unauthorized_ttl,
            failure_policy: configuration.failure_policy,
            conditions: configuration.conditions.clone(),
            sender,
            observer,
            cache: TtlCache::new(CACHE_CAPACITY),
            flights: Flights::default(),
        }
    }

    /// Asks, unless a condition says not to or the answer is known.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Answer {
        if !self.conditions.is_empty() {
            let begun = self.sender.now();
            let matched = self.conditions.evaluate(user, attributes);
            let took = self.sender.now().saturating_duration_since(begun);
            self.observer.conditions_evaluated(&self.name, took);
            if matches!(matched, Match::Failed(_) | Match::No { failed: true }) {
                self.observer.condition_failed(&self.name);
            }
            match matched {
                Match::Yes => {}
                Match::No { .. } => {
                    self.observer.condition_excluded(&self.name);
                    return Answer { reason: Reason::None, ..Answer::no_opinion("") };
                }
                Match::Failed(error) => return self.failed(error),
            }
        }
        let spec = review::spec(user, attributes, self.version);
        let key = write::to_string(&spec);
        loop {
            if let Some(verdict) = self.cache.get(key.as_str(), self.sender.now()) {
                return verdict.answer();
            }
            match self.flights.join(&key) {
                Seat::Pilot(pilot) => {
                    let outcome = self.ask(&review::body(spec, self.version)).await;
                    if let Ok(verdict) = &outcome
                        && attributes.weight() < MAX_CACHED
                    {
                        let ttl = if verdict.allowed { self.authorized_ttl } else { self.unauthorized_ttl };
                        let now = self.sender.now();
                        if let Some(until) = ttl.and_then(|ttl| now.checked_add(ttl)) {
                            self.cache.insert(key.as_str().into(), verdict.clone(), now..until);
                        }
                    }
                    pilot.land(outcome.clone());
                    return self.answer(outcome);
                }
                // A pilot that gave up (its client went away) leaves the question to whoever waits.
                Seat::Passenger(flight) => {
                    if let Some(outcome) = flight.await {
                        return self.answer(outcome);
                    }
                }
            }
        }
    }

    fn answer(&self, outcome: Result<Verdict, Failure>) -> Answer {
        match outcome {
            Ok(verdict) => verdict.answer(),
            Err(failure) => {
                if self.failure_policy == FailurePolicy::NoOpinion {
                    self.observer.failed_open(&self.name, failure.result());
                }
                self.failed(failure.message)
            }
        }
    }

    /// What a failure means: the configured decision, and never an allow.
    fn failed(&self, error: String) -> Answer {
        Answer { decision: self.decision_on_failure(), reason: Reason::None, error: Some(error) }
    }

    fn decision_on_failure(&self) -> Decision {
        match self.failure_policy {
            FailurePolicy::NoOpinion => Decision::NoOpinion,
            FailurePolicy::Deny => Decision::Deny,
        }
    }

    async fn ask(&self, body: &[u8]) -> Result<Verdict, Failure> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            let begun = self.sender.now();
            let sent = self.sender.send(body).await;
            let status = sent.as_ref().ok().map(|answered| answered.status);
            let outcome = answer::verdict(sent, self.version);
            let outcome = match self.failure_policy {
                FailurePolicy::NoOpinion => answer::undecided_as_none(outcome),
                FailurePolicy::Deny => outcome,
            };
            self.observer.evaluated(&Evaluation {
                name: &self.name,
                result: outcome.as_ref().map_or_else(Failure::result, |_| "success"),
                status,
                decision: outcome
                    .as_ref()
                    .map_or(self.decision_on_failure(), |verdict| verdict.answer().decision),
                latency: self.sender.now().saturating_duration_since(begun),
            });
            match outcome {
                Err(failure) if failure.may_pass && tries < TRIES => {
                    self.sender.pause(pause).await;
                    pause = pause * 3 / 2;
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

impl fmt::Debug for Webhook {
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
