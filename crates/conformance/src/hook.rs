//! A webhook server over HTTPS on this machine. It records requests and gives the answers that a test sets.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, SanType};
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::serving_identity::{AnyError, ServingIdentity};
use crate::{Problem, Result};

/// A request that the webhook received.
#[derive(Clone, Debug)]
pub struct HookRequest {
    /// The path without the query.
    pub path: String,
    pub headers: HeaderMap,
    /// The body; null if it is not JSON.
    pub body: Value,
}

#[derive(Clone, Debug)]
pub enum HookReply {
    /// Answers with this code and JSON.
    Json(u16, Value),
    /// Answers with this code, content type and body.
    Raw(u16, &'static str, Vec<u8>),
    /// Redirects the client, which keeps its method, to another path of this server.
    SendOn(&'static str),
    /// Never sends an answer.
    Hang,
}

type Answering = Arc<dyn Fn(HookRequest) -> Pin<Box<dyn Future<Output = HookReply> + Send>> + Send + Sync>;

/// A running webhook, ended when dropped.
pub struct Hook {
    /// The base URL, `https://127.0.0.1:PORT`.
    pub url: String,
    /// The CA of its certificate in PEM format.
    pub authority: String,
    asked: Arc<Mutex<Vec<HookRequest>>>,
    serving: JoinHandle<()>,
}

impl Hook {
    /// Starts a webhook whose answer is computed synchronously.
    pub async fn start(answer: impl Fn(&HookRequest) -> HookReply + Send + Sync + 'static) -> Result<Self> {
        let answer = Arc::new(answer);
        Self::start_slow(move |asked| {
            let answer = Arc::clone(&answer);
            async move { answer(&asked) }
        })
        .await
    }

    /// Starts a webhook whose answer is computed asynchronously.
    pub async fn start_slow<F>(answer: impl Fn(HookRequest) -> F + Send + Sync + 'static) -> Result<Self>
    where
        F: Future<Output = HookReply> + Send + 'static,
    {
        let (authority, config) = identity().map_err(|e| Problem::at("a certificate", e))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| Problem::at("a port", e))?;
        let address = listener.local_addr().map_err(|e| Problem::at("a port", e))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let asked: Arc<Mutex<Vec<HookRequest>>> = Arc::default();
        let received = Arc::clone(&asked);
        let answer: Answering = Arc::new(move |asked| Box::pin(answer(asked)));
        let serving = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, received, answer) =
                    (acceptor.clone(), Arc::clone(&received), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request| {
                        let (received, answer) = (Arc::clone(&received), Arc::clone(&answer));
                        respond(request, received, answer)
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Ok(Hook { url: format!("https://{address}"), authority, asked, serving })
    }

    /// The requests received so far.
    pub fn asked(&self) -> Vec<HookRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the requests received so far and forgets them.
    pub fn take(&self) -> Vec<HookRequest> {
        std::mem::take(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A kubeconfig for the webhook with a token.
    pub fn kubeconfig(&self, path: &str, token: &str) -> String {
        let authority = BASE64_STANDARD.encode(&self.authority);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"{}{path}\", certificate-authority-data: {authority}}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            self.url
        )
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn respond(
    request: Request<Incoming>,
    received: Arc<Mutex<Vec<HookRequest>>>,
    answer: Answering,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let asked = HookRequest {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    received.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
    let (code, kind, body) = match answer(asked).await {
        HookReply::Json(code, value) => (code, "application/json", value.to_string().into_bytes()),
        HookReply::Raw(code, kind, body) => (code, kind, body),
        HookReply::SendOn(path) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = http::StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert("location", http::HeaderValue::from_static(path));
            return Ok(response);
        }
        HookReply::Hang => std::future::pending().await,
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    Ok(response)
}

/// A CA and a server certificate for 127.0.0.1.
fn identity() -> std::result::Result<(String, ServerConfig), AnyError> {
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()])?;
    leaf.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let identity = ServingIdentity::signed(&leaf)?;
    let authority = identity.ca_pem.clone();
    Ok((authority, identity.tls_config(&["h2", "http/1.1"], None)?))
}
