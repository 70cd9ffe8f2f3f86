//! A small HTTPS client: one request and its answer, or a stream of events.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Problem, Result};

/// The time limit for one answer.
const PATIENCE: Duration = Duration::from_secs(70);

/// The certificate authorities that a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Authorities in PEM format.
    Authorities(Vec<u8>),
    /// Accepts any certificate. Only for a reference server on this machine.
    Anything,
}

#[derive(Clone, Debug)]
pub enum Credentials {
    /// Sends no credentials (anonymous).
    None,
    /// Sends this bearer token.
    Token(String),
    /// A client certificate and its key in PEM format.
    Certificate(Vec<u8>, Vec<u8>),
}

/// A client of one server with one user's credentials. Its requests, and those of its clones, share one connection, so each waits for
/// the one before.
#[derive(Clone, Debug)]
pub struct Client {
    authority: String,
    tls: Arc<ClientConfig>,
    token: Option<String>,
    /// The idle connection that the next request uses.
    idle: Arc<Mutex<Option<http1::SendRequest<Full<Bytes>>>>>,
}

/// A complete response of a server.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpResponse {
    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Client {
    /// A client of the server at `url` (`https://HOST:PORT`).
    pub fn new(url: &str, trust: Trust, credentials: Credentials) -> Result<Self> {
        let authority = url.strip_prefix("https://").unwrap_or(url).trim_end_matches('/').to_owned();
        let (certificate, token) = match credentials {
            Credentials::None => (None, None),
            Credentials::Token(token) => (None, Some(token)),
            Credentials::Certificate(certificate, key) => (Some((certificate, key)), None),
        };
        let mut tls = tls(trust, certificate)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Client { authority, tls: Arc::new(tls), token, idle: Arc::default() })
    }

    /// A client of this server with another token, or without credentials for `None`, on a connection of its own.
    #[must_use]
    pub fn as_token(&self, token: Option<&str>) -> Client {
        Client { token: token.map(str::to_owned), idle: Arc::default(), ..self.clone() }
    }

    /// A copy of the client with a connection of its own, for requests that must not wait for each other.
    #[must_use]
    pub fn on_new_connection(&self) -> Client {
        self.as_token(self.token.as_deref())
    }

    /// The address as `HOST:PORT`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The bearer token, if the client uses one.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub async fn get(&self, path: &str) -> Result<HttpResponse> {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<HttpResponse> {
        self.json(Method::POST, path, body).await
    }

    pub async fn delete(&self, path: &str) -> Result<HttpResponse> {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    /// Sends a request with a JSON body.
    pub async fn json(&self, method: Method, path: &str, body: &Value) -> Result<HttpResponse> {
        let body = serde_json::to_vec(body).map_err(|e| Problem::at("cannot write JSON", e))?;
        self.send(method, path, &[("content-type", "application/json")], body.into()).await
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpResponse> {
        let exchange = async {
            let mut idle = self.idle.lock().await;
            let mut sender = match idle.take().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            if sender.ready().await.is_err() {
                sender = self.connect().await?;
            }
            let request = self.request(&method, path, headers, body)?;
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => {
                    let unsent = error.take_message();
                    let request = unsent.ok_or_else(|| Problem::at(path, error.into_error()))?;
                    // The server closed the idle connection before it got the request.
                    sender = self.connect().await?;
                    sender.send_request(request).await.map_err(|e| Problem::at(path, e))?
                }
            };
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|e| Problem::at("cannot read the answer", e))?.to_bytes();
            *idle = Some(sender);
            Ok(HttpResponse { code: parts.status.as_u16(), headers: parts.headers, body })
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        answered.map_err(|_| Problem::new(format!("{method} {path}: no answer in {PATIENCE:?}")))?
    }

    /// Sends a request whose answer is a stream of JSON lines, on a connection of its own.
    pub async fn events(&self, path: &str, headers: &[(&str, &str)]) -> Result<Events> {
        let mut sender = self.connect().await?;
        let request = self.request(&Method::GET, path, headers, Bytes::new())?;
        let response = sender.send_request(request).await.map_err(|e| Problem::at(path, e))?;
        let (parts, body) = response.into_parts();
        Ok(Events {
            code: parts.status,
            headers: parts.headers,
            body: Some(body),
            waiting: Vec::new(),
            _connection: sender,
        })
    }

    /// Opens a TLS connection for tests that do not speak HTTP through this client.
    pub async fn tls_stream(&self) -> Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(&self.authority).await.map_err(|e| Problem::at(&self.authority, e))?;
        let _ = tcp.set_nodelay(true);
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.to_owned()).map_err(|e| Problem::at(host, e))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        connector.connect(name, tcp).await.map_err(|e| Problem::at("TLS", e))
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>> {
        let stream = self.tls_stream().await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| Problem::at("HTTP", e))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.authority);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = request.body(Full::new(body)).map_err(|e| Problem::at(path, e))?;
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).map_err(|e| Problem::at(name, e))?;
            let value = HeaderValue::try_from(*value).map_err(|e| Problem::at(value, e))?;
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }
}

/// A stream of JSON lines, such as the answer to a watch.
#[derive(Debug)]
pub struct Events {
    pub code: StatusCode,
    pub headers: HeaderMap,
    body: Option<Incoming>,
    waiting: Vec<u8>,
    _connection: http1::SendRequest<Full<Bytes>>,
}

impl Events {
    /// The next line; `None` when the stream has ended.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(at) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=at).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|e| Problem::at("an event", e));
            }
            let Some(body) = &mut self.body else { return Ok(None) };
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.waiting.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Problem::at("the stream broke", error)),
                None => {
                    self.body = None;
                    if !self.waiting.is_empty() {
                        let rest = std::mem::take(&mut self.waiting);
                        return serde_json::from_slice(&rest)
                            .map(Some)
                            .map_err(|e| Problem::at("an event", e));
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// The rest of the answer, if it is no stream but an error.
    pub async fn rest(mut self) -> Result<Bytes> {
        let mut all = std::mem::take(&mut self.waiting);
        if let Some(body) = self.body.take() {
            let body = body.collect().await.map_err(|e| Problem::at("cannot read the answer", e))?;
            all.extend_from_slice(&body.to_bytes());
        }
        Ok(all.into())
    }

    /// The next line; an error if none arrives within `time`.
    pub async fn within(&mut self, time: Duration) -> Result<Option<Value>> {
        tokio::time::timeout(time, self.next())
            .await
            .map_err(|_| Problem::new(format!("no event within {time:?}")))?
    }
}

pub fn tls(trust: Trust, certificate: Option<(Vec<u8>, Vec<u8>)>) -> Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Problem::at("TLS versions", e))?;
    let builder = match trust {
        Trust::Authorities(pem) => {
            let mut roots = RootCertStore::empty();
            for authority in CertificateDer::pem_slice_iter(&pem) {
                let authority = authority.map_err(|e| Problem::at("the authority", e))?;
                roots.add(authority).map_err(|e| Problem::at("the authority", e))?;
            }
            builder.with_root_certificates(roots)
        }
        Trust::Anything => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    match certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain: std::result::Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(&certificate).collect();
            let chain = chain.map_err(|e| Problem::at("the client certificate", e))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| Problem::at("the client key", e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| Problem::at("the client certificate", e))
        }
    }
}

/// Accepts any server certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
