//! Many idle connections do not exhaust file descriptors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conformance::client::{Trust, tls};
use conformance::{Problem, Result, Server, accepts, eventually};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::callers::{MAPS, SOON, metric};

/// 300 connections, which leaves a quarter of the descriptors for other uses.
const LIMITS: &str = "ulimit -Sn 100 && ulimit -Hn 400";

/// Opens a TLS connection from this local address.
async fn connect(authority: &str, from: &str, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
    let failed = |e: std::io::Error| Problem::at("a connection", e);
    let socket = TcpSocket::new_v4().map_err(failed)?;
    socket.bind(format!("{from}:0").parse().unwrap()).map_err(failed)?;
    let tcp = socket.connect(authority.parse().unwrap()).await.map_err(failed)?;
    let mut config = tls(Trust::Anything, None)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(failed)
}

/// An HTTP/2 connection that answered one request, and its end.
async fn http2(
    authority: &str,
    from: &str,
) -> (http2::SendRequest<Empty<Bytes>>, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = connect(authority, from, b"h2").await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let ends = tokio::spawn(connection);
    assert_eq!(get_livez(&mut sender, authority).await.unwrap(), 200);
    (sender, ends)
}

async fn get_livez(sender: &mut http2::SendRequest<Empty<Bytes>>, authority: &str) -> hyper::Result<u16> {
    let request = http::Request::get(format!("https://{authority}/livez")).body(Empty::new()).unwrap();
    let response = sender.send_request(request).await?;
    let code = response.status().as_u16();
    response.into_body().collect().await?;
    Ok(code)
}

#[tokio::test]
async fn idle_connections_are_closed_for_new_clients() {
    let server = Server::serve_after(LIMITS, &[]).await.unwrap();
    let admin = server.client().unwrap();
    let authority = admin.authority().to_owned();
    let mut watch = admin.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap();
    let (mut elsewhere, _ends) = http2(&authority, "127.0.0.2").await;
    // Many more connections than descriptors, all from one address and without requests.
    let flood: Vec<_> = (0..8)
        .map(|_| {
            let authority = authority.clone();
            tokio::spawn(async move {
                let mut idle = Vec::new();
                for _ in 0..100 {
                    idle.extend(connect(&authority, "127.0.0.1", b"http/1.1").await.ok());
                }
                std::future::pending::<()>().await;
            })
        })
        .collect();
    // New clients are served within seconds, repeatedly.
    for number in 0..10 {
        let asked = eventually(Duration::from_secs(10), async || {
            let map = json!({"metadata": {"generateName": format!("m{number}-")}});
            let client = server.client()?;
            let posted = tokio::time::timeout(Duration::from_secs(5), client.post(MAPS, &map)).await;
            accepts(posted.map_err(|_| Problem::new("no answer"))?)
        });
        asked.await.unwrap();
    }
    // A watch is not idle, and an address with a single connection keeps it.
    for _ in 0..10 {
        let event = watch.within(SOON).await.unwrap().unwrap();
        assert!(["ADDED", "BOOKMARK"].contains(&event["type"].as_str().unwrap()), "{event}");
    }
    assert_eq!(get_livez(&mut elsewhere, &authority).await.unwrap(), 200);
    assert_eq!(metric(&admin, "process_max_fds", "").await, Some(400.0));
    assert_eq!(metric(&admin, "apiserver_connections_limit", "").await, Some(300.0));
    assert!(metric(&admin, "apiserver_connections_open", "").await.unwrap() <= 300.0);
    eventually(SOON, async || match metric(&admin, "apiserver_connections_closed_total", "idle").await {
        Some(closed) if closed >= 100.0 => Ok(()),
        closed => Err(Problem::new(format!("{closed:?} connections were closed"))),
    })
    .await
    .unwrap();
    for task in flood {
        task.abort();
    }
}

/// With all other connections busy, the one accepted last is the only idle one.
#[tokio::test]
async fn new_clients_get_in_when_all_connections_are_busy() {
    let server = Server::serve_after(LIMITS, &[]).await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..245 {
        let watch = server.client().unwrap().events(&format!("{MAPS}?watch=1"), &[]).await.unwrap();
        assert_eq!(watch.code, 200);
        watches.push(watch);
    }
    for _ in 0..10 {
        accepts(server.client().unwrap().get("/api/v1/namespaces").await).unwrap();
    }
}

#[tokio::test]
async fn stalled_handshakes_are_closed_for_new_clients() {
    let server = Server::serve_after(LIMITS, &[]).await.unwrap();
    let admin = server.client().unwrap();
    let mut stalled = Vec::new();
    for _ in 0..600 {
        let connecting = TcpStream::connect(admin.authority().to_owned());
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(1), connecting).await {
            stalled.push(stream);
        }
    }
    for _ in 0..10 {
        let client = server.client().unwrap();
        let asked = tokio::time::timeout(Duration::from_secs(5), client.get("/api/v1/namespaces")).await;
        accepts(asked.expect("no answer")).unwrap();
    }
    assert!(metric(&admin, "apiserver_connections_closed_total", "handshake").await.unwrap() > 0.0);
    let failures = server.log().matches("accept failed").count();
    assert!(failures <= 2, "{failures} lines about failed accepts");
}

#[tokio::test]
async fn an_idle_http2_connection_gets_goaway_before_it_is_closed() {
    let server = Server::serve_after(LIMITS, &[]).await.unwrap();
    let authority = server.client().unwrap().authority().to_owned();
    let (oldest, ends) = http2(&authority, "127.0.0.1").await;
    // Just above 80 % of the connections, opened one after the other.
    let mut idle = Vec::new();
    for _ in 0..245 {
        idle.push(connect(&authority, "127.0.0.1", b"http/1.1").await.unwrap());
    }
    let ended = tokio::time::timeout(SOON, ends).await.expect("the connection is still open").unwrap();
    ended.expect("it ends as HTTP/2 connections should: with GOAWAY and without an error");
    drop(oldest);
}

#[tokio::test]
async fn connections_per_address_can_be_limited() {
    let server = Server::serve(&["--max-connections-per-address=8"]).await.unwrap();
    let admin = server.client().unwrap();
    let authority = admin.authority().to_owned();
    let mut open = Vec::new();
    let refused = loop {
        match connect(&authority, "127.0.0.1", b"http/1.1").await {
            Ok(stream) if open.len() < 20 => open.push(stream),
            Ok(_) => break false,
            Err(_) => break true,
        }
    };
    assert!(refused && open.len() <= 8, "{} connections", open.len());
    connect(&authority, "127.0.0.2", b"http/1.1").await.unwrap();
    // There is no such limit by default.
    let server = Server::serve(&[]).await.unwrap();
    let authority = server.client().unwrap().authority().to_owned();
    for _ in 0..20 {
        open.push(connect(&authority, "127.0.0.1", b"http/1.1").await.unwrap());
    }
}
