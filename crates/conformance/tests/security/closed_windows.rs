//! HTTP/2 clients that open no flow-control window, so that they never receive the body of a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use conformance::{Problem, Result, Server, accepts, eventually};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::callers::{MAPS, SOON, alice_and_bob, metric};
use crate::descriptors::{LIMITS, connect};

/// More than the limit of 300 connections.
const CLIENTS: usize = 320;

/// A connection with an answered request whose body cannot be sent.
struct ClosedWindow {
    ends: JoinHandle<hyper::Result<()>>,
    _sender: http2::SendRequest<Empty<Bytes>>,
    _response: http::Response<Incoming>,
}

/// Sends an unauthenticated request whose response has a body, on a new connection.
async fn closed_window(authority: &str) -> Result<ClosedWindow> {
    let failed = |error: hyper::Error| Problem::at("a connection without windows", error);
    let stream = connect(authority, "127.0.0.1", b"h2").await?;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let ends = tokio::spawn(connection);
    let request = http::Request::get(format!("https://{authority}/livez")).body(Empty::new());
    let response = sender.send_request(request.unwrap()).await.map_err(failed)?;
    Ok(ClosedWindow { ends, _sender: sender, _response: response })
}

#[tokio::test]
async fn unauthenticated_clients_that_open_no_window_keep_no_connections_and_end_no_watches() {
    let server = Server::serve_after(LIMITS, &[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    let authority = admin.authority().to_owned();
    let mut watches = Vec::new();
    for client in [&alice, &bob] {
        for _ in 0..10 {
            watches.push(client.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap());
        }
    }
    let (answered, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut flood = JoinSet::new();
    for _ in 0..CLIENTS {
        let (authority, answered, closed) = (authority.clone(), Arc::clone(&answered), Arc::clone(&closed));
        flood.spawn(async move {
            loop {
                if let Ok(held) = closed_window(&authority).await {
                    answered.fetch_add(1, Ordering::SeqCst);
                    let _ = held.ends.await;
                    closed.fetch_add(1, Ordering::SeqCst);
                }
                tokio::task::yield_now().await;
            }
        });
    }
    eventually(SOON, async || match (answered.load(Ordering::SeqCst), closed.load(Ordering::SeqCst)) {
        (CLIENTS.., 1..) => Ok(()),
        (answered, closed) => Err(Problem::new(format!("{answered} were answered, {closed} closed"))),
    })
    .await
    .unwrap();
    for _ in 0..10 {
        let bob = bob.as_token(bob.token());
        let served = eventually(SOON, async || {
            let map = json!({"metadata": {"generateName": "b-"}});
            let posted = tokio::time::timeout(Duration::from_secs(10), bob.post(MAPS, &map)).await;
            accepts(posted.map_err(|_| Problem::new("no answer"))?)
        });
        served.await.unwrap();
    }
    for watch in &mut watches {
        for _ in 0..10 {
            let event = watch.within(SOON).await.unwrap().expect("the watch of a user has ended");
            assert_eq!(event["type"], "ADDED", "{event}");
        }
    }
    flood.shutdown().await;
    let ended = metric(&admin, "apiserver_long_running_requests_ended_total", "").await;
    assert!(ended.unwrap_or(0.0) < 1.0, "watches were ended");
    assert!(metric(&admin, "apiserver_connections_closed_total", "idle").await.unwrap() >= 1.0);
}
