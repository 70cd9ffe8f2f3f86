use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use authn::User;
use http_body_util::BodyExt as _;
use runtime::MetricRegistry;
use transport::accept::ConnectionLimits;
use transport::byte_budget::BudgetAccount;
use transport::long_running::{LongRunningKind, LongRunningRequests};

use super::*;

/// The bytes of a long-running forwarded response that is asked to end after these parts, and whether it looks complete.
async fn ended_after(end: EarlyEnd, parts: &[&'static str]) -> (String, bool) {
    let limits = ConnectionLimits::default();
    let requests: Arc<LongRunningRequests> =
        LongRunningRequests::new(&MetricRegistry::new(), &limits).unwrap();
    let kind = LongRunningKind { is_watch: true, is_proxied: true };
    let account = BudgetAccount::of(&User::named("alice"), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let running = requests.begin(&account, 1, kind, 0).unwrap();
    let (sender, receiver) = mpsc::channel(8);
    let mut body = Body::forwarded(receiver).long_running(Some(running), end);
    let mut received = String::new();
    for part in parts {
        let part = ForwardedPart::Frame(Frame::data(Bytes::from_static(part.as_bytes())));
        sender.send(part).await.unwrap();
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        received.push_str(std::str::from_utf8(&data).unwrap());
    }
    assert_eq!(requests.end_on_connections(1), [1]);
    // What the other server sends now is not forwarded.
    let part = ForwardedPart::Frame(Frame::data(Bytes::from_static(b"more\n")));
    sender.send(part).await.unwrap();
    let last = body.frame().await;
    assert!(last.as_ref().is_none_or(Result::is_err), "{last:?}");
    assert!(body.frame().await.is_none());
    (received, last.is_none())
}

#[tokio::test]
async fn a_forwarded_response_that_must_end_looks_complete_only_between_the_events_of_a_watch() {
    for (end, parts, is_complete) in [
        (EarlyEnd::AfterLine, ["{}\n", "{}\n"].as_slice(), true),
        (EarlyEnd::AfterLine, &[], true),
        (EarlyEnd::AfterLine, &["{}\n", "{"], false),
        (EarlyEnd::AfterLine, &["{}\n{", "}\n"], true),
        (EarlyEnd::Cut, &["{}\n"], false),
        (EarlyEnd::Cut, &[], false),
        (EarlyEnd::Complete, &["{}"], true),
    ] {
        assert_eq!(ended_after(end, parts).await, (parts.concat(), is_complete), "{end:?} {parts:?}");
    }
}
