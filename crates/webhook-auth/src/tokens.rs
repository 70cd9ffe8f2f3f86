//! [`TokenCache`]: the other side. An API server that calls webhooks obtains a token for each, keeps it and renews it.
//!
//! A token is kept per kind, name and uid of the configuration and audience: a configuration that was deleted and made again is
//! another one. It is renewed ahead of its end and off the path of requests; one request per token is under way at a time, and goes on
//! when whoever waited for it goes away.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Pending;
use crate::verify::{ClientConfig, Configuration, Dialect, LIFETIME_SECONDS};

/// More tokens are not kept.
const MAX_TOKENS: usize = 1024;

/// How long a request for a token may take.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// A token this close to its end is not handed out.
const MARGIN: Duration = Duration::from_secs(10);

/// After a failure the next try is not earlier than this, while there is a token that still serves.
const PAUSE: Duration = Duration::from_secs(10);

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The API server refused. The text is its own.
    #[error("the token request was refused: {0}")]
    Refused(String),
    /// The API server could not be asked, or its answer not understood.
    #[error("the token request failed: {0}")]
    Failed(String),
    /// The configuration does not say where its webhook is.
    #[error("the webhook has neither a url nor a service, or both")]
    NoAudience,
    /// The dialect cannot say this group.
    #[error("the core group cannot be attested in this dialect")]
    CoreGroup,
    /// There is no tokio runtime.
    #[error("there is no runtime to ask in")]
    NoRuntime,
}

/// What a token is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The configuration: kind, name and uid.
    configuration: (crate::ConfigurationKind, String, String),
    /// Whom it is for.
    audience: String,
    /// The API group that the bearer asks about.
    group: String,
}

impl Wanted {
    /// A token for a webhook of this configuration, to ask about this API group.
    pub fn new(
        configuration: &Configuration,
        webhook: &ClientConfig,
        group: impl Into<String>,
    ) -> Result<Self, TokenError> {
        let Configuration { kind, name, uid } = configuration.clone();
        let audience = webhook.audience().ok_or(TokenError::NoAudience)?;
        Ok(Wanted { configuration: (kind, name, uid), audience, group: group.into() })
    }

    /// The audience.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The API group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The `TokenRequest` that asks for it.
    pub fn to_request(&self, dialect: Dialect) -> Result<Value, TokenError> {
        if self.group.is_empty() && !dialect.has_core_group() {
            return Err(TokenError::CoreGroup);
        }
        let (kind, name, uid) = &self.configuration;
        let mut bound = json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "name": name});
        let mut spec = json!({"audiences": [self.audience], "expirationSeconds": LIFETIME_SECONDS});
        if let (Some(bound), Some(spec)) = (bound.as_object_mut(), spec.as_object_mut()) {
            if !uid.is_empty() {
                bound.insert("uid".to_owned(), Value::from(uid.as_str()));
            }
            spec.insert(dialect.field().to_owned(), json!({ dialect.group_key(): [self.group] }));
            spec.insert("boundObjectRef".to_owned(), Value::Object(bound.clone()));
        }
        Ok(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}))
    }
}

/// A token, and how long it lives from when it was asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The token.
    pub token: String,
    /// How long it lives.
    pub lifetime: Duration,
}

impl Issued {
    /// Reads the answer to a `TokenRequest`. The lifetime is the one granted, which no clock has to agree about.
    pub fn from_answer(answer: &Value) -> Option<Self> {
        let token = answer.pointer("/status/token")?.as_str().filter(|token| !token.is_empty())?;
        let seconds = answer.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
        let seconds = seconds.unwrap_or(LIFETIME_SECONDS).min(LIFETIME_SECONDS);
        Some(Issued { token: token.to_owned(), lifetime: Duration::from_secs(seconds) })
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// What asks the API server for tokens.
pub trait RequestToken: Send + Sync + 'static {
    /// Asks for one.
    fn request<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Result<Issued, TokenError>>;
}

/// Tokens that renew themselves. Clones share them. It has to be used within a tokio runtime with timers.
#[derive(Clone)]
pub struct TokenCache {
    inner: Arc<Inner>,
}

struct Inner {
    source: Box<dyn RequestToken>,
    entries: Mutex<BTreeMap<Wanted, Entry>>,
}

type Outcome = Option<Result<(), TokenError>>;

#[derive(Default)]
struct Entry {
    held: Option<Held>,
    /// The request under way, if there is one.
    asking: Option<watch::Receiver<Outcome>>,
    failed: Option<Instant>,
}

struct Held {
    token: Arc<str>,
    renew: Instant,
    ends: Instant,
}

impl TokenCache {
    /// Tokens from this source.
    pub fn new(source: impl RequestToken) -> Self {
        TokenCache { inner: Arc::new(Inner { source: Box::new(source), entries: Mutex::default() }) }
    }

    /// A token that serves for a while: one that is kept, or a new one.
    pub async fn token(&self, wanted: &Wanted) -> Result<Arc<str>, TokenError> {
        let mut outcome = {
            let mut entries = self.inner.entries();
            let now = Instant::now();
            make_room(&mut entries, wanted, now);
            let entry = entries.entry(wanted.clone()).or_default();
            let serving = entry.held.as_ref().filter(|held| now + MARGIN < held.ends);
            if let Some(held) = serving {
                let token = Arc::clone(&held.token);
                let paused = entry.failed.is_some_and(|failed| now < failed + PAUSE);
                if now >= held.renew && entry.asking.is_none() && !paused {
                    // Off the path of requests: this one has a token that serves. Without a runtime it is tried again next time.
                    let _ = self.ask(wanted, entry);
                }
                return Ok(token);
            }
            match &entry.asking {
                Some(outcome) => outcome.clone(),
                None => self.ask(wanted, entry)?,
            }
        };
        let ended = outcome.wait_for(Option::is_some).await;
        match ended.map(|outcome| outcome.clone()) {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => return Err(error),
            Ok(None) | Err(_) => return Err(TokenError::Failed("the request was given up".to_owned())),
        }
        let entries = self.inner.entries();
        let held = entries.get(wanted).and_then(|entry| entry.held.as_ref());
        held.map(|held| Arc::clone(&held.token))
            .ok_or_else(|| TokenError::Failed("the token was dropped".to_owned()))
    }

    /// Drops the tokens of a configuration that is gone.
    pub fn forget(&self, configuration: &Configuration) {
        let Configuration { kind, name, .. } = configuration;
        self.inner.entries().retain(|wanted, _| {
            let (known, called, _) = &wanted.configuration;
            known != kind || called != name
        });
    }

    /// Starts to ask, in a task of its own.
    fn ask(&self, wanted: &Wanted, entry: &mut Entry) -> Result<watch::Receiver<Outcome>, TokenError> {
        let runtime = Handle::try_current().map_err(|_| TokenError::NoRuntime)?;
        let (send, receive) = watch::channel(None);
        entry.asking = Some(receive.clone());
        let (inner, wanted) = (Arc::clone(&self.inner), wanted.clone());
        runtime.spawn(async move {
            let asking = Asking { inner: &inner, wanted: &wanted };
            let begun = Instant::now();
            let answer = tokio::time::timeout(REQUEST_TIME, inner.source.request(&wanted)).await;
            let answer = answer.unwrap_or_else(|_| Err(TokenError::Failed("no answer in time".to_owned())));
            let outcome = asking.keep(begun, answer);
            // Nobody may be waiting any more.
            let _ = send.send(Some(outcome));
        });
        Ok(receive)
    }
}

/// A request under way. However it ends, the next one may begin.
struct Asking<'a> {
    inner: &'a Inner,
    wanted: &'a Wanted,
}

impl Asking<'_> {
    fn keep(self, begun: Instant, answer: Result<Issued, TokenError>) -> Result<(), TokenError> {
        let mut entries = self.inner.entries();
        // The entry may be gone: the configuration was deleted meanwhile, and so is the token.
        let Some(entry) = entries.get_mut(self.wanted) else {
            return answer.map(|_| ());
        };
        match answer {
            Ok(Issued { token, lifetime }) => {
                let (renew, ends) = (begun + lifetime * 4 / 5, begun + lifetime);
                entry.held = Some(Held { token: token.into(), renew, ends });
                entry.failed = None;
                Ok(())
            }
            Err(error) => {
                tracing::warn!(wanted = ?self.wanted, %error, "cannot obtain a token for a webhook");
                entry.failed = Some(Instant::now());
                Err(error)
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.inner.entries().get_mut(self.wanted) {
            entry.asking = None;
        }
    }
}

impl Inner {
    fn entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<Wanted, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the tokens of earlier configurations of the same name, and if need be those that end first.
fn make_room(entries: &mut BTreeMap<Wanted, Entry>, wanted: &Wanted, now: Instant) {
    if entries.contains_key(wanted) {
        return;
    }
    let (kind, name, uid) = &wanted.configuration;
    entries.retain(|known, entry| {
        let (known_kind, known_name, known_uid) = &known.configuration;
        let earlier = known_kind == kind && known_name == name && known_uid != uid;
        let over = entry.asking.is_none() && entry.held.as_ref().is_none_or(|held| held.ends <= now);
        !earlier && !over
    });
    while entries.len() >= MAX_TOKENS {
        let ends = |entry: &Entry| entry.held.as_ref().map(|held| held.ends);
        let Some(first) = entries.iter().min_by_key(|(_, entry)| ends(entry)).map(|(key, _)| key.clone())
        else {
            break;
        };
        entries.remove(&first);
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCache").field("tokens", &self.inner.entries().len()).finish_non_exhaustive()
    }
}
