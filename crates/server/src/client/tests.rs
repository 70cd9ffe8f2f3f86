use std::sync::Arc;

use authn::InternalIdentity;
use http::Method;
use runtime::truncate_remote::MAX_TEXT;
use value::json;

use super::{LoopbackClient, read};
use crate::Ephemeral;

#[test]
fn undecodable_and_redirect_responses_are_internal_errors() {
    for (code, body) in [(200, r#"{"a":1}"#), (201, "[]"), (204, "")] {
        assert_eq!(read(code, body.as_bytes()), Ok(json::parse(body.as_bytes()).unwrap_or_default()));
    }
    for (code, body) in [(200, "<html>"), (200, "{"), (200, " "), (302, "{}"), (304, ""), (103, "{}")] {
        assert_eq!(read(code, body.as_bytes()).unwrap_err().code(), 500, "{code} {body}");
    }
}

#[test]
fn an_error_response_becomes_its_status_with_a_truncated_message() {
    let status = read(409, br#"{"reason":"Conflict","message":"no","details":{"name":"x"}}"#).unwrap_err();
    assert_eq!((status.code(), status.reason(), status.message()), (409, "Conflict", "no"));
    assert_eq!(read(404, b"<html>").unwrap_err().code(), 404);
    let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(read(500, long.as_bytes()).unwrap_err().message().len(), MAX_TEXT + "...".len());
}

#[tokio::test]
async fn requests_for_aggregated_servers_are_not_served_locally() {
    let server = Ephemeral::start().await.unwrap();
    let client = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    client.get("/api/v1/namespaces/default").await.unwrap();
    let elsewhere = client.elsewhere();
    assert_eq!(elsewhere.get("/api/v1/namespaces/default").await.unwrap_err().code(), 404);
    let map = json::parse(br#"{"metadata":{"name":"m"}}"#).unwrap();
    let posted = elsewhere.request(
        Method::POST,
        "/api/v1/namespaces/default/configmaps",
        "application/json",
        Some(&map),
    );
    assert_eq!(posted.await.unwrap_err().code(), 404);
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/m").await.unwrap_err().code(), 404);
    server.running.stop().await;
}
