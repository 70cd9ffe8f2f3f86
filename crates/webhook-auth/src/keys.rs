//! [`KeyCache`]: fetches the issuer's keys on demand and refreshes them.
//!
//! Only one fetch runs at a time, shared by all waiting requests. It continues if the request that started it
//! is dropped, so that clients cannot prevent a refresh by disconnecting. Tokens with unknown keys cause at
//! most one fetch per [interval](Refresh::interval).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::Pending;
use crate::verify::{
    Action, Identity, JWKS_TYPE, KeyError, KeySet, Keys, MAX_DOCUMENT, Need, PROVIDER_PATH, Provider,
    ProviderError, Reason, Refresh, Refreshed, Rejection, Verifier,
};

/// The timeout of a fetch, for both documents together.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Why the issuer's keys could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The provider document is invalid.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The key set is invalid.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The connection or the request failed.
    #[error("{0}")]
    Transport(String),
    /// The fetch took more than five seconds.
    #[error("the issuer did not respond in time")]
    TimedOut,
}

/// A source of keys.
pub trait FetchKeys: Send + Sync + 'static {
    /// Fetches the current key set.
    fn fetch(&self) -> Pending<'_, Result<KeySet, FetchError>>;
}

/// A minimal HTTPS client for discovery.
pub trait Get: Send + Sync + 'static {
    /// Returns the body at this URL, of at most [`MAX_BODY`] bytes, if the status is 200. Must not follow
    /// redirects.
    fn get<'a>(&'a self, url: &'a str, accept: &'a str) -> Pending<'a, Result<Vec<u8>, FetchError>>;
}

/// The longest body that [`Get`] must accept.
pub const MAX_BODY: usize = MAX_DOCUMENT;

/// Keys by OpenID discovery: the issuer's provider document names their URL.
#[derive(Clone, Debug)]
pub struct Discovery<G> {
    issuer: String,
    provider: String,
    jwks: Option<String>,
    get: G,
}

impl<G: Get> Discovery<G> {
    /// Keys of this issuer.
    pub fn new(issuer: impl Into<String>, get: G) -> Self {
        let issuer = issuer.into();
        let provider = format!("{}{PROVIDER_PATH}", issuer.trim_end_matches('/'));
        Discovery { issuer, provider, jwks: None, get }
    }

    /// Reads the provider document from this server instead of the issuer's URL, for example
    /// `https://kubernetes.default.svc` if the issuer's URL is outside of the cluster. The document must
    /// still name the issuer.
    #[must_use]
    pub fn at(mut self, server: &str) -> Self {
        self.provider = format!("{}{PROVIDER_PATH}", server.trim_end_matches('/'));
        self
    }

    /// Reads the keys from this URL instead of the one in the provider document.
    #[must_use]
    pub fn keys_at(mut self, url: impl Into<String>) -> Self {
        self.jwks = Some(url.into());
        self
    }
}

impl<G: Get> FetchKeys for Discovery<G> {
    fn fetch(&self) -> Pending<'_, Result<KeySet, FetchError>> {
        Box::pin(async move {
            let document = self.get.get(&self.provider, "application/json").await?;
            let provider = Provider::read(&document, &self.issuer)?;
            let url = self.jwks.as_deref().unwrap_or(provider.jwks_uri());
            Ok(KeySet::from_jwks(&self.get.get(url, JWKS_TYPE).await?)?)
        })
    }
}

/// Keys that are refreshed automatically. Clones share them.
///
/// Requires a tokio runtime with timers.
#[derive(Clone)]
pub struct KeyCache {
    inner: Arc<KeyCacheState>,
}

struct KeyCacheState {
    keys: Keys,
    source: Option<Box<dyn FetchKeys>>,
    refresh: Refresh,
    times: Mutex<Times>,
    /// Locked while keys are being fetched.
    flight: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Copy, Default)]
struct Times {
    fetched: Option<Instant>,
    tried: Option<Instant>,
}

impl KeyCache {
    /// Keys from this source, fetched when the first token arrives.
    pub fn new(source: impl FetchKeys) -> Self {
        Self::with_refresh(source, Refresh::default())
    }

    /// Keys from this source, with these refresh intervals.
    pub fn with_refresh(source: impl FetchKeys, refresh: Refresh) -> Self {
        Self::build(Some(Box::new(source)), refresh, Keys::default())
    }

    /// Keys that never change, for tests and for issuers without discovery.
    pub fn fixed(keys: KeySet) -> Self {
        Self::build(None, Refresh::default(), Keys::new(keys))
    }

    fn build(source: Option<Box<dyn FetchKeys>>, refresh: Refresh, keys: Keys) -> Self {
        let inner = KeyCacheState { keys, source, refresh, times: Mutex::default(), flight: Arc::default() };
        KeyCache { inner: Arc::new(inner) }
    }

    /// The keys, for a [`Verifier`].
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    /// Fetches keys if there are no usable ones, to detect errors at startup. Fails if there are none afterwards.
    pub async fn prefetch(&self) -> Result<(), Rejection> {
        self.usable().await
    }

    /// Like [`Verifier::authenticate`], but fetches keys if necessary. The verifier must use these
    /// [`keys`](Self::keys).
    pub async fn authenticate(
        &self,
        verifier: &Verifier,
        token: &str,
        now: SystemTime,
    ) -> Result<Identity, Rejection> {
        self.usable().await?;
        let before = verifier.keys().current();
        match verifier.authenticate(token, now) {
            Err(unknown) if unknown.reason() == Reason::UnknownKey => {
                self.newer().await;
                if Arc::ptr_eq(&before, &verifier.keys().current()) {
                    return Err(unknown);
                }
                verifier.authenticate(token, now)
            }
            other => other,
        }
    }

    /// Waits until there are usable keys.
    async fn usable(&self) -> Result<(), Rejection> {
        if self.inner.source.is_none() {
            return Ok(());
        }
        for _ in 0..2 {
            match self.inner.decide(Need::Verify) {
                Action::Use => return Ok(()),
                Action::UseAndFetch => {
                    self.start();
                    return Ok(());
                }
                Action::Fetch => self.start(),
                // A fetch may be running; wait for its result.
                Action::Refuse => {}
            }
            self.landed().await;
        }
        match self.inner.decide(Need::Verify) {
            Action::Use | Action::UseAndFetch => Ok(()),
            Action::Fetch | Action::Refuse => {
                Err(Rejection::new(Reason::KeysUnavailable, "the issuer's keys could not be fetched"))
            }
        }
    }

    /// Waits for newer keys: for a running fetch, or for a new one if it is due.
    async fn newer(&self) {
        let due = self.inner.source.is_some() && self.inner.decide(Need::UnknownKey) == Action::Fetch;
        if due {
            self.start();
        }
        self.landed().await;
    }

    /// Waits until no fetch is running.
    async fn landed(&self) {
        drop(self.inner.flight.lock().await);
    }

    /// Starts a fetch, unless one is running.
    fn start(&self) {
        let Ok(flight) = Arc::clone(&self.inner.flight).try_lock_owned() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        self.inner.times().tried = Some(Instant::now());
        runtime.spawn(Arc::clone(&self.inner).fetch(flight));
    }
}

impl KeyCacheState {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, need: Need) -> Action {
        let Times { fetched, tried } = *self.times();
        let ago = |time: Instant| time.elapsed();
        self.refresh.decide(need, Refreshed { fetched: fetched.map(ago), tried: tried.map(ago) })
    }

    /// Holds `flight` until it returns.
    async fn fetch(self: Arc<Self>, flight: OwnedMutexGuard<()>) {
        let Some(source) = &self.source else { return };
        let fetched = tokio::time::timeout(FETCH_TIME, source.fetch()).await;
        match fetched.unwrap_or(Err(FetchError::TimedOut)) {
            Ok(keys) => {
                tracing::debug!(?keys, "fetched the issuer's keys");
                self.keys.replace(keys);
                self.times().fetched = Some(Instant::now());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot fetch the issuer's keys; those fetched before are used until they are too old: check that this process can reach the issuer");
            }
        }
        drop(flight);
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache").field("keys", &self.inner.keys).finish_non_exhaustive()
    }
}
