//! The HTTP client for calls to other servers, such as authorization and admission webhooks.
//!
//! An [`Endpoint`] holds a server's address, its trusted CAs and the credentials. An [`OutboundTarget`] is built from
//! it once: it validates everything that needs no connection, and pools connections. A call is an [`OutboundRequest`]
//! with a time and a size limit; it returns an [`OutboundResponse`], or a [`Failure`] with the text of Go's client,
//! because callers show it to users. [`call_webhook`] also follows redirects and `Retry-After`, as Kubernetes' client for webhooks.
//!
//! ```no_run
//! use outbound::{OutboundTarget, from_kubeconfig};
//!
//! # fn example(path: &std::path::Path) -> Result<(), String> {
//! let mut files = Vec::new(); // the files that the kubeconfig refers to
//! let endpoint = from_kubeconfig(path, &mut files)?;
//! let target = OutboundTarget::new(endpoint).map_err(|error| error.to_string())?;
//! # Ok(())
//! # }
//! ```
//!
//! INVARIANT: passwords and tokens are sent only to a server that proved its name over TLS, and are never
//! logged.

mod answers;
mod connect;
mod credential;
mod endpoint;
mod failure;
mod forward;
mod kubeconfig;
mod reach;
mod verify;
mod webhook_call;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::field::quote;
use base64::Engine as _;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Method, Request as HttpRequest, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use runtime::LogLimit;
use tokio::sync::Semaphore;

pub use answers::{AnswerLimit, UnreadAnswer};
pub use credential::{BearerToken, ClientIdentity, OutboundCredential};
pub use endpoint::{Endpoint, EndpointError, ServerTrust};
pub use failure::{Failure, FailureKind};
pub use forward::{Forward, Outgoing};
pub use kubeconfig::client_credentials;
pub use kubeconfig::from_kubeconfig;
pub use reach::Reach;
pub use reach::is_routable;
pub use webhook_call::{LongRetry, call_webhook};

use connect::Connector;
use credential::{read_token_file, sensitive};
use failure::{Broken, broken, explain, method_word};

/// User agent of webhook calls.
pub const WEBHOOK_AGENT: &str = "kube-apiserver-admission";
/// Maximum response size in bytes, beyond what may be repeated from the request.
const MAX_ANSWER: usize = 3 << 20;
/// Maximum bytes that an encoder produces for one: Go writes `<` as `\u003c`.
const MAX_ESCAPE: usize = 6;

/// Maximum response size for a request body of `sent` bytes. A webhook may return the review that it
/// received, so the limit grows with it: otherwise a client could choose an object that makes the response
/// too long.
pub fn max_answer_to(sent: usize) -> usize {
    max_escaped(sent).saturating_add(MAX_ANSWER)
}

/// The longest form in which a server may repeat a request body of `sent` bytes.
pub fn max_escaped(sent: usize) -> usize {
    sent.saturating_mul(MAX_ESCAPE)
}

/// Maximum concurrent calls per target; further calls wait within their own time limit.
const MAX_UNDER_WAY: usize = 512;
/// Maximum idle connections per target, and how long they are pooled.
const MAX_IDLE: usize = 25;
const IDLE: Duration = Duration::from_secs(90);
/// Interval after which a token file is read again.
const TOKEN_FILE_LIFE: Duration = Duration::from_secs(10);
/// One call to a target.
#[derive(Clone)]
pub struct OutboundRequest {
    pub method: Method,
    /// Path and query to use instead of the endpoint's.
    pub path: Option<PathAndQuery>,
    /// Headers other than those of the connection and `Authorization`.
    pub headers: HeaderMap,
    /// A bearer token for this call only, instead of the endpoint's credential.
    pub bearer: Option<BearerToken>,
    pub body: Bytes,
    /// Time limit from waiting for a connection to the last byte of the response.
    pub timeout: Duration,
    /// Maximum response body in bytes.
    pub max_answer: usize,
}

impl OutboundRequest {
    pub fn post_json(body: impl Into<Bytes>, timeout: Duration) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json, */*"));
        let body = body.into();
        OutboundRequest {
            method: Method::POST,
            path: None,
            headers,
            bearer: None,
            max_answer: max_answer_to(body.len()),
            body,
            timeout,
        }
    }
}

/// A complete response of another server.
#[derive(Clone, Debug)]
pub struct OutboundResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl OutboundResponse {
    /// The `Content-Type` header; empty if absent.
    pub fn content_type(&self) -> &str {
        self.headers.get(http::header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

/// A validated endpoint with pooled connections. Clones share the pool.
#[derive(Clone)]
pub struct OutboundTarget {
    inner: Arc<OutboundClientState>,
}

struct OutboundClientState {
    endpoint: Endpoint,
    /// Copy of [`Endpoint::is_proven`]: credentials may be sent.
    proves: bool,
    client: Client<Connector, Full<Bytes>>,
    under_way: Semaphore,
    answers: AnswerLimit,
    token: Mutex<Option<(Instant, HeaderValue)>>,
}

/// Builds clients that keep idle connections for further requests.
fn pooling() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        // Capitalizes header names like Go's client, for servers that expect this.
        .http1_title_case_headers(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(15));
    builder
}

impl OutboundTarget {
    /// Validates an endpoint. Does not connect yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let bad = |why| EndpointError::Url(endpoint.url.to_string(), why);
        if endpoint.url.host().is_none_or(str::is_empty) {
            return Err(bad("it names no host"));
        }
        let secure = match endpoint.url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(bad("its scheme is neither https nor http")),
        };
        let connector = Connector::new(&endpoint, secure)?;
        let client = pooling().build(connector);
        let proves = endpoint.is_proven();
        let under_way = Semaphore::new(MAX_UNDER_WAY);
        Ok(OutboundTarget {
            inner: Arc::new(OutboundClientState {
                endpoint,
                proves,
                client,
                under_way,
                answers: AnswerLimit::default(),
                token: Mutex::default(),
            }),
        })
    }

    pub fn url(&self) -> &Uri {
        &self.inner.endpoint.url
    }

    /// True if the endpoint has credentials that are never sent, because the server's identity is not
    /// verified.
    pub fn withholds_credentials(&self) -> bool {
        !self.inner.proves && self.inner.endpoint.credential != OutboundCredential::None
    }

    /// Sends a request and waits for the whole response.
    pub async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, Failure> {
        let limit = request.timeout;
        let url = self.inner.url(request.path.as_ref());
        let before = format!("{} {}", method_word(&request.method), quote(&url.to_string()));
        within(limit, &before, self.inner.exchange(url, request)).await
    }

    /// Sends a request and returns when the response begins; the time limit ends then. The caller reads the body, and limits it.
    pub async fn open(&self, request: OutboundRequest) -> Result<Response<Incoming>, Failure> {
        let limit = request.timeout;
        let url = self.inner.url(request.path.as_ref());
        let before = format!("{} {}", method_word(&request.method), quote(&url.to_string()));
        within(limit, &before, self.inner.open(url, request)).await
    }
}

/// Waits for an exchange. `before` is the beginning of the failure's message: the method and URL.
async fn within<T>(
    limit: Duration,
    before: &str,
    exchange: impl Future<Output = Result<T, Broken>>,
) -> Result<T, Failure> {
    let fail = |kind, why: &str| Failure { kind, message: format!("{before}: {why}") };
    match tokio::time::timeout(limit, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Broken { kind, why, bare: false })) => Err(fail(kind, &why)),
        Ok(Err(Broken { kind, why, bare: true })) => Err(Failure { kind, message: why.into_owned() }),
        Err(_) => Err(fail(FailureKind::Timeout, "context deadline exceeded")),
    }
}

impl OutboundClientState {
    fn url(&self, path: Option<&PathAndQuery>) -> Uri {
        let mut parts = self.endpoint.url.clone().into_parts();
        if let Some(path) = path {
            parts.path_and_query = Some(path.clone());
        }
        Uri::from_parts(parts).unwrap_or_else(|_| self.endpoint.url.clone())
    }

    async fn exchange(&self, url: Uri, request: OutboundRequest) -> Result<OutboundResponse, Broken> {
        let _under_way = self
            .under_way
            .acquire()
            .await
            .map_err(|_| broken(FailureKind::Unsent, "the server is stopping"))?;
        let max_answer = request.max_answer;
        let (parts, body) = self.open(url, request).await?.into_parts();
        let body = match self.answers.read(body, max_answer).await {
            Ok(body) => body,
            Err(error @ UnreadAnswer::TooLong(_)) => {
                return Err(broken(FailureKind::TooLarge, error.to_string()));
            }
            Err(UnreadAnswer::Broken(error)) => {
                let Broken { kind, why, .. } = explain(&error);
                let why = if why == "EOF" { "unexpected EOF".into() } else { why };
                let text = format!(
                    "unexpected error when reading response body. Please retry. Original error: {why}"
                );
                return Err(Broken { kind, why: text.into(), bare: true });
            }
        };
        Ok(OutboundResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Sends a request and waits for the beginning of the response.
    async fn open(&self, url: Uri, request: OutboundRequest) -> Result<Response<Incoming>, Broken> {
        let authorization = self.authorization(request.bearer).await?;
        let mut outgoing = HttpRequest::new(Full::new(request.body));
        *outgoing.method_mut() = request.method;
        *outgoing.uri_mut() = url;
        *outgoing.headers_mut() = request.headers;
        if let Some(value) = authorization {
            outgoing.headers_mut().insert(AUTHORIZATION, value);
        }
        self.client.request(outgoing).await.map_err(|error| explain(&error))
    }

    /// Returns the `Authorization` header of a call.
    async fn authorization(&self, bearer: Option<BearerToken>) -> Result<Option<HeaderValue>, Broken> {
        if !self.proves {
            return match bearer {
                // A token for this call must not be left out silently, so the call fails.
                Some(_) => Err(broken(
                    FailureKind::Unsent,
                    "a token is sent only to a server that proves its name over TLS",
                )),
                None => Ok(None),
            };
        }
        if let Some(BearerToken(value)) = bearer {
            return Ok(Some(value));
        }
        match &self.endpoint.credential {
            OutboundCredential::None => Ok(None),
            OutboundCredential::Bearer(token) => sensitive("Bearer ", token).map(Some),
            OutboundCredential::Basic(name, password) => {
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
                sensitive("Basic ", &pair).map(Some)
            }
            OutboundCredential::TokenFile(path) => self.token_file(path).await.map(Some),
        }
    }

    /// Reads the token file. If it becomes unreadable, the last token stays in use, as in client-go.
    async fn token_file(&self, path: &std::path::Path) -> Result<HeaderValue, Broken> {
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read, value)) = &known
            && read.elapsed() < TOKEN_FILE_LIFE
        {
            return Ok(value.clone());
        }
        let file = path.to_owned();
        let read = tokio::task::spawn_blocking(move || read_token_file(&file)).await;
        let token = match read {
            Ok(Ok(token)) => token,
            Ok(Err(why)) => {
                return match known {
                    Some((_, value)) => {
                        static LOG: LogLimit = LogLimit::new();
                        if let Some(unlogged) = LOG.due() {
                            tracing::warn!(file = %path.display(), error = why, unlogged, "cannot read the token file; the last token stays in use");
                        }
                        Ok(value)
                    }
                    None => {
                        let why = format!(
                            "failed to read token file {}: {why}",
                            quote(&path.display().to_string())
                        );
                        Err(broken(FailureKind::Unsent, why))
                    }
                };
            }
            Err(_) => return Err(broken(FailureKind::Unsent, "the token file could not be read")),
        };
        let value = sensitive("Bearer ", &token)?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

/// Omits the headers, the token and the body.
impl fmt::Debug for OutboundRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRequest")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("body", &self.body.len())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OutboundTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutboundTarget").field(&self.inner.endpoint).finish()
    }
}

#[cfg(test)]
mod tests;
