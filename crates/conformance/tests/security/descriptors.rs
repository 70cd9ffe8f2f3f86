//! Many connections, idle or busy, do not exhaust file descriptors, and many watches do not exhaust memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use conformance::client::{Trust, tls};
use conformance::{Problem, Result, Server, accepts, eventually};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::callers::{MAPS, SOON, alice_and_bob, metric};

/// 300 connections, which leaves a quarter of the descriptors for other uses, and an eighth for proxied long-running requests.
pub(crate) const LIMITS: &str = "ulimit -Sn 100 && ulimit -Hn 480";

/// Opens a TLS connection from this local address.
pub(crate) async fn connect(authority: &str, from: &str, protocol: &[u8]) -> Result<TlsStream<TcpStream>> {
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
pub(crate) async fn http2(
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
    assert_eq!(metric(&admin, "process_max_fds", "").await, Some(480.0));
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
async fn new_clients_get_in_when_most_connections_are_busy() {
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

async fn read_to_end(mut watch: conformance::client::Events) -> Result<()> {
    while watch.next().await?.is_some() {}
    Ok(())
}

/// All connections have a watch of one user, and ended watches are started again at once.
#[tokio::test]
async fn watches_of_one_user_on_all_connections_do_not_lock_others_out() {
    let server = Server::serve_after(LIMITS, &[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    let path = format!("{MAPS}?watch=1");
    let mut own = bob.events(&path, &[]).await.unwrap();
    let oldest = tokio::spawn(read_to_end(alice.events(&path, &[]).await.unwrap()));
    let started = Arc::new(AtomicUsize::new(0));
    let mut flood = JoinSet::new();
    for _ in 0..320 {
        let (alice, path, started) = (alice.as_token(alice.token()), path.clone(), Arc::clone(&started));
        flood.spawn(async move {
            loop {
                if let Ok(watch) = alice.events(&path, &[]).await {
                    started.fetch_add(1, Ordering::SeqCst);
                    let _ = read_to_end(watch).await;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    eventually(SOON, async || match started.load(Ordering::SeqCst) {
        290.. => Ok(()),
        started => Err(Problem::new(format!("{started} watches have started"))),
    })
    .await
    .unwrap();
    for _ in 0..10 {
        let (anonymous, bob) = (admin.as_token(None), bob.as_token(bob.token()));
        // The connection may be accepted and closed again as idle, before the request arrives.
        let served = eventually(Duration::from_secs(10), async || {
            let asked = async {
                assert_eq!(anonymous.get("/livez").await?.code, 200);
                accepts(bob.post(MAPS, &json!({"metadata": {"generateName": "b-"}})).await)
            };
            tokio::time::timeout(Duration::from_secs(10), asked)
                .await
                .map_err(|_| Problem::new("no answer"))?
        });
        served.await.unwrap();
    }
    let ended = tokio::time::timeout(SOON, oldest).await.expect("the oldest watch has not ended").unwrap();
    ended.expect("a watch ends without an error");
    // The watch of a user that has few goes on.
    for _ in 0..10 {
        assert_eq!(own.within(SOON).await.unwrap().unwrap()["type"], "ADDED");
    }
    flood.shutdown().await;
    let ended = metric(&admin, "apiserver_long_running_requests_ended_total", "connections").await;
    assert!(ended.unwrap() > 0.0);
    let lines = server.log().matches("too many long-running requests").count();
    assert!((1..=8).contains(&lines), "{lines} lines about ended watches");
}

/// Starts a watch on an HTTP/2 connection, with further parameters.
pub(crate) async fn watch_on(
    sender: &mut http2::SendRequest<Empty<Bytes>>,
    authority: &str,
    token: &str,
    further: &str,
) -> http::Response<Incoming> {
    let request = http::Request::get(format!("https://{authority}{MAPS}?watch=1{further}"))
        .header("authorization", format!("Bearer {token}"));
    let response = sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

/// A few HTTP/2 connections carry many watches, which take memory.
#[tokio::test]
async fn watches_on_few_connections_are_limited() {
    // 46 connections, each for 32 watches.
    const LIMIT: f64 = 46.0 * 32.0;
    let server = Server::serve_after("ulimit -Sn 100 && ulimit -Hn 126", &[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    let mut own = bob.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap();
    let authority = admin.authority().to_owned();
    let mut connections = Vec::new();
    let mut watches = Vec::new();
    for _ in 0..16 {
        let (mut sender, ends) = http2(&authority, "127.0.0.1").await;
        for _ in 0..95 {
            watches.push(watch_on(&mut sender, &authority, alice.token().unwrap(), "").await);
        }
        connections.push((sender, ends));
    }
    assert_eq!(metric(&admin, "apiserver_long_running_requests_limit", "").await, Some(LIMIT));
    let running = eventually(SOON, async || {
        match metric(&admin, "apiserver_longrunning_requests", "resource=\"configmaps\"").await {
            Some(running) if running <= LIMIT * 0.95 + 1.0 => Ok(running),
            running => Err(Problem::new(format!("{running:?} watches run"))),
        }
    });
    assert!(running.await.unwrap() >= LIMIT * 0.9);
    // The oldest end first, and as complete responses.
    let mut later = watches.split_off(20);
    for watch in watches {
        let ended = tokio::time::timeout(SOON, watch.into_body().collect()).await;
        ended.expect("an old watch goes on").expect("a watch ends without an error");
    }
    accepts(bob.post(MAPS, &json!({"metadata": {"name": "news"}})).await).unwrap();
    while own.within(SOON).await.unwrap().unwrap()["object"]["metadata"]["name"] != "news" {}
    let mut newest = later.pop().unwrap().into_body();
    let mut events = String::new();
    while !events.contains("\"news\"") {
        let frame = tokio::time::timeout(SOON, newest.frame()).await.expect("a new watch has no event");
        events.push_str(&String::from_utf8_lossy(&frame.unwrap().unwrap().into_data().unwrap()));
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
    let failures = server.log().matches("cannot accept a connection").count();
    assert!(failures <= 2, "{failures} lines about failed accepts");
}

/// The limit of a running process can be lower than the number of files that it has open.
#[tokio::test]
async fn failed_accepts_are_logged_rarely() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let authority = admin.authority().to_owned();
    // The only way to ask while no connection is accepted.
    let (mut open, _ends) = http2(&authority, "127.0.0.1").await;
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let set_limit = |current| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap()
    };
    let before = set_limit(Some(3));
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let client = admin.as_token(None);
            tokio::spawn(async move { client.get("/livez").await.map(|answer| answer.code) })
        })
        .collect();
    let errors = eventually(SOON, async || {
        let page = metrics_on(&mut open, &authority).await.map_err(|e| Problem::at("/metrics", e))?;
        let line = page.lines().find_map(|line| line.strip_prefix("apiserver_accept_errors_total "));
        match line.and_then(|count| count.parse::<f64>().ok()) {
            Some(errors) if errors >= 100.0 => Ok(errors),
            errors => Err(Problem::new(format!("{errors:?} accepts have failed"))),
        }
    });
    errors.await.unwrap();
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("cannot accept a connection")).collect();
    assert!((1..=4).contains(&lines.len()), "{} lines about failed accepts", lines.len());
    assert!(lines[0].contains("Too many open files"), "{}", lines[0]);
    set_limit(before.current);
    for client in waiting {
        let code = tokio::time::timeout(SOON, client).await.expect("no answer").unwrap().unwrap();
        assert_eq!(code, 200);
    }
}

/// The metrics, on an open connection.
async fn metrics_on(sender: &mut http2::SendRequest<Empty<Bytes>>, authority: &str) -> hyper::Result<String> {
    let request = http::Request::get(format!("https://{authority}/metrics"))
        .header("authorization", "Bearer admintoken");
    let response = sender.send_request(request.body(Empty::new()).unwrap()).await?;
    let page = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&page).into_owned())
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
