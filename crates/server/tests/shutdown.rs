//! Shuts servers down while clients use them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin_connection;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admin_connection::{client_config, connect, open};
use rustls::ClientConfig;
use server::{Config, Ephemeral, StorageBackend};
use storage::shared_memory::SharedMemory;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server that shuts down serves requests in these tests.
const DELAY: Duration = Duration::from_secs(1);

/// A server as its clients know it.
#[derive(Clone)]
struct ServerUnderTest {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl ServerUnderTest {
    fn of(server: &Ephemeral) -> Self {
        ServerUnderTest { address: server.running.address, config: client_config(server, "http/1.1") }
    }

    /// Sends a request on a connection of its own; returns the whole response.
    async fn request(&self, head: &str, body: &str) -> io::Result<String> {
        let mut stream = open(self.address, Arc::clone(&self.config)).await?;
        let length = body.len();
        let text = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer).await {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    }

    async fn get(&self, path: &str) -> io::Result<String> {
        self.request(&format!("GET {path}"), "").await
    }

    async fn is_ready(&self) -> bool {
        self.get("/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Polls until `/readyz` is as wanted.
    async fn until_ready(&self, wanted: bool) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_ready().await != wanted {
            assert!(Instant::now() < deadline, "/readyz does not become {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn start(change: impl FnOnce(&mut Config)) -> Ephemeral {
    Ephemeral::start_with(|config| {
        config.controllers.enabled = false;
        change(config);
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_is_not_ready_and_serves_requests() {
    let server = start(|config| config.serving.shutdown.delay = DELAY).await;
    let backend = ServerUnderTest::of(&server);
    assert!(backend.is_ready().await);
    let began = Instant::now();
    let stopping = tokio::spawn(server.running.stop());
    backend.until_ready(false).await;
    let answer = backend.get("/version").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(backend.get("/livez").await.unwrap().starts_with("HTTP/1.1 200"));
    stopping.await.unwrap();
    assert!(began.elapsed() >= DELAY);
    let refused = backend.get("/version").await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_requests_get_retry_after_while_a_write_is_completed() {
    let server = start(|config| config.serving.shutdown.send_retry_after = true).await;
    let backend = ServerUnderTest::of(&server);
    let mut writer = connect(&server, "http/1.1").await;
    let body = r#"{"metadata":{"name":"slow"}}"#;
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // The server waits for the rest of the body.
    writer.write_all(head.as_bytes()).await.unwrap();
    writer.write_all(&body.as_bytes()[..5]).await.unwrap();
    writer.flush().await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    let in_flight = "apiserver_current_inflight_requests{request_kind=\"mutating\"} 1";
    while !backend.get("/metrics").await.unwrap().contains(in_flight) {
        assert!(Instant::now() < deadline, "the write does not begin");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopping = tokio::spawn(server.running.stop());
    let refused = loop {
        let answer = backend.get("/version").await.unwrap();
        if answer.starts_with("HTTP/1.1 429") {
            break answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
    };
    assert!(refused.contains("retry-after: 5\r\n") && refused.contains("connection: close\r\n"), "{refused}");
    assert!(refused.ends_with("The apiserver is shutting down, please try again later.\n"), "{refused}");
    assert!(backend.get("/livez").await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(backend.get("/readyz").await.unwrap().starts_with("HTTP/1.1 500"));
    writer.write_all(&body.as_bytes()[5..]).await.unwrap();
    let mut answer = Vec::new();
    let _ = writer.read_to_end(&mut answer).await;
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 201"));
    stopping.await.unwrap();
}

/// The servers that a load balancer sends requests to.
#[derive(Default)]
struct Balancer {
    servers: Mutex<Vec<ServerUnderTest>>,
    next: AtomicUsize,
}

impl Balancer {
    /// A server that was ready when it was asked last; waits for one.
    async fn pick(&self) -> ServerUnderTest {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let servers = self.servers.lock().unwrap().clone();
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if let Some(server) = servers.get(turn % servers.len().max(1))
                && server.is_ready().await
            {
                return server.clone();
            }
            assert!(Instant::now() < deadline, "no server is ready");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_servers_restart_in_turn_and_clients_follow_readiness() {
    let shared = SharedMemory::new();
    let start = || {
        let data = StorageBackend::Backend(Arc::new(shared.backend()));
        start(move |config| {
            config.storage.data = data;
            config.serving.shutdown.delay = DELAY;
        })
    };
    let mut running = vec![start().await, start().await];
    let balancer = Arc::new(Balancer::default());
    *balancer.servers.lock().unwrap() = running.iter().map(ServerUnderTest::of).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (balancer, is_over) = (Arc::clone(&balancer), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut written = 0_usize;
                while !is_over.load(Ordering::Relaxed) {
                    let server = balancer.pick().await;
                    let body = format!(r#"{{"metadata":{{"name":"w{writer}-{written}"}}}}"#);
                    let answer = server.request("POST /api/v1/namespaces/default/configmaps", &body).await;
                    let answer =
                        answer.unwrap_or_else(|error| panic!("write {written} of {writer}: {error}"));
                    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                    written += 1;
                }
                written
            })
        })
        .collect();
    for turn in 0..2 {
        let old = running.remove(0);
        let backend = ServerUnderTest::of(&old);
        old.running.stop().await;
        let new = start().await;
        let mut servers = balancer.servers.lock().unwrap();
        servers.retain(|server| server.address != backend.address);
        servers.push(ServerUnderTest::of(&new));
        drop(servers);
        running.push(new);
        assert_eq!(running.len(), 2, "restart {turn}");
    }
    is_over.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    assert!(written > 10, "{written}");
    let store = &running[0].running.state().storage.store;
    assert!(store.count("/registry/configmaps/default/") >= written);
    for server in running {
        server.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn goaway_chance_closes_http2_connections_after_the_response() {
    for (chance, is_sent) in [(1.0, true), (0.0, false)] {
        let server = start(|config| config.serving.limits.goaway_chance = chance).await;
        let mut stream = connect(&server, "h2").await;
        let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        request.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        // HEADERS: GET, https, the path `/version` and the authority `x`.
        let headers = [&[0x82, 0x87, 0x44, 8][..], b"/version", &[0x41, 1], b"x"].concat();
        request.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
        request.extend(headers);
        stream.write_all(&request).await.unwrap();
        // Frames until the end of the response and, if wanted, GOAWAY.
        let (mut has_goaway, mut has_ended) = (false, false);
        let frames = async {
            while !has_ended || (is_sent && !has_goaway) {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
                stream.read_exact(&mut payload).await.unwrap();
                has_goaway |= head[3] == 7;
                has_ended |= head[8] == 1 && head[4] & 1 == 1 && head[3] < 2;
                // Acknowledge pings: the server waits for one before it ends a connection.
                if head[3] == 6 {
                    stream.write_all(&[&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &payload].concat()).await.unwrap();
                }
            }
        };
        tokio::time::timeout(PATIENCE, frames).await.unwrap();
        assert_eq!(has_goaway, is_sent);
        drop(stream);
        server.running.stop().await;
    }
}
