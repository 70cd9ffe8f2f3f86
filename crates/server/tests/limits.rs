//! Limits on connections and requests, tested on a server in this process with short timeouts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin_connection;

use std::sync::Arc;
use std::time::Duration;

use admin_connection::connect;

use authn::InternalIdentity;
use http::Method;
use server::Ephemeral;
use server::client::LoopbackClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use value::{Value, json};

const SHORT: Duration = Duration::from_millis(300);
/// Far longer than the configured limits, and far shorter than the default ones.
const SOON: Duration = Duration::from_secs(8);

async fn server() -> Ephemeral {
    Ephemeral::start_with(|config| {
        config.serving.limits.handshake = SHORT;
        config.serving.limits.headers = SHORT;
        config.serving.limits.ping = SHORT;
    })
    .await
    .unwrap()
}

/// Reads until the other side closes, which it must do soon.
async fn closes(mut stream: impl tokio::io::AsyncRead + Unpin, what: &str) {
    let mut buffer = [0; 4096];
    let ended = tokio::time::timeout(SOON, async {
        while !matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)) {}
    });
    assert!(ended.await.is_ok(), "{what} was not closed");
}

#[tokio::test]
async fn stalled_and_idle_connections_are_closed() {
    let server = server().await;
    let mut tcp = TcpStream::connect(server.running.address).await.unwrap();
    tcp.write_all(&[0x16, 0x03, 0x01, 0x02]).await.unwrap();
    closes(tcp, "half a handshake").await;
    closes(connect(&server, "http/1.1").await, "a connection that asks nothing").await;
    closes(connect(&server, "h2").await, "one of HTTP/2 that asks nothing").await;
    let mut tls = connect(&server, "http/1.1").await;
    tls.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    closes(tls, "half a request").await;
    // A complete request within the limit gets a response.
    let mut tls = connect(&server, "http/1.1").await;
    tls.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = tls.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    server.running.stop().await;
}

#[tokio::test]
async fn a_watch_ends_when_its_client_disconnects() {
    let server = server().await;
    let open = || {
        let text = server.running.state().metrics.page((0, 0), None, &[]);
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| {
            line.starts_with("apiserver_longrunning_requests{") && line.contains("resource=\"configmaps\"")
        });
        line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |count| count.parse().unwrap())
    };
    let mut tls = connect(&server, "http/1.1").await;
    tls.write_all(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 16];
    tls.read_exact(&mut first).await.unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
    let soon = |wanted: f64| {
        let open = &open;
        async move {
            let waited = tokio::time::timeout(SOON, async {
                while (open() - wanted).abs() > 0.1 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            assert!(waited.await.is_ok(), "{} watches are open", open());
        }
    };
    soon(1.0).await;
    drop(tls);
    soon(0.0).await;
    server.running.stop().await;
}

#[tokio::test]
async fn extreme_grace_periods_are_clamped() {
    let server = Ephemeral::start().await.unwrap();
    let admin = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    let node = br#"{"metadata":{"name":"n"}}"#;
    admin.create("/api/v1/nodes", &json::parse(node).unwrap()).await.unwrap();
    let pod = br#"{"metadata":{"name":"p"},"spec":{"nodeName":"n","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#;
    let pods = "/api/v1/namespaces/default/pods";
    admin.create(pods, &json::parse(pod).unwrap()).await.unwrap();
    let path = format!("{pods}/p");
    for (asked, wanted) in [(i64::MAX, 100 * 365 * 24 * 3600), (-5, 1)] {
        let options = Value::map([("gracePeriodSeconds", asked)]);
        let answer = admin.request(Method::DELETE, &path, "application/json", Some(&options)).await.unwrap();
        assert_eq!(answer.int_at(&["metadata", "deletionGracePeriodSeconds"]), Some(wanted), "{asked}");
    }
    server.running.stop().await;
}
