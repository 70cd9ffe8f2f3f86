use http::HeaderMap;
use http::header::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::Endpoint;

#[test]
fn webhook_calls_are_retried_only_after_429_and_5xx_with_retry_after() {
    let answer = |status, after: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(after));
        }
        OutboundResponse { status, headers, body: Bytes::new() }
    };
    assert_eq!(retry_after(&answer(429, Some("1"))), Some(Duration::from_secs(1)));
    assert_eq!(retry_after(&answer(503, Some("0"))), Some(Duration::ZERO));
    assert_eq!(retry_after(&answer(503, None)), None);
    assert_eq!(retry_after(&answer(429, Some("soon"))), None);
    assert_eq!(retry_after(&answer(409, Some("1"))), None);
}

#[test]
fn webhook_redirects_are_followed_within_the_same_server_only() {
    let next = |status, location: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(location) = location {
            headers.insert(LOCATION, HeaderValue::from_static(location));
        }
        let answer = OutboundResponse { status, headers, body: Bytes::new() };
        let asked = PathAndQuery::from_static("/a/b?timeout=5s");
        sent_on(&answer, "https://hooks.example:8443", Some(&asked)).map(|path| path.to_string())
    };
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(next(status, Some("/other?x=y")).as_deref(), Some("/other?x=y"), "{status}");
        assert_eq!(next(status, None), None);
    }
    for status in [200, 201, 300, 304, 305, 400, 500] {
        assert_eq!(next(status, Some("/other")), None, "{status}");
    }
    assert_eq!(next(307, Some("c")).as_deref(), Some("/a/c"));
    assert_eq!(next(307, Some("https://hooks.example:8443/c")).as_deref(), Some("/c"));
    assert_eq!(next(307, Some("https://hooks.example:8443")).as_deref(), Some("/"));
    for elsewhere in [
        "https://hooks.example:84431/c",
        "https://hooks.example/c",
        "https://hooks.example:8443.evil.example/c",
        "http://hooks.example:8443/c",
        "//evil.example/c",
        "https://evil.example/c",
        "",
    ] {
        assert_eq!(next(307, Some(elsewhere)), None, "{elsewhere}");
    }
}

/// A server that answers every request with these bytes, and the number of requests that it has received.
async fn server(response: &'static str) -> (OutboundTarget, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/review", listener.local_addr().unwrap()).parse().unwrap();
    let requests = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counter = std::sync::Arc::clone(&counter);
            tokio::spawn(async move {
                let mut read = Vec::new();
                while !read.ends_with(b"{}") {
                    if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let _ = stream.write_all(response.as_bytes()).await;
            });
        }
    });
    (OutboundTarget::new(Endpoint::new(url)).unwrap(), requests)
}

#[tokio::test]
async fn a_wait_beyond_the_time_limit_ends_a_call_as_its_caller_chooses() {
    let busy = "HTTP/1.1 429 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (target, requests) = server(busy).await;
    let request = || OutboundRequest::post_json("{}", Duration::from_secs(2));
    let returned = call_webhook(&target, request(), LongRetry::ReturnResponse).await.unwrap();
    assert_eq!(returned.status, 429);
    let failed = call_webhook(&target, request(), LongRetry::WaitUntilLimit).await.unwrap_err();
    assert_eq!((failed.kind, failed.message.as_str()), (FailureKind::Timeout, "context deadline exceeded"));
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 2, "neither call is repeated");
}

#[tokio::test]
async fn a_call_is_repeated_at_most_ten_times() {
    let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for long_retry in [LongRetry::WaitUntilLimit, LongRetry::ReturnResponse] {
        let (target, requests) = server(busy).await;
        let request = OutboundRequest::post_json("{}", Duration::from_mins(1));
        let returned = call_webhook(&target, request, long_retry).await.unwrap();
        assert_eq!(returned.status, 503);
        assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 1 + MAX_RETRIES, "{long_retry:?}");
    }
}
