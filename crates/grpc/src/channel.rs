//! Calls to one of several endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::SendRequest;
use prost::Message;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::connect::{CallBody, ConnectTimes, connect};
use crate::endpoint::GrpcEndpoint;
use crate::frame::{self, FrameReader};
use crate::status::{GrpcCode, GrpcStatus};
use crate::stream::GrpcStream;

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("portcullis-grpc/", env!("CARGO_PKG_VERSION")));

/// Messages that a stream holds before its sender waits.
const UNSENT_MESSAGES: usize = 16;

/// Endpoints, limits and intervals of a channel.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// Tried in this order; there must be at least one.
    pub endpoints: Vec<GrpcEndpoint>,
    /// Maximum time to open a connection.
    pub dial_timeout: Duration,
    /// Idle time after which the connection is checked with a ping.
    pub keepalive: Duration,
    /// Maximum time for the answer to a ping; then the connection is closed.
    pub keepalive_timeout: Duration,
    /// Maximum size in bytes of a message from the server.
    pub max_message: usize,
}

impl ChannelConfig {
    /// The intervals of kube-apiserver's etcd client.
    pub fn new(endpoints: Vec<GrpcEndpoint>) -> Self {
        ChannelConfig {
            endpoints,
            dial_timeout: Duration::from_secs(20),
            keepalive: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_message: 512 << 20,
        }
    }
}

/// When a failed call is repeated at another endpoint. A call whose request was certainly not received always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Repeats only calls that were certainly not received: for calls that must not run twice.
    NotSentOnly,
    /// Repeats a call at another endpoint if the first was unavailable, too: for calls that only read.
    OtherEndpoints,
}

/// Connections to several endpoints of one service. Clones share them.
#[derive(Clone, Debug)]
pub struct Channel {
    shared: Arc<SharedChannel>,
}

#[derive(Debug)]
struct SharedChannel {
    config: ChannelConfig,
    connections: Vec<EndpointConnection>,
    /// Index of the endpoint that worked last; calls begin with it.
    preferred: AtomicUsize,
}

#[derive(Debug)]
struct EndpointConnection {
    endpoint: GrpcEndpoint,
    origin: String,
    /// The lock is held while a connection is opened, so that concurrent calls share one attempt.
    sender: Mutex<Option<SendRequest<CallBody>>>,
}

impl EndpointConnection {
    /// A sender for a connection that was open a moment ago; opens one if there is none.
    async fn sender(&self, times: ConnectTimes) -> Result<SendRequest<CallBody>, GrpcStatus> {
        let mut current = self.sender.lock().await;
        if let Some(sender) = current.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        *current = None;
        let failed =
            |error| GrpcStatus::not_sent(format!("cannot connect to {}: {error}", self.endpoint.url()));
        let sender = connect(&self.endpoint, times).await.map_err(failed)?;
        *current = Some(sender.clone());
        Ok(sender)
    }
}

impl Channel {
    /// Connections are opened by the first call.
    pub fn new(config: ChannelConfig) -> Channel {
        let connection = |endpoint: &GrpcEndpoint| EndpointConnection {
            endpoint: endpoint.clone(),
            origin: endpoint.origin(),
            sender: Mutex::default(),
        };
        let connections = config.endpoints.iter().map(connection).collect();
        Channel { shared: Arc::new(SharedChannel { config, connections, preferred: AtomicUsize::new(0) }) }
    }

    pub fn endpoint_count(&self) -> usize {
        self.shared.connections.len()
    }

    /// Sends one message and waits for the answer, for at most `allowed` in all.
    pub async fn unary<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        request: &Q,
        retry: Retry,
        allowed: Duration,
    ) -> Result<A, GrpcStatus> {
        let message = frame::encode(request)?;
        let deadline = Instant::now() + allowed;
        let mut failure = GrpcStatus::not_sent("no endpoint is configured");
        for (left, (index, connection)) in self.in_order() {
            // An endpoint that does not answer leaves time for the others.
            let now = Instant::now();
            let share = now + deadline.saturating_duration_since(now) / left;
            let answer_by = if retry == Retry::OtherEndpoints { share } else { deadline };
            match self.unary_on(connection, path, &message, (share, answer_by)).await {
                Ok(answer) => {
                    self.prefer(index);
                    return Ok(answer);
                }
                // An endpoint that cannot be reached says less than one that answered.
                Err(status) if self.tries_next(index, &status, retry) => {
                    if status.may_have_run || !failure.may_have_run {
                        failure = status;
                    }
                }
                Err(status) => return Err(status),
            }
        }
        Err(failure)
    }

    /// Like [`Channel::unary`], at the endpoint with this index, without a retry.
    pub async fn unary_at<Q: Message, A: Message + Default>(
        &self,
        index: usize,
        path: &'static str,
        request: &Q,
        allowed: Duration,
    ) -> Result<A, GrpcStatus> {
        let message = frame::encode(request)?;
        let Some(connection) = self.shared.connections.get(index) else {
            return Err(GrpcStatus::not_sent("there is no such endpoint"));
        };
        let deadline = Instant::now() + allowed;
        self.unary_on(connection, path, &message, (deadline, deadline)).await
    }

    /// Opens a bidirectional stream at the first endpoint that works, with further headers. Waits for the response's headers only
    /// when the first message is received, because servers may send them late.
    pub async fn stream<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        headers: &HeaderMap,
    ) -> Result<GrpcStream<Q, A>, GrpcStatus> {
        let mut failure = GrpcStatus::not_sent("no endpoint is configured");
        for (_, (index, connection)) in self.in_order() {
            match self.stream_on((index, connection), path, headers).await {
                Ok(stream) => {
                    self.prefer(index);
                    return Ok(stream);
                }
                Err(status) if self.tries_next(index, &status, Retry::NotSentOnly) => failure = status,
                Err(status) => return Err(status),
            }
        }
        Err(failure)
    }

    async fn stream_on<Q: Message, A: Message + Default>(
        &self,
        (index, connection): (usize, &EndpointConnection),
        path: &'static str,
        headers: &HeaderMap,
    ) -> Result<GrpcStream<Q, A>, GrpcStatus> {
        let mut sender = connection.sender(self.times()).await?;
        let not_ready = |error| GrpcStatus::not_sent(format!("{}: {error}", connection.endpoint.url()));
        sender.ready().await.map_err(not_ready)?;
        let (messages, body) = mpsc::channel(UNSENT_MESSAGES);
        let mut request = request(connection, path, CallBody::Messages(body))?;
        request.headers_mut().extend(headers.clone());
        let response = sender.send_request(request);
        Ok(GrpcStream::new(messages, response, self.shared.config.max_message, index))
    }

    fn times(&self) -> ConnectTimes {
        let ChannelConfig { dial_timeout, keepalive, keepalive_timeout, .. } = self.shared.config;
        ConnectTimes { dial: dial_timeout, keepalive, keepalive_timeout }
    }

    /// Every endpoint once with its index, beginning with the preferred one; before it the number of endpoints from it on.
    fn in_order(&self) -> impl Iterator<Item = (u32, (usize, &EndpointConnection))> {
        let first = self.shared.preferred.load(Ordering::Relaxed);
        let connections = self.shared.connections.iter().enumerate();
        let in_order = connections.clone().skip(first).chain(connections.take(first));
        let count = u32::try_from(self.endpoint_count()).unwrap_or(u32::MAX);
        (1..=count).rev().zip(in_order)
    }

    /// Lets the next call begin with another endpoint: the current one accepts connections but does not work.
    pub fn prefer_another(&self) {
        let current = self.shared.preferred.load(Ordering::Relaxed);
        self.prefer((current + 1) % self.endpoint_count().max(1));
    }

    /// Lets the next call begin with another endpoint than this one, which accepts connections but does not work.
    pub fn avoid(&self, index: usize) {
        let next = (index + 1) % self.endpoint_count().max(1);
        let _ = self.shared.preferred.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn prefer(&self, index: usize) {
        if self.shared.preferred.load(Ordering::Relaxed) != index {
            self.shared.preferred.store(index, Ordering::Relaxed);
        }
    }

    /// Reports whether a call that failed at one endpoint may be made at the next. Later calls begin there in any case.
    fn tries_next(&self, index: usize, status: &GrpcStatus, retry: Retry) -> bool {
        if !matches!(status.code, GrpcCode::Unavailable | GrpcCode::DeadlineExceeded) {
            return false;
        }
        self.prefer((index + 1) % self.endpoint_count().max(1));
        !status.may_have_run || retry == Retry::OtherEndpoints
    }

    async fn unary_on<A: Message + Default>(
        &self,
        connection: &EndpointConnection,
        path: &'static str,
        message: &Bytes,
        (connect_by, answer_by): (Instant, Instant),
    ) -> Result<A, GrpcStatus> {
        let url = connection.endpoint.url();
        let ready = async {
            let mut sender = connection.sender(self.times()).await?;
            sender.ready().await.map_err(|error| GrpcStatus::not_sent(format!("{url}: {error}")))?;
            Ok(sender)
        };
        let mut sender = tokio::time::timeout_at(connect_by, ready)
            .await
            .map_err(|_| GrpcStatus::not_sent(format!("cannot connect to {url} in time")))??;
        let mut request = request(connection, path, CallBody::Message(Some(message.clone())))?;
        let left = answer_by.saturating_duration_since(Instant::now());
        if let Ok(left) = HeaderValue::try_from(format!("{}m", left.as_millis().clamp(1, 99_999_999))) {
            request.headers_mut().insert("grpc-timeout", left);
        }
        let answer = async {
            let broken = |mut error: TrySendError<Request<CallBody>>| {
                // hyper gives the request back if it has not begun to send it.
                let may_have_run = error.take_message().is_none();
                let message = format!("{url}: {}", with_source(&error.into_error()));
                GrpcStatus { may_have_run, ..GrpcStatus::new(GrpcCode::Unavailable, message) }
            };
            let response = sender.try_send_request(request).await.map_err(broken)?;
            single_message(response, self.shared.config.max_message).await
        };
        tokio::time::timeout_at(answer_by, answer).await.unwrap_or_else(|_| {
            let message = format!("{url}: the call took longer than its time limit");
            Err(GrpcStatus::new(GrpcCode::DeadlineExceeded, message))
        })
    }
}

fn request(
    connection: &EndpointConnection,
    path: &str,
    body: CallBody,
) -> Result<Request<CallBody>, GrpcStatus> {
    Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("{}{path}", connection.origin))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", USER_AGENT)
        .body(body)
        .map_err(|error| GrpcStatus::not_sent(format!("invalid request: {error}")))
}

/// Checks the headers of a response: an error that came before any message is there.
pub(crate) fn check_headers<B>(response: &Response<B>) -> Result<(), GrpcStatus> {
    if let Some(status) = GrpcStatus::read(response.headers()) {
        return status;
    }
    if response.status() == http::StatusCode::OK {
        Ok(())
    } else {
        Err(GrpcStatus::of_http(response.status()))
    }
}

/// Reads the only message of a response and its trailers.
async fn single_message<A: Message + Default>(
    response: Response<Incoming>,
    max_message: usize,
) -> Result<A, GrpcStatus> {
    check_headers(&response)?;
    let mut body = response.into_body();
    let mut reader = FrameReader::new(max_message);
    let mut message = None;
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let broken = |error| {
            GrpcStatus::new(GrpcCode::Unavailable, format!("the answer was cut off: {}", with_source(&error)))
        };
        match frame.map_err(broken)?.into_data() {
            Ok(data) => {
                reader.push(&data);
                if message.is_none() {
                    message = reader.next()?;
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    match trailers.as_ref().and_then(GrpcStatus::read) {
        Some(Ok(())) => message
            .ok_or_else(|| GrpcStatus::new(GrpcCode::Internal, "the server answered without a message")),
        Some(Err(status)) => Err(status),
        None => Err(GrpcStatus::new(GrpcCode::Unavailable, "the answer ended without a status")),
    }
}

/// The text of an error and of its cause, which has the reason for hyper's errors.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests;
