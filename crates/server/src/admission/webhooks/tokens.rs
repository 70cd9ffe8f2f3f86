//! Tokens that authenticate this server to admission webhooks (KEP-6060).
//!
//! A token comes from a `TokenRequest` that passes the whole pipeline as `system:apiserver`, for the service account
//! [`attestation::ACCOUNT_NAME`]. It is cached while it is valid and its webhook is registered, and renewed in the background before
//! it expires, with at most one request per webhook at a time. If no token can be obtained, the webhook is called without one and
//! decides itself.
//!
//! INVARIANT: a request for a token never waits for another token: the reviews of that request are sent without one (see
//! [`admission::AdmissionAttributes::is_for_own_token`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ::admission::webhook::TokenRecipient;
use api::attestation::{self, AttestationDialect};
use api::time::Timestamp;
use api::{Status, meta};
use outbound::BearerToken;
use prometheus::{HistogramVec, IntCounter, IntCounterVec};
use runtime::{LogLimit, MetricRegistry};
use tokio::sync::watch;
use tracing::warn;
use value::{Backoff, Value};

use crate::loopback::Loopback;

/// Age at which a token is renewed; tokens live ten minutes.
const REPLACED_AFTER: Duration = Duration::from_mins(8);
/// A token is no longer sent when it expires within this time: clocks differ, and calls take time.
const MARGIN: Duration = Duration::from_secs(30);
/// How long a review waits for a token, counted from the start of the token request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pauses before the next request after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Most cached tokens; there is one per registered webhook.
const CAPACITY: usize = 4096;

/// Metrics of token requests and cache lookups.
#[derive(Clone)]
pub(crate) struct TokenMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    looked_up: IntCounterVec,
}

impl TokenMetrics {
    pub(crate) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let durations = registry.histogram_vec(
            "apiserver_webhook_authentication_token_request_duration_seconds",
            "[ALPHA] Latency of token requests for tokens used to authenticate to admission webhooks, broken out by status.",
            &["status"],
            &prometheus::exponential_buckets(0.0005, 2.0, 16)?,
        )?;
        Ok(TokenMetrics {
            requests: registry.counter_vec(
                "apiserver_webhook_authentication_token_request_total",
                "[ALPHA] Number of token requests bound to a webhook configuration, broken out by status.",
                &["status"],
            )?,
            durations,
            looked_up: registry.counter_vec(
                "apiserver_webhook_authentication_token_create_calls_total",
                "[ALPHA] Number of lookups of cached webhook authentication tokens, broken out by whether one was found.",
                &["cache"],
            )?,
        })
    }

    /// Counts an answered request for a token that is bound to a webhook configuration.
    pub(crate) fn requested(&self, granted: bool, took: Duration) {
        let status = [if granted { "success" } else { "failure" }];
        self.requests.with_label_values(&status).inc();
        self.durations.with_label_values(&status).observe(took.as_secs_f64());
    }
}

/// The token cache of this server.
pub(crate) struct WebhookTokenSource {
    loopback: Loopback,
    /// Tokens by recipient. All are requested for the API group [`attestation::EVERY_GROUP`].
    slots: Mutex<HashMap<TokenRecipient, TokenSlot>>,
    metrics: TokenMetrics,
    hits: IntCounter,
    misses: IntCounter,
}

/// The cached token of one webhook, and the state of its requests.
#[derive(Default)]
struct TokenSlot {
    token: Option<CachedToken>,
    under_way: Option<TokenRequestInProgress>,
    /// Consecutive failed requests, and the earliest time of the next one.
    failures: u32,
    next: Option<Instant>,
}

#[derive(Clone)]
struct CachedToken {
    bearer: BearerToken,
    from: SystemTime,
    until: SystemTime,
}

/// A token request in progress. The sender of `over` is dropped when the request ends.
#[derive(Clone)]
struct TokenRequestInProgress {
    since: Instant,
    over: watch::Receiver<()>,
}

impl CachedToken {
    /// Whether the token may be sent. If the clock was set back before `from`, the token is invalid rather than valid for longer.
    fn is_good(&self, now: SystemTime) -> bool {
        self.from <= now && now < self.until
    }

    fn is_old(&self, now: SystemTime) -> bool {
        now.duration_since(self.from).is_ok_and(|age| age >= REPLACED_AFTER)
    }
}

impl WebhookTokenSource {
    pub(crate) fn new(metrics: TokenMetrics, loopback: Loopback) -> Arc<Self> {
        let [hits, misses] = ["hit", "miss"].map(|cache| metrics.looked_up.with_label_values(&[cache]));
        Arc::new(WebhookTokenSource { loopback, slots: Mutex::default(), metrics, hits, misses })
    }

    pub(crate) fn metrics(&self) -> &TokenMetrics {
        &self.metrics
    }

    /// The cached token for a webhook. If there is none, requests one and waits until `deadline`, but no longer than `PATIENCE` after
    /// the start of the request. `None` if there is no valid token then, or while requests are paused after failures.
    pub(crate) async fn get(
        self: &Arc<Self>,
        recipient: &TokenRecipient,
        deadline: Option<Instant>,
    ) -> Option<BearerToken> {
        static LOG: LogLimit = LogLimit::with_burst(20);
        let mut under_way = match self.look_up(recipient) {
            TokenLookup::Good(bearer) => return Some(bearer),
            TokenLookup::Nothing => return None,
            TokenLookup::Soon(under_way) => under_way,
        };
        let patience = under_way.since.checked_add(PATIENCE)?;
        let until = deadline.map_or(patience, |deadline| deadline.min(patience));
        // The channel carries no values; it closes when the request has succeeded or failed.
        let over = tokio::time::timeout_at(until.into(), under_way.over.changed()).await.is_ok();
        if !over && let Some(unlogged) = LOG.due() {
            warn!(
                configuration = %recipient.configuration,
                audience = %recipient.audience,
                unlogged,
                "calling a webhook without a token, because none was issued in time"
            );
        }
        let slots = self.slots();
        let token = slots.get(recipient)?.token.as_ref()?;
        token.is_good(SystemTime::now()).then(|| token.bearer.clone())
    }

    fn look_up(self: &Arc<Self>, recipient: &TokenRecipient) -> TokenLookup {
        let mut slots = self.slots();
        // Read under the lock: an earlier time could precede `from` of a token that was just stored, which would look invalid.
        let now = SystemTime::now();
        if let Some(slot) = slots.get_mut(recipient) {
            if let Some(token) = slot.token.clone().filter(|token| token.is_good(now)) {
                self.hits.inc();
                if token.is_old(now) && slot.may_ask() {
                    self.start_request(recipient, slot);
                }
                return TokenLookup::Good(token.bearer);
            }
            self.misses.inc();
            return self.ask_or_wait(recipient, slot);
        }
        self.misses.inc();
        if slots.len() >= CAPACITY {
            slots.retain(|_, slot| {
                slot.under_way.is_some() || slot.token.as_ref().is_some_and(|k| k.is_good(now))
            });
            if slots.len() >= CAPACITY {
                // Far more webhooks than any cluster has; further ones are called without a token.
                return TokenLookup::Nothing;
            }
        }
        self.ask_or_wait(recipient, slots.entry(recipient.clone()).or_default())
    }

    fn ask_or_wait(self: &Arc<Self>, recipient: &TokenRecipient, slot: &mut TokenSlot) -> TokenLookup {
        if let Some(under_way) = &slot.under_way {
            return TokenLookup::Soon(under_way.clone());
        }
        if slot.may_ask() {
            TokenLookup::Soon(self.start_request(recipient, slot))
        } else {
            TokenLookup::Nothing
        }
    }

    /// Starts a token request in the background.
    fn start_request(
        self: &Arc<Self>,
        recipient: &TokenRecipient,
        slot: &mut TokenSlot,
    ) -> TokenRequestInProgress {
        let (sender, over) = watch::channel(());
        let under_way = TokenRequestInProgress { since: Instant::now(), over };
        slot.under_way = Some(under_way.clone());
        let (tokens, recipient) = (Arc::clone(self), recipient.clone());
        tokio::spawn(async move {
            // Dropped last, also on a panic, so that no caller waits for a finished request.
            let sender = sender;
            let asked = tokens.request(&recipient).await;
            let mut slots = tokens.slots();
            // A slot that was removed or replaced in the meantime is left alone: its webhook or the account has changed.
            let slot = slots.get_mut(&recipient).filter(|slot| {
                slot.under_way
                    .as_ref()
                    .is_some_and(|under_way| under_way.over.same_channel(&sender.subscribe()))
            });
            match (slot, asked) {
                (Some(slot), Ok(token)) => *slot = TokenSlot { token: Some(token), ..TokenSlot::default() },
                (Some(slot), Err(status)) => {
                    slot.failed();
                    warn!(
                        configuration = %recipient.configuration,
                        audience = %recipient.audience,
                        error = status.message(),
                        "cannot get a token for a webhook; it is called without one until a retry succeeds"
                    );
                }
                (None, _) => {}
            }
            drop(slots);
            drop(sender);
        });
        under_way
    }

    /// Sends one TokenRequest through the pipeline.
    async fn request(&self, recipient: &TokenRecipient) -> Result<CachedToken, Status> {
        let client = self.loopback.client("the server is not ready to issue tokens")?;
        let dialect = AttestationDialect::Kubernetes;
        let mut request = Value::map([
            ("apiVersion", Value::from("authentication.k8s.io/v1")),
            ("kind", Value::from("TokenRequest")),
        ]);
        request.set_at(&["spec", "audiences"], Value::list([recipient.audience.clone()]));
        request.set_at(&["spec", "expirationSeconds"], attestation::LIFETIME);
        request.set_at(&["spec", dialect.field(), dialect.key()], Value::list([attestation::EVERY_GROUP]));
        request.set_at(
            &["spec", "boundObjectRef"],
            Value::map([
                ("apiVersion", Value::from(recipient.kind.api_version())),
                ("kind", Value::from(recipient.kind.kind())),
                ("name", Value::from(recipient.configuration.clone())),
                ("uid", Value::from(recipient.uid.clone())),
            ]),
        );
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            attestation::ACCOUNT_NAMESPACE,
            attestation::ACCOUNT_NAME
        );
        let from = SystemTime::now();
        let answer = client.create(&path, &request).await?;
        let bearer = answer.str_at(&["status", "token"]).filter(|token| !token.is_empty());
        let until =
            answer.str_at(&["status", "expirationTimestamp"]).and_then(|at| Timestamp::parse(at).ok());
        let until = until.and_then(|at| {
            let at = Duration::from_secs(u64::try_from(at.seconds).ok()?).checked_sub(MARGIN)?;
            SystemTime::UNIX_EPOCH.checked_add(at)
        });
        match (bearer.and_then(BearerToken::new), until) {
            (Some(bearer), Some(until)) => Ok(CachedToken { bearer, from, until }),
            _ => Err(Status::internal("the response to the TokenRequest has no token or no expiration time")),
        }
    }

    /// Call this when a webhook configuration changes. Drops the tokens that are bound to a deleted configuration, or that are for a
    /// webhook that the configuration no longer has.
    pub(crate) fn configuration_changed(&self, old: Option<&Value>, new: Option<&Value>) {
        let Some(old) = old else { return };
        let uid = meta::uid(old);
        let stays = new.filter(|new| meta::uid(new) == uid);
        self.slots().retain(|recipient, _| {
            recipient.uid != uid
                || stays.is_some_and(|new| {
                    let mut configs =
                        new.list_at(&["webhooks"]).iter().filter_map(|hook| hook.get("clientConfig"));
                    configs.any(|config| {
                        attestation::audience(config).is_some_and(|own| own == recipient.audience)
                    })
                })
        });
    }

    /// Drops all tokens, because they name a service account that was deleted or replaced.
    pub(crate) fn account_changed(&self) {
        self.slots().clear();
    }

    /// Resets the pauses after failures, because the permissions of the service account may have changed.
    pub(crate) fn ask_again(&self) {
        self.slots().values_mut().for_each(|slot| (slot.failures, slot.next) = (0, None));
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<TokenRecipient, TokenSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of a cache lookup: a valid token, a request in progress, or neither.
enum TokenLookup {
    Good(BearerToken),
    Soon(TokenRequestInProgress),
    Nothing,
}

impl TokenSlot {
    fn may_ask(&self) -> bool {
        self.under_way.is_none() && self.next.is_none_or(|next| Instant::now() >= next)
    }

    fn failed(&mut self) {
        self.under_way = None;
        self.failures = self.failures.saturating_add(1);
        self.next = Instant::now().checked_add(BACKOFF.after(self.failures));
    }
}

impl std::fmt::Debug for WebhookTokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookTokenSource")
    }
}

#[cfg(test)]
mod tests;
