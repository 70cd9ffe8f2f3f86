//! Sends many concurrent requests and measures their latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::{Problem, Result};

/// The number of concurrent connections.
pub const CONNECTIONS: usize = 4;

/// The number of concurrent requests on each connection.
pub const STREAMS: usize = 8;

type Http2Sender = http2::SendRequest<Full<Bytes>>;

/// Connections to one server with the administrator's credentials.
#[derive(Clone)]
pub(super) struct LoadConnections {
    authority: String,
    token: Option<String>,
    senders: Vec<Http2Sender>,
}

/// The amount of requests to send.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoadLimit {
    /// This number of requests in all.
    Count(u64),
    /// Requests for this long.
    Time(Duration),
}

/// The rate and the latencies of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// The number of requests in all.
    pub(super) requests: u64,
    pub(super) per_second: f64,
    /// The median of the latencies.
    pub(super) p50: Duration,
    /// The latency of the 99th percentile.
    pub(super) p99: Duration,
}

impl LoadConnections {
    pub(super) async fn connect(url: &str, tls: &ClientConfig, token: Option<&str>) -> Result<Self> {
        let authority = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host).to_owned();
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(tls));
        let mut senders = Vec::new();
        for _ in 0..CONNECTIONS {
            let tcp = TcpStream::connect(&authority).await.map_err(|e| Problem::at(&authority, e))?;
            let _ = tcp.set_nodelay(true);
            let name = ServerName::try_from(host.clone()).map_err(|e| Problem::at(&host, e))?;
            let stream = connector.connect(name, tcp).await.map_err(|e| Problem::at("TLS", e))?;
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(1 << 24)
                .initial_connection_window_size(1 << 26)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|e| Problem::at("HTTP/2", e))?;
            tokio::spawn(connection);
            senders.push(sender);
        }
        Ok(LoadConnections { authority, token: token.map(str::to_owned), senders })
    }

    fn request(&self, method: &Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header("accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        request.body(Full::new(body)).map_err(|e| Problem::at(path, e))
    }

    /// Sends one request. A status code other than 2xx is an error.
    pub(super) async fn once(&self, method: &Method, path: &str, body: Bytes) -> Result<Bytes> {
        let sender = self.senders.first().ok_or_else(|| Problem::new("no connection"))?;
        exchange(&mut sender.clone(), self.request(method, path, body)?).await
    }

    /// Keeps all streams of all connections busy. `make` gets the number of the request.
    pub(super) async fn flood(
        &self,
        until: LoadLimit,
        make: impl Fn(u64) -> (Method, String, Bytes) + Clone + Send + 'static,
    ) -> Result<Rate> {
        let next = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let mut streams = JoinSet::new();
        for sender in self.senders.iter().flat_map(|sender| std::iter::repeat_n(sender, STREAMS)) {
            let (mut sender, wires, make) = (sender.clone(), self.clone(), make.clone());
            let (next, done) = (Arc::clone(&next), Arc::clone(&done));
            streams.spawn(async move {
                let mut times = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    match until {
                        LoadLimit::Count(count) if number >= count => return Ok::<_, Problem>(times),
                        LoadLimit::Time(time) if started.elapsed() >= time => return Ok(times),
                        _ => {}
                    }
                    let (method, path, body) = make(number);
                    let begun = Instant::now();
                    exchange(&mut sender, wires.request(&method, &path, body)?).await?;
                    times.push(begun.elapsed());
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut times: Vec<Duration> = Vec::new();
        while let Some(stream) = streams.join_next().await {
            times.extend(stream.map_err(|e| Problem::at("a stream", e))??);
        }
        let requests = done.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let per_second = requests as f64 / started.elapsed().as_secs_f64();
        times.sort_unstable();
        let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied().unwrap_or_default();
        Ok(Rate { requests, per_second, p50: at(50), p99: at(99) })
    }

    /// Opens a watch whose events are counted as they arrive.
    pub(super) async fn watch(&self, at: usize, path: &str, seen: Arc<AtomicU64>) -> Result<()> {
        let sender = self.senders.get(at % CONNECTIONS).ok_or_else(|| Problem::new("no connection"))?;
        let request = self.request(&Method::GET, path, Bytes::new())?;
        let response = sender.clone().send_request(request).await.map_err(|e| Problem::at(path, e))?;
        if !response.status().is_success() {
            return Err(Problem::new(format!("{path}: {}", response.status())));
        }
        let mut body = response.into_body();
        tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(data) = frame.data_ref() {
                    // Events are counted by line ends, because they are short.
                    let lines = data.split(|byte| *byte == b'\n').count() - 1;
                    seen.fetch_add(lines as u64, Ordering::Relaxed);
                }
            }
        });
        Ok(())
    }
}

async fn exchange(sender: &mut Http2Sender, request: Request<Full<Bytes>>) -> Result<Bytes> {
    let line = format!("{} {}", request.method(), request.uri().path());
    let response = sender.send_request(request).await.map_err(|e| Problem::at(&line, e))?;
    let code = response.status();
    let body = response.into_body().collect().await.map_err(|e| Problem::at(&line, e))?.to_bytes();
    if code.is_success() {
        return Ok(body);
    }
    let said: String = String::from_utf8_lossy(&body).chars().take(300).collect();
    Err(Problem::new(format!("{line}: {code} {said}")))
}
