//! From a listening socket to HTTP requests with a peer.
//!
//! The handshake runs in the connection's own task under a deadline, so that a client that stalls blocks nobody. The headers,
//! streams and idle times of connections are bounded here, their number in [`crate::connections`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::body::{Body, Cut};
use crate::connections::{Busy, Connection, ConnectionMetrics, Connections, LogLimit, Open, Socket};
use crate::drain::{self, StreamGuard};
use crate::trust::Certificates;
use crate::write_coalescing::coalesce_writes;

/// Who is at the other end of a connection, as far as TCP and TLS tell.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The remote address.
    pub address: SocketAddr,
    /// The certificates it brought.
    pub certificates: Arc<Certificates>,
}

/// The bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; further ones wait in the listen queue.
    pub connections: usize,
    /// Open connections of one address; 0 is no limit.
    pub connections_per_address: usize,
    /// TLS handshakes in progress.
    pub handshakes: usize,
    /// From TCP accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a request to the end of its headers.
    pub headers: Duration,
    /// Bytes of a request's headers.
    pub header_bytes: u32,
    /// Concurrent HTTP/2 streams of a connection.
    pub streams: u32,
    /// How often an idle HTTP/2 connection is asked whether it lives.
    pub ping: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: MAX_CONNECTIONS,
            connections_per_address: 0,
            handshakes: MAX_CONNECTIONS / 4,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(32),
            header_bytes: 64 * 1024,
            streams: 250,
            ping: Duration::from_secs(30),
        }
    }
}

/// An idle TLS connection takes tens of kilobytes of memory.
const MAX_CONNECTIONS: usize = 16 * 1024;

impl Limits {
    /// As many connections as a process may have that can open `descriptors` files: a quarter of them, at least 64 and at most
    /// 1024, is left for the store, logs, watched files and calls to other servers.
    #[must_use]
    pub fn for_descriptors(descriptors: u64) -> Self {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let reserved = (descriptors / 4).clamp(64, 1024);
        let connections = descriptors.saturating_sub(reserved).clamp(16, MAX_CONNECTIONS);
        Limits { connections, handshakes: (connections / 4).max(16), ..Limits::default() }
    }
}

/// How long a client has to take leave of a connection that is to be closed.
const LEAVE: Duration = Duration::from_secs(5);

/// Whatever answers requests.
pub trait Answer: Send + Sync + 'static {
    /// Answers one request.
    fn answer(
        self: Arc<Self>,
        peer: Peer,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = http::Response<Body>> + Send;
}

/// Accepts connections until `stop` turns true, then lets those that are open finish.
pub async fn serve<A: Answer>(
    listener: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    limits: Limits,
    metrics: ConnectionMetrics,
    answer: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let table = Connections::new(limits, metrics);
    let stalled = tokio::spawn(Arc::clone(&table).close_stalled());
    let failures = LogLimit::default();
    let (tasks, mut ended) = mpsc::channel::<()>(1);
    loop {
        let room = tokio::select! {
            room = table.room() => room,
            () = stopped(&mut stop) => break,
        };
        let Some(room) = room else { break };
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Out of file descriptors, or a connection that died in the queue: neither ends the server.
                    table.accept_failed();
                    if let Some(unlogged) = failures.due() {
                        warn!(error = %e, unlogged, "accept failed");
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
        let answer = Arc::clone(&answer);
        let stop = stop.clone();
        let task = tasks.clone();
        tokio::spawn(async move {
            connection(Accepted { stream, address, open, table }, config, limits, answer, stop).await;
            drop(task);
        });
    }
    drop(listener);
    drop(tasks);
    // Every connection task holds a sender; the channel closes when the last one ends.
    let _ = ended.recv().await;
    stalled.abort();
}

/// Returns when the server stops, or is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

/// A connection as it was accepted.
struct Accepted {
    stream: TcpStream,
    address: SocketAddr,
    open: Open,
    table: Arc<Connections>,
}

async fn connection<A: Answer>(
    accepted: Accepted,
    tls: Arc<ServerConfig>,
    limits: Limits,
    answer: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let Accepted { stream, address, open, table } = accepted;
    let _ = stream.set_nodelay(true);
    let state = open.connection();
    let handshake = TlsAcceptor::from(tls).accept(Socket::new(stream, open));
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(limits.handshake, handshake) => handshake,
        () = state.asked_to_leave() => return debug!(%address, "TLS handshake given up for others"),
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
    let peer = Peer { address, certificates: Arc::new(certificates) };
    let requests = Arc::clone(&state);
    let service = service_fn(move |request| {
        let busy = requests.begin();
        let answer = Arc::clone(&answer);
        let peer = peer.clone();
        // The socket tells of clients that do not read only where it carries one answer at a time.
        let multiplexed = (request.version() == http::Version::HTTP_2).then(|| Arc::clone(&requests));
        async move {
            let response = answer.answer(peer, request).await;
            if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
                busy.upgraded();
                return Ok::<_, std::convert::Infallible>(response.map(|body| Sending {
                    body,
                    multiplexed,
                    _busy: None,
                }));
            }
            Ok(response.map(|body| Sending { body, multiplexed, _busy: Some(busy) }))
        }
    });
    let builder = http_server(limits, guard);
    let (stream, gather) = coalesce_writes(stream);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A connection that never asks for anything gives its seat to one that does.
    let silent = async {
        tokio::time::sleep(limits.headers).await;
        if state.was_used() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = gather.turns(connection.as_mut()) => ended,
        () = silent => return debug!(%address, "no request came"),
        () = state.asked_to_leave() => {
            // Nothing is lost with a connection that never had a request.
            if !state.was_used() {
                return debug!(%address, "closed for others: no request came");
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = gather.turns(connection.as_mut()) => ended,
                () = state.told_to_go() => return debug!(%address, "closed for others"),
                () = idle_after(&state, LEAVE) => return debug!(%address, "closed for others: the client stayed"),
            }
        }
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            gather.turns(connection.as_mut()).await
        }
    };
    if let Err(e) = ended {
        debug!(%address, error = %e, "connection ended");
    }
}

/// HTTP/1 and HTTP/2 with bounds on headers, streams, buffers and idle connections.
fn http_server(limits: Limits, guard: StreamGuard) -> auto::Builder<StreamGuard> {
    let mut builder = auto::Builder::new(guard);
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
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .max_send_buf_size(128 * 1024)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    builder
}

/// Returns when nothing is in flight on the connection, at the earliest after some time.
async fn idle_after(connection: &Connection, time: Duration) {
    loop {
        tokio::time::sleep(time).await;
        if connection.is_idle() {
            return;
        }
    }
}

/// The body of an answer, and the request in flight that ends with it.
struct Sending {
    body: Body,
    /// The connection, if other answers are under way on it.
    multiplexed: Option<Arc<Connection>>,
    _busy: Option<Busy>,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let polled = {
            let this = &mut *self;
            if this.multiplexed.is_none() {
                return Pin::new(&mut this.body).poll_frame(cx);
            }
            // HTTP/2 asks for a frame when it has begun to send the one before.
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
    use super::Limits;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        let of = |descriptors| Limits::for_descriptors(descriptors).connections;
        assert_eq!([0, 100, 128, 1024].map(of), [16, 36, 64, 768]);
        assert_eq!([4096, 1 << 20, u64::MAX].map(of), [3072, 16384, 16384]);
    }
}
