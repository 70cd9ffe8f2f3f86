//! [`KeyCache`]: the issuer's keys, fetched when they are needed and again when they change.
//!
//! One fetch is under way at a time, whoever waits for it; it goes on when whoever caused it goes away, so that nobody can keep
//! keys from being fetched by hanging up. Tokens with unknown keys cause at most one fetch per [interval](Refresh::interval).

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

/// How long a fetch may take.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Why keys could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// What says where they are is of no use.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// They are of no use.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// They could not be reached.
    #[error("{0}")]
    Transport(String),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
}

/// Where keys come from.
pub trait FetchKeys: Send + Sync + 'static {
    /// Fetches them.
    fn fetch(&self) -> Pending<'_, Result<KeySet, FetchError>>;
}

/// An HTTPS client, as little of one as discovery needs.
pub trait Get: Send + Sync + 'static {
    /// The body at this address, of at most [`MAX_BODY`] bytes, if the answer is 200. Redirects are not followed.
    fn get<'a>(&'a self, url: &'a str, accept: &'a str) -> Pending<'a, Result<Vec<u8>, FetchError>>;
}

/// The longest body that [`Get`] is to read.
pub const MAX_BODY: usize = MAX_DOCUMENT;

/// Keys by OpenID discovery: the issuer's provider document says where they are.
#[derive(Clone, Debug)]
pub struct Discovery<G> {
    issuer: String,
    provider: String,
    jwks: Option<String>,
    get: G,
}

impl<G: Get> Discovery<G> {
    /// The keys of this issuer.
    pub fn new(issuer: impl Into<String>, get: G) -> Self {
        let issuer = issuer.into();
        let provider = format!("{}{PROVIDER_PATH}", issuer.trim_end_matches('/'));
        Discovery { issuer, provider, jwks: None, get }
    }

    /// Asks this server instead of the issuer's own address, as `https://kubernetes.default.svc` from within a cluster whose
    /// issuer is an address outside. The document must still be the issuer's.
    #[must_use]
    pub fn at(mut self, server: &str) -> Self {
        self.provider = format!("{}{PROVIDER_PATH}", server.trim_end_matches('/'));
        self
    }

    /// Takes the keys from this address instead of the one the document names, where that cannot be reached.
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

/// Keys that keep themselves up to date. Clones share them.
///
/// It has to be used within a tokio runtime with timers.
#[derive(Clone)]
pub struct KeyCache {
    inner: Arc<Inner>,
}

struct Inner {
    keys: Keys,
    source: Option<Box<dyn FetchKeys>>,
    refresh: Refresh,
    times: Mutex<Times>,
    /// Held while keys are being fetched.
    flight: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Copy, Default)]
struct Times {
    fetched: Option<Instant>,
    tried: Option<Instant>,
}

impl KeyCache {
    /// Keys from this source, fetched when the first token comes.
    pub fn new(source: impl FetchKeys) -> Self {
        Self::with_refresh(source, Refresh::default())
    }

    /// Keys from this source, fetched as often as this.
    pub fn with_refresh(source: impl FetchKeys, refresh: Refresh) -> Self {
        Self::build(Some(Box::new(source)), refresh, Keys::default())
    }

    /// Keys that never change, for tests and for issuers without discovery.
    pub fn fixed(keys: KeySet) -> Self {
        Self::build(None, Refresh::default(), Keys::new(keys))
    }

    fn build(source: Option<Box<dyn FetchKeys>>, refresh: Refresh, keys: Keys) -> Self {
        let inner = Inner { keys, source, refresh, times: Mutex::default(), flight: Arc::default() };
        KeyCache { inner: Arc::new(inner) }
    }

    /// The keys themselves, for a [`Verifier`].
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    /// Fetches keys now, to find out at start that they can be had. Fails if there are none that may be used afterwards.
    pub async fn prefetch(&self) -> Result<(), Rejection> {
        self.usable().await
    }

    /// [`Verifier::authenticate`], with keys that are fetched if need be. The verifier must be one with these [`keys`](Self::keys).
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

    /// Returns when there are keys that may be used.
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
                // Unless somebody's fetch is under way: what it brings is not known yet.
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

    /// Returns when there is nothing newer to be had for now: after a fetch that is under way, or one that is due.
    async fn newer(&self) {
        let due = self.inner.source.is_some() && self.inner.decide(Need::UnknownKey) == Action::Fetch;
        if due {
            self.start();
        }
        self.landed().await;
    }

    /// Returns when no fetch is under way.
    async fn landed(&self) {
        drop(self.inner.flight.lock().await);
    }

    /// Starts a fetch, unless one is under way.
    fn start(&self) {
        let Ok(flight) = Arc::clone(&self.inner.flight).try_lock_owned() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        self.inner.times().tried = Some(Instant::now());
        runtime.spawn(Arc::clone(&self.inner).fetch(flight));
    }
}

impl Inner {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, need: Need) -> Action {
        let Times { fetched, tried } = *self.times();
        let ago = |time: Instant| time.elapsed();
        self.refresh.decide(need, Refreshed { fetched: fetched.map(ago), tried: tried.map(ago) })
    }

    /// `flight` is held until the end, whatever that is.
    async fn fetch(self: Arc<Self>, flight: OwnedMutexGuard<()>) {
        let Some(source) = &self.source else { return };
        let fetched = tokio::time::timeout(FETCH_TIME, source.fetch()).await;
        match fetched.unwrap_or(Err(FetchError::TimedOut)) {
            Ok(keys) => {
                tracing::debug!(?keys, "fetched the issuer's keys");
                self.keys.replace(keys);
                self.times().fetched = Some(Instant::now());
            }
            Err(error) => tracing::warn!(%error, "cannot fetch the issuer's keys"),
        }
        drop(flight);
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache").field("keys", &self.inner.keys).finish_non_exhaustive()
    }
}
