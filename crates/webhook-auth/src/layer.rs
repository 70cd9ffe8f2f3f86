//! [`WebhookAuthLayer`]: authenticates the caller before the body is read; [`Authentication::check`] then
//! compares the token with the request.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::Pending;
use crate::count::{Counts, Mode};
use crate::keys::KeyCache;
use crate::verify::{
    AdmissionRequest, Expected, ExpectedError, Identity, MAX_TOKEN, Reason, Rejection, Verified, Verifier,
};

/// Asks the API server whether a token is still valid, with a TokenReview. Optional: tokens live at most ten minutes, and
/// become invalid earlier only if their configuration or service account is deleted.
pub trait ReviewToken: Send + Sync + 'static {
    /// Reviews a token that was verified before. Rejects with [`Reason::Reviewed`] if it is invalid, and with
    /// [`Reason::ReviewUnavailable`] if there was no response.
    fn review<'a>(&'a self, token: &'a str, identity: &'a Identity) -> Pending<'a, Result<(), Rejection>>;
}

type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A tower layer in front of a webhook.
///
/// It responds with 401 to callers without a valid token before the body is read (503 if keys or the TokenReview are
/// unavailable), and passes the caller's identity on in the request's extensions. The handler must compare it with the
/// request by [`Authentication::check`], as the axum extractor does. In [`Mode::Require`], a successful response of a
/// handler that did not, or that ignored a mismatch, is replaced by a 500, unless it is marked as a [denial](Denied).
#[derive(Clone)]
pub struct WebhookAuthLayer {
    shared: Arc<LayerState>,
}

#[derive(Clone)]
struct LayerState {
    verifier: Verifier,
    keys: KeyCache,
    mode: Mode,
    counts: Arc<Counts>,
    reviewer: Option<Arc<dyn ReviewToken>>,
    clock: WallClock,
}

impl WebhookAuthLayer {
    /// Requires tokens as expected, verified with these keys.
    pub fn new(expected: Expected, keys: KeyCache) -> Result<Self, ExpectedError> {
        let verifier = Verifier::new(expected, keys.keys().clone())?;
        let shared = LayerState {
            verifier,
            keys,
            mode: Mode::Require,
            counts: Arc::default(),
            reviewer: None,
            clock: Arc::new(SystemTime::now),
        };
        Ok(WebhookAuthLayer { shared: Arc::new(shared) })
    }

    /// Sets how tokens are treated. The default is [`Mode::Require`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        self.with(|shared| shared.mode = mode)
    }

    /// Uses these counters, which may be shared with other layers.
    #[must_use]
    pub fn counts(self, counts: Arc<Counts>) -> Self {
        self.with(|shared| shared.counts = counts)
    }

    /// Lets the API server review each token, after the checks that this process makes.
    #[must_use]
    pub fn review(self, reviewer: impl ReviewToken) -> Self {
        self.with(|shared| shared.reviewer = Some(Arc::new(reviewer)))
    }

    /// Uses this clock instead of the system's.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.clock = Arc::new(clock))
    }

    fn with(mut self, change: impl FnOnce(&mut LayerState)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl fmt::Debug for WebhookAuthLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookAuthLayer")
            .field("verifier", &self.shared.verifier)
            .field("mode", &self.shared.mode)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for WebhookAuthLayer {
    type Service = WebhookAuth<S>;

    fn layer(&self, inner: S) -> WebhookAuth<S> {
        WebhookAuth { inner, shared: Arc::clone(&self.shared) }
    }
}

/// The service that [`WebhookAuthLayer`] creates.
#[derive(Clone)]
pub struct WebhookAuth<S> {
    inner: S,
    shared: Arc<LayerState>,
}

impl<S: fmt::Debug> fmt::Debug for WebhookAuth<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookAuth").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for WebhookAuth<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pending<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Call the instance that was polled ready.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let caller = match shared.authenticate(request.headers()).await {
                Ok(caller) => caller,
                Err(rejection) => return Ok(refusal(&rejection)),
            };
            let compared = Arc::new(AtomicU8::new(NOT_YET));
            let authentication =
                Authentication { caller, shared: Arc::clone(&shared), compared: Arc::clone(&compared) };
            request.extensions_mut().insert(authentication);
            let response = inner.call(request).await?;
            if shared.mode == Mode::Require && response.status().is_success() && !is_denied(&response) {
                let rejection = match compared.load(Ordering::Acquire) {
                    FITS => return Ok(response),
                    DOES_NOT_FIT => Rejection::new(
                        Reason::Disregarded,
                        "the webhook answered although the token does not fit the request",
                    ),
                    _ => Rejection::new(
                        Reason::Unchecked,
                        "the webhook answered without comparing the token with the request",
                    ),
                };
                shared.note(&rejection);
                return Ok(refusal(&rejection));
            }
            Ok(response)
        })
    }
}

/// Marks a response as a denial: add it to the extensions of a response with `allowed: false`.
///
/// The layer does not read bodies, so it cannot distinguish a denial from a response that must not be given.
/// Replacing a denial by an error would admit, under `failurePolicy: Ignore`, what the webhook wants to deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

fn is_denied<R>(response: &Response<R>) -> bool {
    response.extensions().get::<Denied>().is_some()
}

/// The result of comparing the token with the request; of several comparisons, the worst.
const NOT_YET: u8 = 0;
const FITS: u8 = 1;
const DOES_NOT_FIT: u8 = 2;

#[derive(Clone, Debug)]
enum RequestCaller {
    /// The mode is [`Mode::Off`], so no token was verified.
    Unasked,
    /// No valid token, but the request passes.
    Observed,
    Known(Arc<Identity>),
}

impl LayerState {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<RequestCaller, Rejection> {
        if self.mode == Mode::Off {
            return Ok(RequestCaller::Unasked);
        }
        match self.identity(headers).await {
            Ok(identity) => Ok(RequestCaller::Known(Arc::new(identity))),
            Err(rejection) => {
                self.note(&rejection);
                if self.mode == Mode::Observe { Ok(RequestCaller::Observed) } else { Err(rejection) }
            }
        }
    }

    async fn identity(&self, headers: &HeaderMap) -> Result<Identity, Rejection> {
        let token = bearer(headers)?;
        let identity = self.keys.authenticate(&self.verifier, token, (self.clock)()).await?;
        if let Some(reviewer) = &self.reviewer {
            reviewer.review(token, &identity).await?;
        }
        Ok(identity)
    }

    fn note(&self, rejection: &Rejection) {
        self.counts.reject(rejection.reason());
        let reason = rejection.reason().as_str();
        tracing::warn!(reason, detail = rejection.detail(), mode = ?self.mode, "request rejected: the token of the caller was not accepted");
    }
}

/// The bearer token of a request, which must have exactly one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<&str, Rejection> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let missing = || Rejection::new(Reason::Missing, "no bearer token");
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(Rejection::new(Reason::Malformed, "more than one Authorization header"));
    }
    if value.len() > MAX_TOKEN + 64 {
        return Err(Rejection::new(Reason::Oversize, format!("{} bytes", value.len())));
    }
    let text = value.to_str().map_err(|_| Rejection::new(Reason::Malformed, "not a text"))?;
    let (scheme, token) = text.split_once(' ').ok_or_else(missing)?;
    let token = token.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() { Ok(token) } else { Err(missing()) }
}

/// An empty response with the rejection's status. The reason and its details are only logged.
fn refusal<R: Default>(rejection: &Rejection) -> Response<R> {
    let mut response = Response::new(R::default());
    let status = StatusCode::from_u16(rejection.reason().status());
    *response.status_mut() = status.unwrap_or(StatusCode::UNAUTHORIZED);
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = match rejection.reason() {
            Reason::Missing => "Bearer",
            _ => "Bearer error=\"invalid_token\"",
        };
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}

/// The authentication result of the layer, in the request's extensions.
#[derive(Clone)]
pub struct Authentication {
    caller: RequestCaller,
    shared: Arc<LayerState>,
    compared: Arc<AtomicU8>,
}

impl Authentication {
    /// `None` if there was no layer: the caller is unknown, and the webhook should not respond.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The identity in a valid token, if there is one.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.caller {
            RequestCaller::Known(identity) => Some(identity),
            RequestCaller::Unasked | RequestCaller::Observed => None,
        }
    }

    /// Compares the token with the request. `None` if the result does not matter: in [`Mode::Off`], and in
    /// [`Mode::Observe`] if the token is missing or does not match, which is logged and counted.
    pub fn check(&self, request: &AdmissionRequest) -> Result<Option<Verified>, Rejection> {
        let RequestCaller::Known(identity) = &self.caller else { return Ok(None) };
        let permitted = identity.permits(request);
        self.compared.fetch_max(if permitted.is_ok() { FITS } else { DOES_NOT_FIT }, Ordering::AcqRel);
        match permitted {
            Ok(verified) => {
                self.shared.counts.accept();
                Ok(Some(verified))
            }
            Err(rejection) => {
                self.shared.note(&rejection);
                if self.shared.mode == Mode::Observe { Ok(None) } else { Err(rejection) }
            }
        }
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication").field("caller", &self.caller).finish_non_exhaustive()
    }
}
