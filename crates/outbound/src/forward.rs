//! Forwards requests with streaming bodies in both directions.
//!
//! A [`Forward`] belongs to one service, whose servers must all prove the same name. Unlike [`super::OutboundTarget`]
//! it limits only the time to connect; its caller knows how long a request may take.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::{ClientIdentity, Endpoint, EndpointError, Failure, Reach, ServerTrust, explain, pooling};

/// The body of a forwarded request.
pub type Outgoing = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Forwards requests to the servers of one service.
#[derive(Clone)]
pub struct Forward {
    requests: Client<Connector, Outgoing>,
    /// Protocol upgrades use a separate HTTP/1.1 connection each.
    upgrades: Client<Connector, Outgoing>,
}

impl Forward {
    /// The servers must prove `name`; this server authenticates with `identity`.
    pub fn new(
        name: &str,
        trust: ServerTrust,
        identity: Option<ClientIdentity>,
    ) -> Result<Self, EndpointError> {
        let url = format!("https://{name}")
            .parse()
            .map_err(|_| EndpointError::Url(name.to_owned(), "it is not a name"))?;
        let mut endpoint = Endpoint::new(url);
        endpoint.trust = trust;
        endpoint.reach = Reach::Cluster;
        endpoint.identity = identity;
        let requests = pooling().build(Connector::anywhere(&endpoint)?);
        endpoint.http1_only = true;
        let upgrades = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_max_idle_per_host(0)
            .http1_title_case_headers(true)
            .build(Connector::anywhere(&endpoint)?);
        Ok(Forward { requests, upgrades })
    }

    /// Sends a request and waits for the response headers. The failure's message has no prefix with method
    /// and URL.
    pub async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, Failure> {
        let answered = self.requests.request(request).await;
        answered.map_err(|error| failure(&error))
    }

    /// Like [`Forward::send`], for a request with a protocol upgrade.
    pub async fn upgrade(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, Failure> {
        let answered = self.upgrades.request(request).await;
        answered.map_err(|error| failure(&error))
    }
}

fn failure(error: &hyper_util::client::legacy::Error) -> Failure {
    let broken = explain(error);
    Failure { kind: broken.kind, message: broken.why.into_owned() }
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Forward")
    }
}
