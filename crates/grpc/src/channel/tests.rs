//! Errors of calls to several endpoints.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::{Channel, ChannelConfig, Retry};
use crate::GrpcEndpoint;

/// A message without fields.
#[derive(Clone, PartialEq, prost::Message)]
struct NoFields {}

/// The URL of a server that answers every call with the code Unavailable and this message.
async fn unavailable(message: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |_: Request<Incoming>| async move {
                let response = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", "14")
                    .header("grpc-message", message);
                Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
            });
            tokio::spawn(
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer),
            );
        }
    });
    url
}

/// The URL of a port that refuses connections.
async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn read(urls: &[&str]) -> String {
    let endpoints = urls.iter().map(|url| GrpcEndpoint::parse(url, None).unwrap()).collect();
    let channel = Channel::new(ChannelConfig::new(endpoints));
    let call =
        channel.unary::<_, NoFields>("/a.B/C", &NoFields {}, Retry::OtherEndpoints, Duration::from_secs(10));
    call.await.unwrap_err().message
}

#[tokio::test]
async fn an_endpoint_that_answered_explains_the_failure_and_not_one_that_cannot_be_reached() {
    let (answering, refusing) = (unavailable("no leader").await, refusing().await);
    assert_eq!(read(&[&answering, &refusing]).await, "no leader");
    assert_eq!(read(&[&refusing, &answering]).await, "no leader");
    let unreachable = read(&[&refusing, &refusing]).await;
    assert!(unreachable.starts_with(&format!("cannot connect to {refusing}: ")), "{unreachable}");
}
