//! Requests that are passed on: bodies stream both ways, and nothing waits for their end.
//!
//! A [`Forward`] is for one service, which has one name to prove at whichever of its addresses a request goes to. Unlike
//! [`super::Target`] it sets no time limit of its own beyond connecting: whoever passes a request on knows how long it may take.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::{Endpoint, EndpointError, Failure, IDLE, Identity, MAX_IDLE, Reach, Trust, explain};

/// The body of a request that is passed on.
pub type Outgoing = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Passes requests on to the servers of one service.
#[derive(Clone)]
pub struct Forward {
    requests: Client<Connector, Outgoing>,
    /// What is to become another protocol has a connection of its own, over HTTP/1.1.
    upgrades: Client<Connector, Outgoing>,
}

impl Forward {
    /// To servers that prove `name`, to whom this server proves itself with `identity`.
    pub fn new(name: &str, trust: Trust, identity: Option<Identity>) -> Result<Self, EndpointError> {
        let url = format!("https://{name}")
            .parse()
            .map_err(|_| EndpointError::Url(name.to_owned(), "it is not a name"))?;
        let mut endpoint = Endpoint::new(url);
        endpoint.trust = trust;
        endpoint.reach = Reach::Cluster;
        endpoint.identity = identity;
        let requests = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_title_case_headers(true)
            .http2_keep_alive_interval(std::time::Duration::from_secs(30))
            .http2_keep_alive_timeout(std::time::Duration::from_secs(15))
            .build(Connector::anywhere(&endpoint)?);
        endpoint.http1_only = true;
        let upgrades = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_max_idle_per_host(0)
            .http1_title_case_headers(true)
            .build(Connector::anywhere(&endpoint)?);
        Ok(Forward { requests, upgrades })
    }

    /// Sends a request and waits for the head of its answer. The message of a failure says only what went wrong.
    pub async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, Failure> {
        let answered = self.requests.request(request).await;
        answered.map_err(|error| failure(&error))
    }

    /// The same, for a request that asks to become another protocol.
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
