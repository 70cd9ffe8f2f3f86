//! From a listening socket to HTTP requests with a peer.
//!
//! The handshake runs in the connection's own task under a deadline, so that a client that stalls blocks nobody. The number
//! of open connections, their headers, streams and idle times are bounded here and nowhere else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::body::Body;
use crate::gather::gather;
use crate::trust::Certificates;

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
            connections: 16 * 1024,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(32),
            header_bytes: 64 * 1024,
            streams: 250,
            ping: Duration::from_secs(30),
        }
    }
}

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
    answer: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let seats = Arc::new(Semaphore::new(limits.connections));
    let connections = tokio_connections();
    loop {
        let seat = tokio::select! {
            seat = Arc::clone(&seats).acquire_owned() => seat,
            () = stopped(&mut stop) => break,
        };
        let Ok(seat) = seat else { break };
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Out of file descriptors, or a connection that died in the queue: neither ends the server.
                    warn!(error = %e, "accept failed");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = stopped(&mut stop) => break,
        };
        let config = tls.load_full();
        let answer = Arc::clone(&answer);
        let stop = stop.clone();
        let open = connections.0.clone();
        tokio::spawn(async move {
            connection(stream, address, config, limits, answer, stop).await;
            drop((seat, open));
        });
    }
    drop(listener);
    drop(connections.0);
    // Every connection task holds a sender; the channel closes when the last one ends.
    let mut closed = connections.1;
    let _ = closed.recv().await;
}

/// Returns when the server stops, or is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

type Connections = (tokio::sync::mpsc::Sender<()>, tokio::sync::mpsc::Receiver<()>);

fn tokio_connections() -> Connections {
    tokio::sync::mpsc::channel(1)
}

async fn connection<A: Answer>(
    stream: TcpStream,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    limits: Limits,
    answer: Arc<A>,
    mut stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(limits.handshake, TlsAcceptor::from(tls).accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return debug!(%address, error = %e, "TLS handshake failed"),
        Err(_) => return debug!(%address, "TLS handshake timed out"),
    };
    let certificates = Certificates::new(stream.get_ref().1.peer_certificates().unwrap_or_default());
    let peer = Peer { address, certificates: Arc::new(certificates) };
    let asked = Arc::new(AtomicBool::new(false));
    let first = Arc::clone(&asked);
    let service = service_fn(move |request| {
        first.store(true, Ordering::Relaxed);
        let answer = Arc::clone(&answer);
        let peer = peer.clone();
        async move { Ok::<_, std::convert::Infallible>(answer.answer(peer, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
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
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .max_send_buf_size(256 * 1024)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    let (stream, gather) = gather(stream);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A connection that never asks for anything gives its seat to one that does.
    let silent = async {
        tokio::time::sleep(limits.headers).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = gather.turns(connection.as_mut()) => ended,
        () = silent => return debug!(%address, "no request came"),
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            gather.turns(connection.as_mut()).await
        }
    };
    if let Err(e) = ended {
        debug!(%address, error = %e, "connection ended");
    }
}
