//! [`TokenCache`]: obtains and renews the tokens that an API server sends to webhooks.
//!
//! Tokens are cached by kind, name and uid of the configuration, by audience and by API group. A configuration that was
//! deleted and recreated gets a new token. Tokens are renewed in the background after four fifths of their lifetime. At
//! most one request per token runs at a time; it continues if the caller that waits for it is dropped.

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

/// The maximum number of cached tokens.
const MAX_TOKENS: usize = 1024;

const REQUEST_TIME: Duration = Duration::from_secs(10);

/// A token that expires within this time is not returned.
const MARGIN: Duration = Duration::from_secs(10);

/// The minimum time between a failure and the next request, while the cached token is still valid.
const PAUSE: Duration = Duration::from_secs(10);

/// No token could be obtained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The API server rejected the request. The text is its message.
    #[error("the token request was refused: {0}")]
    Refused(String),
    /// The request failed, or the response was invalid.
    #[error("the token request failed: {0}")]
    Failed(String),
    /// The `clientConfig` has neither a URL nor a service, or both.
    #[error("the clientConfig of the webhook must have either a url or a service")]
    NoAudience,
    /// The dialect does not support the core group.
    #[error("this dialect cannot name the core group in a token")]
    CoreGroup,
    /// The call was not made within a tokio runtime.
    #[error("no tokio runtime is running; call this from within one")]
    NoRuntime,
}

/// The properties of the requested token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenProperties {
    /// Kind, name and uid of the configuration.
    configuration: (crate::ConfigurationKind, String, String),
    audience: String,
    /// The API group about which the bearer calls webhooks.
    group: String,
}

impl TokenProperties {
    /// A token for a webhook of this configuration, for calls about this API group.
    pub fn new(
        configuration: &Configuration,
        webhook: &ClientConfig,
        group: impl Into<String>,
    ) -> Result<Self, TokenError> {
        let Configuration { kind, name, uid } = configuration.clone();
        let audience = webhook.audience().ok_or(TokenError::NoAudience)?;
        Ok(TokenProperties { configuration: (kind, name, uid), audience, group: group.into() })
    }

    /// The audience of the token.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The API group of the token.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The `TokenRequest` object to post to the service account's `token` subresource.
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

/// An issued token. `lifetime` counts from the time of the request.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The JWT, to be sent as bearer token.
    pub token: String,
    /// The lifetime that the API server granted.
    pub lifetime: Duration,
}

impl Issued {
    /// Decodes the response to a `TokenRequest`. `None` if it has no token. The lifetime is `spec.expirationSeconds`, not the
    /// time until `status.expirationTimestamp`, so clock skew does not matter.
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

/// Requests tokens from the API server.
pub trait RequestToken: Send + Sync + 'static {
    /// Requests a new token.
    fn request<'a>(&'a self, properties: &'a TokenProperties) -> Pending<'a, Result<Issued, TokenError>>;
}

/// Tokens that are renewed automatically. Clones share them. Requires a tokio runtime with timers.
#[derive(Clone)]
pub struct TokenCache {
    inner: Arc<TokenCacheState>,
}

struct TokenCacheState {
    source: Box<dyn RequestToken>,
    entries: Mutex<BTreeMap<TokenProperties, Entry>>,
}

type TokenRequestOutcome = Option<Result<(), TokenError>>;

#[derive(Default)]
struct Entry {
    held: Option<Held>,
    asking: Option<watch::Receiver<TokenRequestOutcome>>,
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
        TokenCache {
            inner: Arc::new(TokenCacheState { source: Box::new(source), entries: Mutex::default() }),
        }
    }

    /// A valid token, cached or new. While a cached token is valid, failures to renew it are only logged.
    pub async fn token(&self, properties: &TokenProperties) -> Result<Arc<str>, TokenError> {
        let mut outcome = {
            let mut entries = self.inner.entries();
            let now = Instant::now();
            make_room(&mut entries, properties, now);
            let entry = entries.entry(properties.clone()).or_default();
            let serving = entry.held.as_ref().filter(|held| now + MARGIN < held.ends);
            if let Some(held) = serving {
                let token = Arc::clone(&held.token);
                let paused = entry.failed.is_some_and(|failed| now < failed + PAUSE);
                if now >= held.renew && entry.asking.is_none() && !paused {
                    // Renew in the background, because the cached token is still valid. Without a runtime,
                    // the next call tries again.
                    let _ = self.ask(properties, entry);
                }
                return Ok(token);
            }
            match &entry.asking {
                Some(outcome) => outcome.clone(),
                None => self.ask(properties, entry)?,
            }
        };
        let ended = outcome.wait_for(Option::is_some).await;
        match ended.map(|outcome| outcome.clone()) {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => return Err(error),
            Ok(None) | Err(_) => return Err(TokenError::Failed("the request was given up".to_owned())),
        }
        let entries = self.inner.entries();
        let held = entries.get(properties).and_then(|entry| entry.held.as_ref());
        held.map(|held| Arc::clone(&held.token))
            .ok_or_else(|| TokenError::Failed("the token was dropped".to_owned()))
    }

    /// Drops the tokens of a deleted configuration, whatever its uid.
    pub fn forget(&self, configuration: &Configuration) {
        let Configuration { kind, name, .. } = configuration;
        self.inner.entries().retain(|properties, _| {
            let (known, called, _) = &properties.configuration;
            known != kind || called != name
        });
    }

    /// Starts a request in a task of its own.
    fn ask(
        &self,
        properties: &TokenProperties,
        entry: &mut Entry,
    ) -> Result<watch::Receiver<TokenRequestOutcome>, TokenError> {
        let runtime = Handle::try_current().map_err(|_| TokenError::NoRuntime)?;
        let (send, receive) = watch::channel(None);
        entry.asking = Some(receive.clone());
        let (inner, properties) = (Arc::clone(&self.inner), properties.clone());
        runtime.spawn(async move {
            let asking = Asking { inner: &inner, properties: &properties };
            let begun = Instant::now();
            let answer = tokio::time::timeout(REQUEST_TIME, inner.source.request(&properties)).await;
            let answer = answer.unwrap_or_else(|_| {
                Err(TokenError::Failed("the API server did not respond in time".to_owned()))
            });
            let outcome = asking.keep(begun, answer);
            // There may be no receiver left.
            let _ = send.send(Some(outcome));
        });
        Ok(receive)
    }
}

/// A running request. When it is dropped, the next one may start.
struct Asking<'a> {
    inner: &'a TokenCacheState,
    properties: &'a TokenProperties,
}

impl Asking<'_> {
    fn keep(self, begun: Instant, answer: Result<Issued, TokenError>) -> Result<(), TokenError> {
        let mut entries = self.inner.entries();
        // The entry is missing if the configuration was deleted meanwhile. Then the token is dropped.
        let Some(entry) = entries.get_mut(self.properties) else {
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
                tracing::warn!(properties = ?self.properties, %error, "cannot obtain a token for a webhook; the last one is used while it is valid, and a later call tries again");
                entry.failed = Some(Instant::now());
                Err(error)
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.inner.entries().get_mut(self.properties) {
            entry.asking = None;
        }
    }
}

impl TokenCacheState {
    fn entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<TokenProperties, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for a new entry: drops expired tokens and those of earlier configurations with the same name, and if the
/// cache is still full, entries without a token and then those that expire first.
fn make_room(entries: &mut BTreeMap<TokenProperties, Entry>, properties: &TokenProperties, now: Instant) {
    if entries.contains_key(properties) {
        return;
    }
    let (kind, name, uid) = &properties.configuration;
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
