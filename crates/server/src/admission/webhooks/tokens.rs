//! The tokens that tell webhooks that it is this server who asks (KEP-6060).
//!
//! A token is asked for as anybody would ask for it: a `TokenRequest` through the whole pipeline, as `system:apiserver`, for the
//! account [`attestation::ACCOUNT_NAME`]. It is kept while it is good and its webhook is registered, and replaced ahead of its end
//! while nobody waits. For one webhook one request is under way at a time. Where no token is to be had the webhook is called
//! without one, and decides.
//!
//! INVARIANT: asking for a token never waits for another one: the reviews of that request go out without (see
//! [`admission::Attributes::is_for_own_token`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ::admission::webhook::TokenRecipient;
use api::attestation::{self, AttestationDialect};
use api::time::Timestamp;
use api::{Status, meta};
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};
use tokio::sync::watch;
use tracing::warn;
use value::Value;

use crate::loopback::Loopback;
use crate::metrics::MetricRegistry;
use crate::outbound::Bearer;

/// A token is replaced when this much of its life is over.
const REPLACED_AFTER: Duration = Duration::from_mins(8);
/// A token is not sent any more when it has this long to live: clocks differ, and calls take time.
const MARGIN: Duration = Duration::from_secs(30);
/// How long a review waits for a token, from the moment it was asked for.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a failure nobody asks again for this long, and twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The most tokens that are kept; there is one per registered webhook.
const CAPACITY: usize = 4096;

/// What is counted of them.
#[derive(Clone)]
pub(crate) struct TokenMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    looked_up: IntCounterVec,
}

impl TokenMetrics {
    /// Registers the families.
    pub(crate) fn new(registry: &MetricRegistry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, label: &str| -> Result<IntCounterVec, prometheus::Error> {
            let metric = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let options = HistogramOpts::new(
            "apiserver_webhook_authentication_token_request_duration_seconds",
            "[ALPHA] Latency of token requests for tokens used to authenticate to admission webhooks, broken out by status.",
        );
        let durations = HistogramVec::new(
            options.buckets(prometheus::exponential_buckets(0.0005, 2.0, 16)?),
            &["status"],
        )?;
        registry.register(Box::new(durations.clone()))?;
        Ok(TokenMetrics {
            requests: counter(
                "apiserver_webhook_authentication_token_request_total",
                "[ALPHA] Number of token requests bound to a webhook configuration, broken out by status.",
                "status",
            )?,
            durations,
            looked_up: counter(
                "apiserver_webhook_authentication_token_create_calls_total",
                "[ALPHA] Number of lookups of cached webhook authentication tokens, broken out by whether one was found.",
                "cache",
            )?,
        })
    }

    /// A request for a token that is bound to a configuration of webhooks was answered.
    pub(crate) fn requested(&self, granted: bool, took: Duration) {
        let status = [if granted { "success" } else { "failure" }];
        self.requests.with_label_values(&status).inc();
        self.durations.with_label_values(&status).observe(took.as_secs_f64());
    }
}

/// The tokens of one server.
pub(crate) struct WebhookTokens {
    loopback: Loopback,
    /// By whom they are for. The API group is always [`attestation::EVERY_GROUP`].
    slots: Mutex<HashMap<TokenRecipient, Slot>>,
    metrics: TokenMetrics,
    hits: IntCounter,
    misses: IntCounter,
}

/// What is known about the token for one webhook.
#[derive(Default)]
struct Slot {
    token: Option<Kept>,
    under_way: Option<UnderWay>,
    /// How many requests failed in a row, and when the next may be made.
    failures: u32,
    next: Option<Instant>,
}

#[derive(Clone)]
struct Kept {
    bearer: Bearer,
    from: SystemTime,
    until: SystemTime,
}

/// A request for a token. The sender is dropped when it is over.
#[derive(Clone)]
struct UnderWay {
    since: Instant,
    over: watch::Receiver<()>,
}

impl Kept {
    /// Whether it can be sent. A clock that was set back makes a token bad, not eternal.
    fn is_good(&self, now: SystemTime) -> bool {
        self.from <= now && now < self.until
    }

    fn is_old(&self, now: SystemTime) -> bool {
        now.duration_since(self.from).is_ok_and(|age| age >= REPLACED_AFTER)
    }
}

impl WebhookTokens {
    /// Without any token yet.
    pub(crate) fn new(metrics: TokenMetrics, loopback: Loopback) -> Arc<Self> {
        let [hits, misses] = ["hit", "miss"].map(|cache| metrics.looked_up.with_label_values(&[cache]));
        Arc::new(WebhookTokens { loopback, slots: Mutex::default(), metrics, hits, misses })
    }

    /// What is counted of them.
    pub(crate) fn metrics(&self) -> &TokenMetrics {
        &self.metrics
    }

    /// The token for a webhook, if one is to be had in time.
    pub(crate) async fn get(
        self: &Arc<Self>,
        recipient: &TokenRecipient,
        deadline: Option<Instant>,
    ) -> Option<Bearer> {
        let mut under_way = match self.look_up(recipient) {
            Found::Good(bearer) => return Some(bearer),
            Found::Nothing => return None,
            Found::Soon(under_way) => under_way,
        };
        let patience = under_way.since.checked_add(PATIENCE)?;
        let until = deadline.map_or(patience, |deadline| deadline.min(patience));
        // The sender says nothing and is dropped: then the request is over, one way or another.
        let over = tokio::time::timeout_at(until.into(), under_way.over.changed()).await.is_ok();
        if !over {
            warn!(
                configuration = %recipient.configuration,
                audience = %recipient.audience,
                "a webhook is called without a token, because none could be had in time"
            );
        }
        let slots = self.slots();
        let kept = slots.get(recipient)?.token.as_ref()?;
        kept.is_good(SystemTime::now()).then(|| kept.bearer.clone())
    }

    fn look_up(self: &Arc<Self>, recipient: &TokenRecipient) -> Found {
        let mut slots = self.slots();
        // Read while nobody puts a token there: an earlier time would take one that has just come for one of the future.
        let now = SystemTime::now();
        if let Some(slot) = slots.get_mut(recipient) {
            if let Some(kept) = slot.token.clone().filter(|kept| kept.is_good(now)) {
                self.hits.inc();
                if kept.is_old(now) && slot.may_ask() {
                    self.ask(recipient, slot);
                }
                return Found::Good(kept.bearer);
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
                // More webhooks than anybody has: those that come last are called without.
                return Found::Nothing;
            }
        }
        self.ask_or_wait(recipient, slots.entry(recipient.clone()).or_default())
    }

    fn ask_or_wait(self: &Arc<Self>, recipient: &TokenRecipient, slot: &mut Slot) -> Found {
        if let Some(under_way) = &slot.under_way {
            return Found::Soon(under_way.clone());
        }
        if slot.may_ask() { Found::Soon(self.ask(recipient, slot)) } else { Found::Nothing }
    }

    /// Asks for a token while whoever wants it does something else, or waits.
    fn ask(self: &Arc<Self>, recipient: &TokenRecipient, slot: &mut Slot) -> UnderWay {
        let (sender, over) = watch::channel(());
        let under_way = UnderWay { since: Instant::now(), over };
        slot.under_way = Some(under_way.clone());
        let (tokens, recipient) = (Arc::clone(self), recipient.clone());
        tokio::spawn(async move {
            // Dropped last, whatever happens, so that nobody waits for what is over.
            let sender = sender;
            let asked = tokens.request(&recipient).await;
            let mut slots = tokens.slots();
            // A slot that was forgotten in the meantime stays so: its webhook is gone.
            let slot = slots.get_mut(&recipient).filter(|slot| {
                slot.under_way
                    .as_ref()
                    .is_some_and(|under_way| under_way.over.same_channel(&sender.subscribe()))
            });
            match (slot, asked) {
                (Some(slot), Ok(kept)) => *slot = Slot { token: Some(kept), ..Slot::default() },
                (Some(slot), Err(status)) => {
                    slot.failed();
                    warn!(
                        configuration = %recipient.configuration,
                        audience = %recipient.audience,
                        why = status.message(),
                        "a token for a webhook could not be had; while there is none the webhook is called without"
                    );
                }
                (None, _) => {}
            }
            drop(slots);
            drop(sender);
        });
        under_way
    }

    /// One request through the pipeline.
    async fn request(&self, recipient: &TokenRecipient) -> Result<Kept, Status> {
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
        match (bearer.and_then(Bearer::new), until) {
            (Some(bearer), Some(until)) => Ok(Kept { bearer, from, until }),
            _ => Err(Status::internal("the answer holds no token")),
        }
    }

    /// A configuration changed: `(old, new)`. What was asked for in the name of one that is gone, or for a webhook that it no
    /// longer has, is forgotten.
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

    /// The account changed: no token that names it as it was is shown again.
    pub(crate) fn account_changed(&self) {
        self.slots().clear();
    }

    /// What the account may has changed: whoever failed need not wait before the next attempt.
    pub(crate) fn ask_again(&self) {
        self.slots().values_mut().for_each(|slot| (slot.failures, slot.next) = (0, None));
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<TokenRecipient, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at what is kept gives.
enum Found {
    Good(Bearer),
    Soon(UnderWay),
    Nothing,
}

impl Slot {
    fn may_ask(&self) -> bool {
        self.under_way.is_none() && self.next.is_none_or(|next| Instant::now() >= next)
    }

    fn failed(&mut self) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(8)).min(LONGEST_PAUSE);
        self.under_way = None;
        self.failures = self.failures.saturating_add(1);
        self.next = Instant::now().checked_add(pause);
    }
}

impl std::fmt::Debug for WebhookTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookTokens")
    }
}

#[cfg(test)]
mod tests;
