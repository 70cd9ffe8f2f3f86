//! Accepts TLS connections from a listening socket and serves HTTP requests on them.
//!
//! The handshake runs in the connection's own task under a deadline, so that a stalling client blocks no
//! other. This module bounds headers, streams and idle times; [`crate::connections`] bounds the number of
//! connections.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::CONNECTION;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use runtime::{LogLimit, random};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::connections::{
    ConnectionClaim, ConnectionMetrics, ConnectionState, Connections, OpenConnection, RequestInFlight,
    TrackedSocket,
};
use crate::drain::{self, StreamGuard};
use crate::host;
use crate::long_running::EndSignal;
use crate::trust::Certificates;
use crate::write_coalescing::coalesce_writes;

/// The remote end of the connection of a request, as known from TCP and TLS; not authenticated yet.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The connection, which the handler claims once it knows that the request may keep it.
    pub connection: ConnectionClaim,
    /// The client certificates that were presented in the TLS handshake; not verified here.
    pub certificates: Arc<Certificates>,
}

/// Limits on connections, handshakes, headers and streams.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum open connections; further ones wait in the kernel's listen queue.
    pub connections: usize,
    /// Maximum open connections of one client address; 0 means no limit.
    pub connections_per_address: usize,
    /// Maximum TLS handshakes in progress.
    pub handshakes: usize,
    /// Maximum number of long-running requests, such as watches and upgraded connections, that are proxied to other servers at the same time:
    /// each may hold a file descriptor there.
    pub proxied: usize,
    /// Deadline from TCP accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// Deadline from the first byte of a request to the end of its headers.
    pub headers: Duration,
    /// Maximum size of a request's headers in bytes.
    pub header_bytes: u32,
    /// Maximum concurrent HTTP/2 streams per connection; 0 means that HTTP/2 is not served.
    pub streams: u32,
    /// Interval of HTTP/2 keep-alive pings, and the time to wait for their acknowledgement.
    pub ping: Duration,
    /// `--goaway-chance`: the probability that the connection of an HTTP/2 request is closed gracefully, so that its client connects
    /// again, maybe to another server.
    pub goaway_chance: f64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            connections: MAX_CONNECTIONS,
            connections_per_address: 0,
            handshakes: MAX_CONNECTIONS / 4,
            proxied: MAX_PROXIED,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(32),
            header_bytes: MAX_HEADER_BYTES,
            streams: 100,
            ping: Duration::from_secs(30),
            goaway_chance: 0.0,
        }
    }
}

/// The HTTP/2 receive window of a stream: the bytes of a body that a client may send before the server reads it. The window of the
/// connection is that of four streams.
pub(crate) const STREAM_WINDOW: u32 = 256 * 1024;
/// Maximum size of the headers of a request, and of the HTTP/1 read buffer, which may hold the beginning of a body too.
pub(crate) const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// Upper limit whatever the file descriptor limit is: an idle TLS connection takes tens of kilobytes of
/// memory.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Upper limit of proxied long-running requests, whatever the file descriptor limit is.
const MAX_PROXIED: usize = 8 * 1024;

impl ConnectionLimits {
    /// Derives the connection limit from the number of file descriptors that the process may open. A quarter
    /// of them (64 to 1024) stays reserved for the store, logs, watched files and short requests to other
    /// servers, an eighth for long-running requests that are proxied.
    #[must_use]
    pub fn for_descriptors(descriptors: u64) -> Self {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let reserved = (descriptors / 4).clamp(64, 1024);
        let proxied = (descriptors / 8).clamp(16, MAX_PROXIED);
        let connections = descriptors.saturating_sub(reserved + proxied).clamp(16, MAX_CONNECTIONS);
        let handshakes = (connections / 4).max(16);
        ConnectionLimits { connections, handshakes, proxied, ..ConnectionLimits::default() }
    }
}

/// How long a client has to close an idle connection after a graceful shutdown (GOAWAY).
const GOAWAY_GRACE: Duration = Duration::from_secs(5);

/// Handles the requests of all connections.
pub trait RequestHandler: Send + Sync + 'static {
    type Body: ResponseBody;

    fn handle(
        self: Arc<Self>,
        peer: Peer,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = http::Response<Self::Body>> + Send;

    /// Ends the long-running requests of this number of connections, because new clients need them. Returns the connections
    /// ([`ConnectionClaim::connection`]), which may be fewer.
    fn end_long_running(&self, connections: usize) -> Vec<u64>;
}

pub trait ResponseBody: HttpBody<Data = Bytes, Error: Error + Send + Sync> + Send + Unpin + 'static {
    /// True for the response of another server, whose client may take longer to read it.
    fn is_forwarded(&self) -> bool;

    /// Takes the signal that a long-running response must end: see [`drain::stream_ends_with`].
    fn take_end_signal(&mut self) -> Option<EndSignal>;

    /// The body of a request that is refused before it is handled.
    fn of_refusal(text: &'static str) -> Self;
}

/// Accepts connections until `stop` becomes true, then waits for the open ones to finish.
pub async fn serve<A: RequestHandler>(
    listener: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    limits: ConnectionLimits,
    metrics: ConnectionMetrics,
    handler: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let table = Connections::new(limits, metrics);
    let stalled = tokio::spawn(Arc::clone(&table).close_stalled());
    let failures = LogLimit::default();
    let (tasks, mut ended) = mpsc::channel::<()>(1);
    loop {
        let end = |connections| handler.end_long_running(connections);
        let room = tokio::select! {
            room = table.room(&end) => room,
            () = stopped(&mut stop) => break,
        };
        let Some(room) = room else { break };
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Either the process is out of file descriptors or a queued connection died. Neither
                    // stops the server.
                    table.accept_failed();
                    if let Some(unlogged) = failures.due() {
                        warn!(error = %e, unlogged, "cannot accept a connection; if this persists, raise the file descriptor limit");
                    }
                    if e.kind() != io::ErrorKind::ConnectionAborted {
                        table.out_of_descriptors();
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    continue;
                }
            },
            () = stopped(&mut stop) => break,
        };
        let Some(open) = table.open(address.ip(), room) else { continue };
        let config = tls.load_full();
        let table = Arc::clone(&table);
        let handler = Arc::clone(&handler);
        let stop = stop.clone();
        let task = tasks.clone();
        tokio::spawn(async move {
            connection(AcceptedConnection { stream, address, open, table }, config, limits, handler, stop)
                .await;
            drop(task);
        });
    }
    drop(listener);
    drop(tasks);
    // Every connection task holds a sender; the channel closes when the last one ends.
    let _ = ended.recv().await;
    stalled.abort();
}

/// Returns when `stop` becomes true or its sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

/// An accepted TCP connection before its TLS handshake.
struct AcceptedConnection {
    stream: TcpStream,
    address: SocketAddr,
    open: OpenConnection,
    table: Arc<Connections>,
}

async fn connection<A: RequestHandler>(
    accepted: AcceptedConnection,
    tls: Arc<ServerConfig>,
    limits: ConnectionLimits,
    handler: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let AcceptedConnection { stream, address, open, table } = accepted;
    let _ = stream.set_nodelay(true);
    let state = open.connection();
    let handshake = TlsAcceptor::from(tls).accept(TrackedSocket::new(stream, open));
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(limits.handshake, handshake) => handshake,
        () = state.must_close_gracefully() => return debug!(%address, "TLS handshake aborted to admit other connections"),
    };
    table.handshake_ended(&state);
    let guard = StreamGuard::new(table.metrics().clone());
    drop(table);
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return debug!(%address, error = %e, "TLS handshake failed"),
        Err(_) => return debug!(%address, "TLS handshake timed out"),
    };
    let certificates = Certificates::new(stream.get_ref().1.peer_certificates().unwrap_or_default());
    let certificates = Arc::new(certificates);
    let requests = Arc::clone(&state);
    let goaway = Arc::new(Notify::new());
    let leave = Arc::clone(&goaway);
    let service = service_fn(move |request: http::Request<Incoming>| {
        if request.version() == http::Version::HTTP_2 && random::fraction() < limits.goaway_chance {
            leave.notify_one();
        }
        let busy = requests.begin();
        let peer = Peer { address, connection: busy.claim(), certificates: Arc::clone(&certificates) };
        respond(Arc::clone(&handler), peer, request, (busy, &requests), Arc::clone(&leave))
    });
    let builder = http_server(limits, guard);
    let (stream, flusher) = coalesce_writes(stream);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = flusher.turns(connection.as_mut()) => ended,
        () = unused_after(&state, limits.headers) => return debug!(%address, "connection closed: no request arrived in time"),
        () = either(state.must_close_gracefully(), goaway.notified()) => {
            // Without any request so far, no response is lost.
            if !state.was_used() {
                return debug!(%address, "connection closed: other connections need room, and no request arrived");
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = flusher.turns(connection.as_mut()) => ended,
                () = state.must_close_now() => return debug!(%address, "connection closed: other connections need room"),
                () = idle_after(&state, GOAWAY_GRACE) => return debug!(%address, "connection closed: the client did not close it after GOAWAY"),
            }
        }
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            flusher.turns(connection.as_mut()).await
        }
    };
    if let Err(e) = ended {
        debug!(%address, error = %e, "connection ended");
    }
}

/// Returns when one of the two does.
async fn either(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    tokio::select! {
        () = first => {}
        () = second => {}
    }
}

/// Handles one request. It counts as in flight until its response body is dropped, or until it is upgraded. A response on HTTP/2 with
/// the header `Connection: close` closes the connection gracefully, as in Go.
fn respond<A: RequestHandler>(
    handler: Arc<A>,
    peer: Peer,
    request: http::Request<Incoming>,
    (busy, connection): (RequestInFlight, &Arc<ConnectionState>),
    goaway: Arc<Notify>,
) -> impl Future<Output = Result<http::Response<Sending<A::Body>>, Infallible>> + use<A> {
    // On HTTP/1 the socket detects clients that do not read. HTTP/2 multiplexes responses, so it needs
    // its own check.
    let multiplexed = (request.version() == http::Version::HTTP_2).then(|| Arc::clone(connection));
    async move {
        let mut response = match host::check(request.version(), request.method(), request.headers()) {
            Ok(()) => handler.handle(peer, request).await,
            Err(refused) => refused.answer(A::Body::of_refusal),
        };
        // The header is not allowed on HTTP/2.
        if multiplexed.is_some() && response.headers_mut().remove(CONNECTION).is_some() {
            goaway.notify_one();
        }
        if let Some(signal) = response.body_mut().take_end_signal() {
            drain::stream_ends_with(signal);
        }
        let busy = if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            busy.upgraded();
            None
        } else {
            Some(busy)
        };
        Ok(response.map(|body| Sending { body, multiplexed, _busy: busy }))
    }
}

/// Returns after `time` if no request has arrived on the connection by then; otherwise never.
async fn unused_after(connection: &ConnectionState, time: Duration) {
    tokio::time::sleep(time).await;
    if connection.was_used() {
        std::future::pending::<()>().await;
    }
}

/// Configures HTTP/1 and HTTP/2 with limits on headers, streams, buffers and idle connections.
fn http_server(limits: ConnectionLimits, guard: StreamGuard) -> auto::Builder<StreamGuard> {
    let mut builder = auto::Builder::new(guard);
    if limits.streams == 0 {
        builder = builder.http1_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX).max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.header_bytes)
        .max_pending_accept_reset_streams(64)
        .max_local_error_reset_streams(64)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(4 * STREAM_WINDOW)
        .max_send_buf_size(128 * 1024)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    builder
}

/// Waits at least `time`, and then until no request is in flight on the connection, or it may be closed for new clients.
async fn idle_after(connection: &ConnectionState, time: Duration) {
    loop {
        tokio::time::sleep(time).await;
        if connection.may_end() {
            return;
        }
    }
}

/// A response body that counts its request as in flight until it is dropped.
struct Sending<B> {
    body: B,
    /// The HTTP/2 connection that carries it; none for HTTP/1.
    multiplexed: Option<Arc<ConnectionState>>,
    _busy: Option<RequestInFlight>,
}

impl<B: ResponseBody> HttpBody for Sending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = {
            let this = &mut *self;
            if this.multiplexed.is_none() {
                return Pin::new(&mut this.body).poll_frame(cx);
            }
            // HTTP/2 polls for a frame only after it has started to send the previous one.
            drain::stream_is_ready();
            Pin::new(&mut this.body).poll_frame(cx)
        };
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        let Some(connection) = &self.multiplexed else { return Poll::Ready(Some(Ok(frame))) };
        let is_forwarded = self.body.is_forwarded();
        let patience = if is_forwarded { drain::FORWARDED_PATIENCE } else { drain::PATIENCE };
        drain::stream_waits(frame.data_ref().map_or(0, Bytes::len), patience);
        Poll::Ready(Some(Ok(frame.map_data(|data| connection.hand_over(data, is_forwarded)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionLimits;

    #[test]
    fn the_connection_limit_leaves_file_descriptors_for_other_uses() {
        let of = |descriptors| {
            let limits = ConnectionLimits::for_descriptors(descriptors);
            (limits.connections, limits.proxied)
        };
        assert_eq!([0, 100, 128, 1024].map(of), [(16, 16), (20, 16), (48, 16), (640, 128)]);
        assert_eq!([4096, 1 << 20, u64::MAX].map(of), [(2560, 512), (16384, 8192), (16384, 8192)]);
    }
}
