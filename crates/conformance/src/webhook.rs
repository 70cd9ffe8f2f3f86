//! An admission webhook server over TLS that gives the answers that a test sets.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DnType, SanType};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::serving_identity::{AnyError, ServingIdentity};
use crate::{Problem, Result};

/// The certificate of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServingCertificate {
    /// A certificate for 127.0.0.1, localhost and `hook.default.svc`, signed by an authority.
    Signed,
    /// Like `Signed`, but self-signed and a CA, as `openssl req -x509` creates it.
    SelfSigned,
    /// Signed by the CA, for another name.
    OtherName,
    /// Signed by the CA, and expired.
    Expired,
}

#[derive(Clone, Debug)]
pub enum ReviewReply {
    /// Answers with this `response`, to which the uid is added if it has none.
    Response(Value),
    /// Answers with status, content type, further headers and body.
    Raw(u16, &'static str, Vec<(&'static str, &'static str)>, String),
    /// Closes the connection without an answer.
    Drop,
    /// Never sends an answer.
    Silence,
    /// Allows the request after this delay.
    AllowAfter(Duration),
    /// Allows the request as soon as the semaphore has a permit, and consumes the permit.
    AllowWith(Arc<Semaphore>),
}

impl ReviewReply {
    /// Allows the request without changes.
    pub fn allow() -> Self {
        ReviewReply::Response(json!({"allowed": true}))
    }

    pub fn deny(message: &str) -> Self {
        ReviewReply::Response(json!({"allowed": false, "status": {"message": message, "code": 403}}))
    }

    /// Allows the request with a JSON patch.
    pub fn patch(operations: &Value) -> Self {
        let patch = BASE64_STANDARD.encode(operations.to_string());
        ReviewReply::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }
}

#[derive(Clone, Debug)]
pub struct ReviewCall {
    /// The path with its query.
    pub target: String,
    pub headers: HeaderMap,
    /// The parsed review; null if it is nested too deeply for this reader.
    pub review: Value,
    /// The bytes of the unparsed review.
    pub body: Bytes,
    /// The number of its connection, counted from 0.
    pub connection: usize,
}

type WebhookBehavior = Arc<dyn Fn(&ReviewCall) -> ReviewReply + Send + Sync>;

pub struct WebhookServer {
    /// The port; the server listens on all addresses.
    pub port: u16,
    /// The CA bundle for its certificate, in base64 as in a webhook configuration.
    pub ca_bundle: String,
    calls: Arc<Mutex<Vec<ReviewCall>>>,
    serving: JoinHandle<()>,
}

impl WebhookServer {
    pub async fn start(
        proof: ServingCertificate,
        behavior: impl Fn(&ReviewCall) -> ReviewReply + Send + Sync + 'static,
    ) -> Result<Self> {
        let (config, ca_pem) = identity(proof).map_err(|e| Problem::at("a certificate", e))?;
        // Endpoints of services may not be loopback addresses, so this listens on every address.
        let listener = TcpListener::bind("0.0.0.0:0").await.map_err(|e| Problem::at("a port", e))?;
        let port = listener.local_addr().map_err(|e| Problem::at("a port", e))?.port();
        let calls: Arc<Mutex<Vec<ReviewCall>>> = Arc::default();
        let (received, behavior) = (Arc::clone(&calls), Arc::new(behavior) as WebhookBehavior);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, received, behavior) =
                    (acceptor.clone(), Arc::clone(&received), Arc::clone(&behavior));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| answer(request, connection, &received, &behavior));
                    // Tests may close connections early; such errors are ignored.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
                connection += 1;
            }
        });
        Ok(WebhookServer { port, ca_bundle: BASE64_STANDARD.encode(ca_pem), calls, serving })
    }

    /// The URL with this path.
    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the reviews received so far and forgets them.
    pub fn take_calls(&self) -> Vec<ReviewCall> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl std::fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebhookServer({})", self.port)
    }
}

/// The error that makes hyper close a connection.
#[derive(Debug, thiserror::Error)]
#[error("closed")]
struct Closed;

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    calls: &Mutex<Vec<ReviewCall>>,
    behavior: &WebhookBehavior,
) -> std::result::Result<Response<Full<Bytes>>, Closed> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let call = ReviewCall { target, headers: parts.headers, review, body, connection };
    calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
    let respond = |status: u16, content_type: &str, headers: &[(&str, &str)], body: String| {
        let mut response = Response::builder().status(status).header("content-type", content_type);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(Full::from(body)).map_err(|_| Closed)
    };
    let reply = match behavior(&call) {
        ReviewReply::AllowWith(permits) => {
            permits.acquire().await.map_err(|_| Closed)?.forget();
            ReviewReply::allow()
        }
        ReviewReply::AllowAfter(time) => {
            tokio::time::sleep(time).await;
            ReviewReply::allow()
        }
        reply => reply,
    };
    match reply {
        ReviewReply::Drop => Err(Closed),
        ReviewReply::Silence | ReviewReply::AllowWith(_) | ReviewReply::AllowAfter(_) => {
            std::future::pending::<std::result::Result<_, Infallible>>().await.map_err(|e| match e {})
        }
        ReviewReply::Raw(status, content_type, headers, body) => {
            respond(status, content_type, &headers, body)
        }
        ReviewReply::Response(mut response) => {
            if response.get("uid").is_none()
                && let Some(map) = response.as_object_mut()
            {
                map.insert(
                    "uid".to_owned(),
                    call.review.pointer("/request/uid").cloned().unwrap_or_default(),
                );
            }
            let api_version = call.review.get("apiVersion").cloned().unwrap_or_default();
            let review = json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response});
            respond(200, "application/json", &[], review.to_string())
        }
    }
}

/// The TLS configuration and the PEM of its CA.
fn identity(proof: ServingCertificate) -> std::result::Result<(ServerConfig, String), AnyError> {
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name.push(DnType::CommonName, "a webhook");
    leaf.subject_alt_names = match proof {
        ServingCertificate::OtherName => vec![SanType::DnsName("elsewhere.example".try_into()?)],
        _ => vec![
            SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            SanType::DnsName("localhost".try_into()?),
            SanType::DnsName("hook.default.svc".try_into()?),
        ],
    };
    if proof == ServingCertificate::Expired {
        leaf.not_before = rcgen::date_time_ymd(2020, 1, 1);
        leaf.not_after = rcgen::date_time_ymd(2020, 2, 1);
    }
    let identity = match proof {
        ServingCertificate::SelfSigned => ServingIdentity::self_signed(leaf)?,
        _ => ServingIdentity::signed(&leaf)?,
    };
    let ca_pem = identity.ca_pem.clone();
    Ok((identity.tls_config(&[], None)?, ca_pem))
}
