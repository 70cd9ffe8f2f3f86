//! Bodies of requests that wait in a queue: what clients may send of them before they are read is part of the budget for bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use conformance::client::{Trust, tls};
use conformance::{Client, Problem, Server, accepts, eventually};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::{MAPS, SEATS, SOON, allow_maps, flood, gate, level_for, queue, reaches};

/// The bytes of a body that an HTTP/2 client may send before the server reads it.
const WINDOW: usize = 256 * 1024;
/// The bytes that one user may have of the budget for bodies.
const SHARE: usize = 128 * 1024 * 1024;
/// The size of each frame that the client sends.
const FRAME: usize = 4 * 1024;

/// A body that never ends. Counts the bytes that the connection takes from it, and stops after `most`.
struct EndlessBody {
    sent: Arc<AtomicUsize>,
    most: usize,
}

impl Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent.load(Ordering::Relaxed) >= self.most {
            return Poll::Pending;
        }
        self.sent.fetch_add(FRAME, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; FRAME])))))
    }
}

type Http2Sender = http2::SendRequest<EndlessBody>;

async fn connect(client: &Client) -> Http2Sender {
    let tcp = TcpStream::connect(client.authority()).await.unwrap();
    let mut config = tls(Trust::Anything, None).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Starts requests to create config maps, 100 on each connection. Their bodies stop after `most` bytes, without an end.
async fn start_bodies(
    client: &Client,
    requests: &mut JoinSet<u16>,
    number: usize,
    length: Option<usize>,
    most: usize,
) -> Arc<AtomicUsize> {
    let sent = Arc::new(AtomicUsize::new(0));
    let mut left = number;
    while left > 0 {
        let mut sender = connect(client).await;
        for _ in 0..left.min(100) {
            let mut request = http::Request::post(format!("https://{}{MAPS}", client.authority()))
                .header("authorization", format!("Bearer {}", client.token().unwrap()))
                .header("content-type", "application/json");
            if let Some(length) = length {
                request = request.header("content-length", length);
            }
            let request = request.body(EndlessBody { sent: Arc::clone(&sent), most }).unwrap();
            sender.ready().await.unwrap();
            let response = sender.send_request(request);
            requests.spawn(async move { response.await.map_or(0, |response| response.status().as_u16()) });
        }
        left = left.saturating_sub(100);
    }
    sent
}

/// A sample of a metric of the budget for bodies.
async fn budget_metric(client: &Client, sample: &str) -> usize {
    let page = client.get("/metrics").await.unwrap().text();
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

async fn held(client: &Client) -> usize {
    budget_metric(client, "apiserver_request_body_bytes").await
}

async fn holds(client: &Client, bytes: usize) {
    eventually(SOON, async || match held(client).await {
        found if found == bytes => Ok(()),
        found => Err(Problem::new(format!("{found} bytes are charged, not {bytes}"))),
    })
    .await
    .unwrap();
}

async fn holds_at_least(client: &Client, bytes: usize) {
    eventually(SOON, async || match held(client).await {
        found if found >= bytes => Ok(()),
        found => Err(Problem::new(format!("{found} bytes are charged, not {bytes}"))),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn bodies_that_wait_in_a_queue_are_part_of_the_budget_before_they_are_read() {
    const WAITING: usize = SHARE / WINDOW;
    const REFUSED: usize = 40;
    // A request waits in its queue for a quarter of this time.
    let server = Server::serve(&[SEATS[0], SEATS[1], "--request-timeout=10m"]).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    let seats = level_for(&client, "full", &queue(2000), &["alice", "bob"]).await;
    let waiting = [("flow_schema", "full")];
    let (_webhook, permits) = gate(&client).await;
    let mut flooding = JoinSet::new();
    flood(&alice, &mut flooding, seats);
    reaches(&client, "current_executing_requests", &waiting, seats).await;
    let before = held(&client).await;

    // A client can send as much of a body as is charged for it.
    let mut one = JoinSet::new();
    let sent = start_bodies(&bob, &mut one, 1, None, usize::MAX).await;
    holds(&client, before + WINDOW).await;
    eventually(SOON, async || match sent.load(Ordering::Relaxed) {
        sent if sent >= WINDOW => Ok(()),
        sent => Err(Problem::new(format!("{sent} bytes are sent"))),
    })
    .await
    .unwrap();

    // Short bodies are charged for their length, however many wait.
    let mut short = JoinSet::new();
    start_bodies(&bob, &mut short, 300, Some(1000), 0).await;
    holds(&client, before + WINDOW + 300 * 1000).await;
    short.abort_all();
    holds(&client, before + WINDOW).await;

    // Bodies of one user wait up to the share of the user, whether they arrive or not. Further ones are refused at once.
    let mut many = JoinSet::new();
    start_bodies(&alice, &mut many, WAITING + REFUSED, None, 0).await;
    for _ in 0..REFUSED {
        assert_eq!(many.join_next().await.unwrap().unwrap(), 429);
    }
    holds_at_least(&client, SHARE - WINDOW).await;
    let found = held(&client).await;
    assert!(found <= SHARE + WINDOW, "{found} bytes are charged");
    let refused = budget_metric(&client, "apiserver_request_body_refused_total{reason=\"share\"}").await;
    assert!((REFUSED..REFUSED + 10).contains(&refused), "{refused} are refused");
    // Another user has room for bodies of its own, and the administrator is served.
    let mut other = JoinSet::new();
    start_bodies(&bob, &mut other, 20, Some(WINDOW), 0).await;
    holds_at_least(&client, found + 20 * WINDOW).await;
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": "served"}})).await).unwrap();
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent <= WINDOW + FRAME, "the client could send {sent} bytes");

    drop((one, many, other));
    permits.add_permits(1000);
    while let Some(code) = flooding.join_next().await {
        assert_eq!(code.unwrap(), 201);
    }
    holds(&client, 0).await;
}
