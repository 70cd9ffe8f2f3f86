//! Calls to other servers: webhooks that authorize or admit, and whatever else this server asks.
//!
//! There is one client. An [`Endpoint`] says where a server is, whom to trust and as whom to ask; a [`Target`] is made of it
//! once, checks everything that can be checked without connecting, and keeps connections for the next call. A call is a
//! [`Request`] with a time limit and a size limit, and ends in an [`Answer`] or a [`Failure`] in the words of Go's client,
//! which callers show to people.
//!
//! INVARIANT: passwords and tokens leave only over a connection whose server proved its name, and nothing here logs them.

mod connect;
mod forward;
mod kubeconfig;
mod reach;
mod verify;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::field::quote;
use base64::Engine as _;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Method, Request as HttpRequest};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Semaphore;

pub use forward::{Forward, Outgoing};
pub use kubeconfig::from_kubeconfig;
pub(crate) use kubeconfig::shown_as;
pub use reach::Reach;
pub(crate) use reach::is_routable;

use connect::{ConnectError, Connector};

/// What this server calls itself to webhooks.
pub const WEBHOOK_AGENT: &str = "kube-apiserver-admission";
/// The longest answer that is read, if it has nothing of the request in it.
const MAX_ANSWER: usize = 3 << 20;
/// The most bytes that an encoder makes of one: `<` becomes `\u003c` in Go.
const MAX_ESCAPE: usize = 6;

/// The longest answer that is read to a request with a body of `sent` bytes. A webhook may answer with the review that it got, so a client
/// that chooses the object must not be able to make that too long.
pub fn max_answer_to(sent: usize) -> usize {
    sent.saturating_mul(MAX_ESCAPE).saturating_add(MAX_ANSWER)
}
/// How many calls of one target may be under way; more wait, within their own time limit.
const MAX_UNDER_WAY: usize = 512;
/// How many idle connections are kept per target, and how long.
const MAX_IDLE: usize = 25;
const IDLE: Duration = Duration::from_secs(90);
/// How long the content of a token file counts before it is read again.
const TOKEN_FILE_LIFE: Duration = Duration::from_secs(10);
/// A token file that is longer is none.
const MAX_TOKEN_FILE: u64 = 64 << 10;

/// Where a server is, whom to trust, and as whom to ask.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The URL that calls go to: `https`, or `http` for what needs no protection.
    pub url: Uri,
    /// `host:port` to connect to, if not the URL's: the server still has to prove the URL's name.
    pub dial: Option<String>,
    /// Who said where the server is, and so which addresses may be dialled.
    pub reach: Reach,
    /// The name the server has to prove, if not the URL's.
    pub server_name: Option<String>,
    /// Who may vouch for the server.
    pub trust: Trust,
    /// PEM of the client certificate, with its chain, and of its key.
    pub identity: Option<Identity>,
    /// What goes into the `Authorization` header.
    pub credential: Credential,
    /// Whether HTTP/2 is not offered, so that calls spread over the servers behind one address.
    pub http1_only: bool,
}

/// Who may vouch for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The authorities the system trusts.
    System,
    /// PEM of the authorities, or of the server's own certificate.
    Authorities(Vec<u8>),
    /// Nobody needs to: no credentials are sent to such a server.
    Anybody,
}

/// A client certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, with its chain.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

/// How to say who is asking.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credential {
    /// Not at all.
    #[default]
    None,
    /// With a bearer token.
    Bearer(String),
    /// With a bearer token in a file that is read again from time to time.
    TokenFile(PathBuf),
    /// With a name and a password.
    Basic(String, String),
}

impl Endpoint {
    /// A URL, with the system's trust and no credentials.
    pub fn new(url: Uri) -> Self {
        Endpoint {
            url,
            dial: None,
            reach: Reach::default(),
            server_name: None,
            trust: Trust::System,
            identity: None,
            credential: Credential::None,
            http1_only: false,
        }
    }

    /// Whether the server has to prove its name, so that credentials may be sent to it.
    pub fn is_proven(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTPS) && self.trust != Trust::Anybody
    }
}

/// A bearer token, ready to be sent and never shown.
#[derive(Clone)]
pub struct Bearer(HeaderValue);

impl Bearer {
    /// Nothing if it cannot be sent in a header.
    pub fn new(token: &str) -> Option<Self> {
        sensitive("Bearer ", token).ok().map(Bearer)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer")
    }
}

/// One call.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, if not the endpoint's own.
    pub path: Option<PathAndQuery>,
    /// Headers besides those of the connection and the credentials.
    pub headers: HeaderMap,
    /// A bearer token for this call alone, instead of the endpoint's credential.
    pub bearer: Option<Bearer>,
    /// What is sent.
    pub body: Bytes,
    /// How long everything may take, from waiting for a connection to the last byte of the answer.
    pub timeout: Duration,
    /// The longest answer that is read.
    pub max_answer: usize,
}

impl Request {
    /// A POST of JSON.
    pub fn post_json(body: impl Into<Bytes>, timeout: Duration) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json, */*"));
        let body = body.into();
        Request {
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

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// The `Content-Type`; empty where there is none.
    pub fn content_type(&self) -> &str {
        self.headers.get(http::header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What sort of failure.
    pub kind: FailureKind,
    /// In the words of Go's client: `Post "https://…": dial tcp 127.0.0.1:1: connect: connection refused`.
    pub message: String,
}

impl Failure {
    /// Whether the server's certificate names it in a way that is no longer believed.
    pub fn lacks_alternative_names(&self) -> bool {
        self.message.contains("x509: certificate relies on legacy Common Name field")
    }

    /// Whether the server's certificate is signed in a way that is no longer believed.
    pub fn is_signed_with_sha1(&self) -> bool {
        let words = "x509: cannot verify signature: insecure algorithm";
        self.message.split_once(words).is_some_and(|(_, which)| which.contains("SHA1"))
    }
}

/// The sorts of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The time was up.
    Timeout,
    /// There was no connection: no address, nobody listening, or a server that could not prove its name.
    Connect,
    /// The connection was reset, which may pass.
    Reset,
    /// The connection ended, or what came over it was no answer.
    Broken,
    /// The answer was longer than it may be.
    TooLarge,
    /// The request itself could not be made: a credential that cannot be read, a URL that is none.
    Unsent,
}

/// Why an endpoint cannot be used, whatever the network says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The URL is not one that can be called.
    #[error("{url} is not a URL that can be called: {1}", url = quote(.0))]
    Url(String, &'static str),
    /// The authorities cannot be read.
    #[error("unable to load root certificates: {0}")]
    Authorities(String),
    /// The client certificate cannot be read, or its key does not fit.
    #[error("{0}")]
    Identity(String),
}

/// A server that can be called: connections are kept between calls.
#[derive(Clone)]
pub struct Target {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    /// Whether the server proves its name, so that credentials may be sent.
    proves: bool,
    client: Client<Connector, Full<Bytes>>,
    under_way: Semaphore,
    token: Mutex<Option<(Instant, HeaderValue)>>,
}

impl Target {
    /// Checks an endpoint and makes a target of it. Nothing is sent yet.
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
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            // Names of headers as Go's client writes them, for servers that do not know better.
            .http1_title_case_headers(true)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .http2_keep_alive_timeout(Duration::from_secs(15))
            .build(connector);
        let proves = endpoint.is_proven();
        let under_way = Semaphore::new(MAX_UNDER_WAY);
        Ok(Target { inner: Arc::new(Inner { endpoint, proves, client, under_way, token: Mutex::default() }) })
    }

    /// The URL it calls.
    pub fn url(&self) -> &Uri {
        &self.inner.endpoint.url
    }

    /// Whether the endpoint has credentials that are never sent, because the server does not prove who it is.
    pub fn withholds_credentials(&self) -> bool {
        !self.inner.proves && self.inner.endpoint.credential != Credential::None
    }

    /// Makes a call and waits for the whole answer.
    pub async fn send(&self, request: Request) -> Result<Answer, Failure> {
        let limit = request.timeout;
        let url = self.inner.url(request.path.as_ref());
        let before = format!("{} {}", method_word(&request.method), quote(&url.to_string()));
        let fail = |kind, why: &str| Failure { kind, message: format!("{before}: {why}") };
        match tokio::time::timeout(limit, self.inner.exchange(url, request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Broken { kind, why, bare: false })) => Err(fail(kind, &why)),
            Ok(Err(Broken { kind, why, bare: true })) => Err(Failure { kind, message: why.into_owned() }),
            Err(_) => Err(fail(FailureKind::Timeout, "context deadline exceeded")),
        }
    }
}

/// A failure on its way out; `bare` ones stand without the method and URL before them.
struct Broken {
    kind: FailureKind,
    why: Cow<'static, str>,
    bare: bool,
}

fn broken(kind: FailureKind, why: impl Into<Cow<'static, str>>) -> Broken {
    Broken { kind, why: why.into(), bare: false }
}

impl Inner {
    fn url(&self, path: Option<&PathAndQuery>) -> Uri {
        let mut parts = self.endpoint.url.clone().into_parts();
        if let Some(path) = path {
            parts.path_and_query = Some(path.clone());
        }
        Uri::from_parts(parts).unwrap_or_else(|_| self.endpoint.url.clone())
    }

    async fn exchange(&self, url: Uri, request: Request) -> Result<Answer, Broken> {
        let _under_way = self
            .under_way
            .acquire()
            .await
            .map_err(|_| broken(FailureKind::Unsent, "the server is stopping"))?;
        let authorization = self.authorization(request.bearer).await?;
        let mut outgoing = HttpRequest::new(Full::new(request.body));
        *outgoing.method_mut() = request.method;
        *outgoing.uri_mut() = url;
        *outgoing.headers_mut() = request.headers;
        if let Some(value) = authorization {
            outgoing.headers_mut().insert(AUTHORIZATION, value);
        }
        let response = self.client.request(outgoing).await.map_err(|error| explain(&error))?;
        let (parts, body) = response.into_parts();
        let body = match Limited::new(body, request.max_answer).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
                let why = format!("the response is longer than {} bytes", request.max_answer);
                return Err(broken(FailureKind::TooLarge, why));
            }
            Err(error) => {
                let Broken { kind, why, .. } = explain(&*error);
                let why = if why == "EOF" { "unexpected EOF".into() } else { why };
                let text = format!(
                    "unexpected error when reading response body. Please retry. Original error: {why}"
                );
                return Err(Broken { kind, why: text.into(), bare: true });
            }
        };
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// The `Authorization` header of a call.
    async fn authorization(&self, bearer: Option<Bearer>) -> Result<Option<HeaderValue>, Broken> {
        if !self.proves {
            return match bearer {
                // Meant for one server alone: it is not left out, the call is.
                Some(_) => Err(broken(
                    FailureKind::Unsent,
                    "a token is sent only to a server that proves its name over TLS",
                )),
                None => Ok(None),
            };
        }
        if let Some(Bearer(value)) = bearer {
            return Ok(Some(value));
        }
        match &self.endpoint.credential {
            Credential::None => Ok(None),
            Credential::Bearer(token) => sensitive("Bearer ", token).map(Some),
            Credential::Basic(name, password) => {
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
                sensitive("Basic ", &pair).map(Some)
            }
            Credential::TokenFile(path) => self.token_file(path).await.map(Some),
        }
    }

    /// The token of a file. One that can no longer be read leaves the last one in use, as in Kubernetes' client.
    async fn token_file(&self, path: &std::path::Path) -> Result<HeaderValue, Broken> {
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read, value)) = &known
            && read.elapsed() < TOKEN_FILE_LIFE
        {
            return Ok(value.clone());
        }
        let file = path.to_owned();
        let read = tokio::task::spawn_blocking(move || read_token(&file)).await;
        let token = match read {
            Ok(Ok(token)) => token,
            Ok(Err(why)) => {
                return match known {
                    Some((_, value)) => {
                        tracing::warn!(file = %path.display(), why, "the token file cannot be read; the last token stays in use");
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

fn read_token(path: &std::path::Path) -> Result<String, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(MAX_TOKEN_FILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(text.len()).is_ok_and(|len| len > MAX_TOKEN_FILE) {
        return Err("it is too long to be a token".to_owned());
    }
    let token = text.trim();
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(token.to_owned())
}

/// A header that is shown nowhere.
fn sensitive(scheme: &str, secret: &str) -> Result<HeaderValue, Broken> {
    let mut value = HeaderValue::try_from(format!("{scheme}{secret}"))
        .map_err(|_| broken(FailureKind::Unsent, "the credential cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The method as Go's client begins its errors with it: `Post`.
fn method_word(method: &Method) -> String {
    let mut word = method.as_str().to_ascii_lowercase();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}

/// What went wrong, from whatever the layers below made of it.
fn explain(error: &(dyn std::error::Error + 'static)) -> Broken {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(connect) = error.downcast_ref::<ConnectError>() {
            let kind = if connect.timed_out { FailureKind::Timeout } else { FailureKind::Connect };
            return broken(kind, connect.message.clone());
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => {
                    broken(FailureKind::Reset, io.to_string())
                }
                std::io::ErrorKind::UnexpectedEof => broken(FailureKind::Broken, "EOF"),
                _ => broken(FailureKind::Broken, io.to_string()),
            };
        }
        if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
            if hyper.is_incomplete_message() {
                return broken(FailureKind::Broken, "EOF");
            }
            if hyper.is_parse() {
                let why = format!(
                    "net/http: HTTP/1.x transport connection broken: malformed HTTP response: {hyper}"
                );
                return broken(FailureKind::Broken, why);
            }
        }
        if error.source().is_none() {
            return broken(FailureKind::Broken, error.to_string());
        }
        cause = error.source();
    }
    broken(FailureKind::Broken, error.to_string())
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// Without the secrets.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credential::None => f.write_str("None"),
            Credential::Bearer(_) => f.write_str("Bearer"),
            Credential::TokenFile(path) => write!(f, "TokenFile({})", path.display()),
            Credential::Basic(name, _) => write!(f, "Basic({name:?})"),
        }
    }
}

/// Without the secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("body", &self.body.len())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.inner.endpoint).finish()
    }
}

#[cfg(test)]
mod tests;
