//! Request bodies that do not arrive, or that are too many.

use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::callers::{MAPS, SOON, alice_and_bob, metric};

/// The minimum number of bytes that a body is charged for.
const LEAST: f64 = 16.0 * 1024.0;

/// Starts a POST of `length` bytes and sends `sent` of them.
async fn send_partial_body(client: &Client, length: usize, sent: usize) -> TlsStream<TcpStream> {
    let mut stream = client.tls_stream().await.unwrap();
    let token = client.token().unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; sent]).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// The answer on a stream: its head, and its body as JSON.
async fn read_answer(stream: &mut TlsStream<TcpStream>) -> (String, Value) {
    let mut text = Vec::new();
    let mut chunk = vec![0; 4096];
    loop {
        let read = tokio::time::timeout(SOON, stream.read(&mut chunk)).await.expect("no answer").unwrap_or(0);
        text.extend_from_slice(&chunk[..read]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body.trim())
        {
            return (head.to_ascii_lowercase(), body);
        }
        assert!(read > 0, "the connection ended after `{whole}`");
    }
}

#[tokio::test]
async fn unfinished_bodies_of_one_user_do_not_block_other_users() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    // More than there are mutating seats. The part that has arrived allows each another minute for the rest.
    let mut stalled = Vec::new();
    for _ in 0..220 {
        stalled.push(send_partial_body(&alice, 100_000, 60_000).await);
    }
    eventually(SOON, async || {
        let taken = metric(&admin, "apiserver_current_inflight_requests", "mutating").await;
        let held = metric(&admin, "apiserver_request_body_bytes", "").await;
        if taken.unwrap_or(0.0) >= 200.0 || held.unwrap_or(0.0) >= 220.0 * LEAST {
            return Ok(());
        }
        Err(Problem::new(format!("not all bodies are waited for yet: {taken:?}, {held:?}")))
    })
    .await
    .unwrap();
    for number in 0..5 {
        accepts(bob.post(MAPS, &json!({"metadata": {"name": format!("b{number}")}})).await).unwrap();
    }
    // The user's own requests are served too, and a completed body is answered.
    accepts(alice.post(MAPS, &json!({"metadata": {"name": "a"}})).await).unwrap();
    let mut finished = stalled.pop().unwrap();
    let body = json!({"metadata": {"name": "finished"}}).to_string();
    finished.write_all(format!("{body:>40000}").as_bytes()).await.unwrap();
    finished.flush().await.unwrap();
    let (head, created) = read_answer(&mut finished).await;
    assert!(head.starts_with("http/1.1 201"), "{head} {created}");
    // A client that disconnects releases its share.
    drop((stalled, finished));
    eventually(SOON, async || match metric(&admin, "apiserver_request_body_bytes", "").await {
        Some(0.0) => Ok(()),
        held => Err(Problem::new(format!("{held:?} bytes are still held"))),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, _) = alice_and_bob(&admin).await;
    let mut slow = send_partial_body(&alice, 100, 1).await;
    let (head, status) = read_answer(&mut slow).await;
    assert!(head.starts_with("http/1.1 408"), "{head}");
    assert_eq!((status["kind"].as_str(), status["reason"].as_str()), (Some("Status"), Some("Timeout")));
    assert_eq!(status["message"], "Timeout: the request body arrived at less than 1024 bytes per second");
    // A body that arrives in pieces is read.
    let body = json!({"metadata": {"name": "pieces"}}).to_string();
    let mut pieces = send_partial_body(&alice, 1000, 1000 - body.len()).await;
    for piece in body.as_bytes().chunks(10) {
        pieces.write_all(piece).await.unwrap();
        pieces.flush().await.unwrap();
    }
    let (head, _) = read_answer(&mut pieces).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
}

#[tokio::test]
async fn request_bodies_of_a_single_user_cannot_use_the_whole_body_budget() {
    const LARGE: usize = 3 * 1024 * 1024;
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    // The share of a single user: half of 256 MiB.
    let mut held = vec![send_partial_body(&alice, LARGE, 2 * 1024 * 1024).await];
    for _ in 0..42 {
        held.push(send_partial_body(&alice, LARGE, LARGE - 1).await);
    }
    eventually(SOON, async || match metric(&admin, "apiserver_request_body_bytes", "").await {
        Some(bytes) if bytes >= 128.0 * 1024.0 * 1024.0 => Ok(()),
        Some(bytes) => Err(Problem::new(format!("{bytes} bytes are held"))),
        // A server without accounting would not limit them.
        None => Ok(()),
    })
    .await
    .unwrap();
    let mut refused = send_partial_body(&alice, LARGE, 0).await;
    let (head, status) = read_answer(&mut refused).await;
    assert!(head.starts_with("http/1.1 429") && head.contains("retry-after: 1"), "{head}");
    assert_eq!(status["reason"], "TooManyRequests");
    // Other users can send an equally large body.
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(1_000_000)}}).to_string();
    let padded = " ".repeat(LARGE - large.len()) + &large;
    let json = [("content-type", "application/json")];
    accepts(bob.send(http::Method::POST, MAPS, &json, padded.into()).await).unwrap();
    drop(held);
    eventually(SOON, async || accepts(alice.post(MAPS, &json!({"metadata": {"generateName": "m-"}})).await))
        .await
        .unwrap();
}
