//! An aggregated API server for tests: it requires the front proxy's client certificate over TLS and gives the answers that a
//! test sets.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertificateParams;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::serving_identity::{AnyError, ServingIdentity};
use crate::{Client, Problem, Result, accepts, eventually};

/// The longest wait until a registered server is available.
const AVAILABLE_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Received {
    pub method: http::Method,
    /// The path with its query.
    pub target: String,
    /// The HTTP version of the request.
    pub version: Version,
    pub headers: HeaderMap,
    /// The trailers after the body.
    pub trailers: HeaderMap,
    /// The length of the body in bytes.
    pub length: usize,
    /// The body, if it is JSON; otherwise null.
    pub body: Value,
}

impl Received {
    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The value of a header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum AggregatedReply {
    /// Answers with this code and JSON.
    Json(u16, Value),
    /// Answers with code, content type, further headers and body.
    Raw(u16, &'static str, Vec<(&'static str, &'static str)>, String),
    /// Streams the bytes passed to [`AggregatedServer::feed`] until [`AggregatedServer::finish`].
    Stream,
    /// Switches to another protocol, in which it echoes every byte.
    Echo(&'static str),
    /// Streams like `Stream`, with this `Content-Length`.
    StreamOf(&'static str),
    /// Never sends an answer.
    Hang,
}

type AggregatedServerBehavior = Arc<dyn Fn(&Received) -> AggregatedReply + Send + Sync>;

#[derive(Default)]
struct AggregatedServerState {
    received: Mutex<Vec<Received>>,
    streams: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
}

/// A running API server, ended when dropped.
pub struct AggregatedServer {
    /// The port; the server listens on all addresses.
    pub port: u16,
    /// The CA bundle for its certificate, in base64 as in an `APIService`.
    pub ca_bundle: String,
    shared: Arc<AggregatedServerState>,
    serving: JoinHandle<()>,
}

impl AggregatedServer {
    /// Starts a server with a certificate for `name` (`SERVICE.NAMESPACE.svc`). With `proxies` (PEM), the handshake requires a
    /// client certificate of these authorities.
    pub async fn start(
        name: &str,
        proxies: Option<&str>,
        behavior: impl Fn(&Received) -> AggregatedReply + Send + Sync + 'static,
    ) -> Result<Self> {
        let (config, ca_pem) = identity(name, proxies).map_err(|e| Problem::at("a certificate", e))?;
        let listener = TcpListener::bind("0.0.0.0:0").await.map_err(|e| Problem::at("a port", e))?;
        let port = listener.local_addr().map_err(|e| Problem::at("a port", e))?.port();
        let shared: Arc<AggregatedServerState> = Arc::default();
        let behavior: AggregatedServerBehavior = Arc::new(behavior);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let known = Arc::clone(&shared);
        let serving = tokio::spawn(async move {
            // The task of a connection ends with the server.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, shared, behavior) =
                    (acceptor.clone(), Arc::clone(&known), Arc::clone(&behavior));
                connections.spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request| {
                        answer(request, Arc::clone(&shared), Arc::clone(&behavior))
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await;
                });
            }
        });
        Ok(AggregatedServer { port, ca_bundle: BASE64_STANDARD.encode(ca_pem), shared, serving })
    }

    /// The requests received so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Registers version v1 of a group through the Service `default/<service>`, and waits until it is available.
    pub async fn register(&self, client: &Client, service: &str, group: &str) -> Result<()> {
        let object = json!({"metadata": {"name": service}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
        accepts(client.post("/api/v1/namespaces/default/services", &object).await)?;
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        let object = json!({"metadata": {"name": format!("v1.{group}")}, "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "caBundle": self.ca_bundle, "service": {"namespace": "default", "name": service, "port": self.port}}});
        accepts(client.post(services, &object).await)?;
        eventually(AVAILABLE_WITHIN, async || {
            let service = accepts(client.get(&format!("{services}/v1.{group}")).await)?;
            match service.pointer("/status/conditions/0/status").and_then(Value::as_str) {
                Some("True") => Ok(()),
                _ => Err(Problem::new(service.to_string())),
            }
        })
        .await
    }

    /// The received requests, except those that the server under test sends by itself.
    pub fn received_for_others(&self) -> Vec<Received> {
        let mut all = self.received();
        all.retain(|received| !received.header("x-remote-user").ends_with("aggregator"));
        all
    }

    /// Sends bytes to every open stream.
    pub fn feed(&self, bytes: &str) {
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = stream.send(Bytes::copy_from_slice(bytes.as_bytes()));
        }
    }

    /// Ends all open streams.
    pub fn finish(&self) {
        self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The number of streams whose client is still connected.
    pub fn open_streams(&self) -> usize {
        let streams = self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter(|stream| !stream.is_closed()).count()
    }
}

impl Drop for AggregatedServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl std::fmt::Debug for AggregatedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AggregatedServer({})", self.port)
    }
}

async fn answer(
    mut request: Request<Incoming>,
    shared: Arc<AggregatedServerState>,
    behavior: AggregatedServerBehavior,
) -> std::result::Result<Response<ServedBody>, Infallible> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, mut body) = request.into_parts();
    let (mut length, mut bytes, mut trailers) = (0, Vec::new(), HeaderMap::new());
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        trailers.extend(frame.into_trailers().unwrap_or_default());
    }
    let received = Received {
        method: parts.method,
        target: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        version: parts.version,
        headers: parts.headers,
        trailers,
        length,
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    };
    shared.received.lock().unwrap_or_else(PoisonError::into_inner).push(received.clone());
    let full = |text: String| ServedBody::All(Some(text.into()));
    let mut response = Response::new(full(String::new()));
    let json = http::HeaderValue::from_static("application/json");
    match behavior(&received) {
        AggregatedReply::Hang => std::future::pending().await,
        AggregatedReply::Json(code, value) => {
            *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
            response.headers_mut().insert("content-type", json);
            *response.body_mut() = full(value.to_string());
        }
        AggregatedReply::Raw(code, kind, headers, text) => {
            *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
            response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
            for (name, value) in headers {
                let name = http::HeaderName::from_static(name);
                response.headers_mut().append(name, http::HeaderValue::from_static(value));
            }
            *response.body_mut() = full(text);
        }
        does @ (AggregatedReply::Stream | AggregatedReply::StreamOf(_)) => {
            let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
            shared.streams.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
            response.headers_mut().insert("content-type", json);
            if let AggregatedReply::StreamOf(length) = does {
                response.headers_mut().insert("content-length", http::HeaderValue::from_static(length));
            }
            *response.body_mut() = ServedBody::Stream(receiver);
        }
        AggregatedReply::Echo(protocol) => {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("connection", http::HeaderValue::from_static("Upgrade"));
            response.headers_mut().insert("upgrade", http::HeaderValue::from_static(protocol));
            tokio::spawn(async move {
                let Ok(upgraded) = upgrade.await else { return };
                let (mut reads, mut writes) = tokio::io::split(TokioIo::new(upgraded));
                let _ = tokio::io::copy(&mut reads, &mut writes).await;
            });
        }
    }
    Ok(response)
}

/// The HTTP response for a reply.
enum ServedBody {
    All(Option<Bytes>),
    Stream(mpsc::UnboundedReceiver<Bytes>),
}

impl Body for ServedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            ServedBody::All(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ServedBody::Stream(receiver) => {
                receiver.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
}

/// The TLS configuration and the PEM of its CA.
fn identity(name: &str, proxies: Option<&str>) -> std::result::Result<(ServerConfig, String), AnyError> {
    let identity = ServingIdentity::signed(&CertificateParams::new(vec![name.to_owned()])?)?;
    let ca_pem = identity.ca_pem.clone();
    Ok((identity.tls_config(&["h2", "http/1.1"], proxies)?, ca_pem))
}
