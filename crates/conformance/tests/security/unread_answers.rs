//! Answers that clients do not read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conformance::client::{Trust, tls};
use conformance::{Client, Problem, Server, accepts, eventually};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::callers::{MAPS, SOON, alice_and_bob, metric};

/// A client has half a minute to continue reading; the limit is generous for busy test machines.
const GIVEN_UP: Duration = Duration::from_mins(2);

/// A list of four megabytes that is encoded for each request.
const LIST: &str = "/api/v1/namespaces/default/configmaps?pretty=true";

/// Creates the objects that [`LIST`] lists.
async fn fill(admin: &Client) {
    for number in 0..4 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(1_000_000)}});
        accepts(admin.post(MAPS, &map).await).unwrap();
    }
}

/// A TLS connection with a small receive buffer.
async fn connect(client: &Client, protocol: &[u8]) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let tcp = socket.connect(client.authority().parse().unwrap()).await.unwrap();
    let mut config = tls(Trust::Anything, None).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

async fn request_without_reading(client: &Client) -> TlsStream<TcpStream> {
    let mut stream = connect(client, b"http/1.1").await;
    let head = format!(
        "GET {LIST} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        client.token().unwrap()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test]
async fn unread_answers_of_one_user_use_bounded_memory_for_a_bounded_time() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    fill(&admin).await;
    // 400 megabytes of answers; a single user may have 128.
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(request_without_reading(&alice).await);
    }
    eventually(SOON, async || {
        match metric(&admin, "apiserver_unsent_response_refused_total", "share").await {
            Some(refused) if refused >= 50.0 => Ok(()),
            refused => Err(Problem::new(format!("{refused:?} answers were refused"))),
        }
    })
    .await
    .unwrap();
    let unsent = metric(&admin, "apiserver_unsent_response_bytes", "").await.unwrap();
    assert!((1e6..=129.0 * 1024.0 * 1024.0).contains(&unsent), "{unsent} bytes are held");
    // Other users get equally large answers.
    accepts(bob.get(LIST).await).unwrap();
    // Two users together leave no room for anonymous clients, but health checks are answered.
    for _ in 0..20 {
        held.push(request_without_reading(&bob).await);
    }
    let anonymous = admin.as_token(None);
    eventually(SOON, async || match anonymous.get("/version").await?.code {
        429 => Ok(()),
        code => Err(Problem::new(format!("an anonymous client got {code}"))),
    })
    .await
    .unwrap();
    for page in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(anonymous.get(page).await.unwrap().code, 200, "{page}");
    }
    // Unread answers are dropped, and then the user is served again.
    eventually(GIVEN_UP, async || match metric(&admin, "apiserver_unsent_response_bytes", "").await {
        Some(0.0) => Ok(()),
        held => Err(Problem::new(format!("{held:?} bytes are still held"))),
    })
    .await
    .unwrap();
    assert!(metric(&admin, "apiserver_connections_closed_total", "stalled").await.unwrap() >= 30.0);
    let lines = server.log().matches("do not read responses").count();
    assert!((1..=10).contains(&lines), "{lines} lines about it");
    accepts(alice.get(MAPS).await).unwrap();
    drop(held);
}

type Http2Sender = http2::SendRequest<Full<Bytes>>;

async fn send_get(sender: &mut Http2Sender, client: &Client, path: &str) -> http::Response<Incoming> {
    let request = http::Request::get(format!("https://{}{path}", client.authority()))
        .header("authorization", format!("Bearer {}", client.token().unwrap()))
        .body(Full::default())
        .unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn streams_with_closed_windows_are_reset_without_closing_the_connection() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    fill(&admin).await;
    let stream = connect(&admin, b"h2").await;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(16 * 1024)
        .initial_connection_window_size(1 << 30)
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    // An object, a list, a list as YAML, a document, and a watch: each larger than its window.
    let mut unread = Vec::new();
    for path in [&format!("{MAPS}/m0"), MAPS, LIST, "/openapi/v2", &format!("{MAPS}?watch=1")] {
        unread.push((path.to_owned(), send_get(&mut sender, &admin, path).await));
    }
    eventually(GIVEN_UP, async || match metric(&admin, "apiserver_stalled_streams_total", "").await {
        Some(reset) if reset >= 5.0 => Ok(()),
        reset => Err(Problem::new(format!("{reset:?} streams were reset"))),
    })
    .await
    .unwrap();
    for (path, response) in unread {
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.into_body().collect().await.is_err(), "{path}: the answer must not look complete");
    }
    // The connection can still be used for answers that are read.
    let read = send_get(&mut sender, &admin, MAPS).await.into_body().collect().await.unwrap().to_bytes();
    assert!(read.len() > 4_000_000 && read.ends_with(b"]}\n"), "{} bytes", read.len());
    eventually(SOON, async || match metric(&admin, "apiserver_longrunning_requests", "configmaps").await {
        Some(0.0) | None => Ok(()),
        running => Err(Problem::new(format!("{running:?} watches are still running"))),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_answer_whose_end_is_never_read_closes_its_connection() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "x".repeat(20_000)}});
    accepts(admin.post(MAPS, &map).await).unwrap();
    let stream = connect(&admin, b"h2").await;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(16 * 1024)
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .unwrap();
    let ends = tokio::spawn(connection);
    // The window takes the beginning of the answer, and HTTP/2 buffers the rest.
    let response = send_get(&mut sender, &admin, &format!("{MAPS}/m")).await;
    assert_eq!(response.status(), 200);
    drop(tokio::time::timeout(GIVEN_UP, ends).await.expect("the connection is still open"));
    assert!(metric(&admin, "apiserver_connections_closed_total", "stalled").await.unwrap() >= 1.0);
    drop(response);
}
