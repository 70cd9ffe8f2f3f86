//! Webhooks of aggregated API servers, which are called through this server: those whose service is `kubernetes` in `default`.
//!
//! The front proxy's headers identify the API server to the aggregated one. A token would be useless: this server would receive it
//! first, and it does not accept tokens for another audience.

use std::time::Instant;

use ::admission::AdmissionFuture;
use ::admission::webhook::{OutgoingReview, TransportError, WebhookEndpoint, WebhookReply};
use api::field::quote;
use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use heavy_lane::Effort;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Response};
use outbound::{AnswerLimit, WEBHOOK_AGENT, max_answer_to};

use super::{Loopback, WebhookAddress, go_seconds, time_left};
use crate::body::Body;
use crate::call::RequestBody;
use crate::pipeline::{self, InternalRequest};

/// Whether an endpoint is this server's own service.
pub(super) fn is_own_service(endpoint: &WebhookEndpoint) -> bool {
    matches!(endpoint, WebhookEndpoint::Service { namespace, name, port: 443, .. } if namespace == "default" && name == "kubernetes")
}

/// Sends a review to the aggregated API server that serves the path.
pub(super) async fn send_review(
    loopback: &Loopback,
    answers: &AnswerLimit,
    outgoing: OutgoingReview<'_>,
    located: &WebhookAddress,
) -> Result<WebhookReply, TransportError> {
    let limit = time_left(&outgoing, Instant::now());
    let target = format!("{}?timeout={}", located.path, go_seconds(limit));
    let failed = |why: &str| {
        TransportError::Failed(format!("Post {}: {why}", quote(&format!("{}{target}", located.origin))))
    };
    let state = loopback.server("the server is not ready").map_err(|status| failed(status.message()))?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(USER_AGENT, HeaderValue::from_static(WEBHOOK_AGENT));
    let caller = Caller::internal(InternalIdentity::ApiServer);
    let longest = max_answer_to(outgoing.body.len());
    // Only an aggregated server may answer: no path of this server answers reviews, and a call to itself could recurse without end.
    let body = RequestBody::Elsewhere(Bytes::from(outgoing.body));
    let request = InternalRequest {
        caller,
        method: Method::POST,
        target: &target,
        headers,
        body,
        effort: Effort::default(),
    };
    // Boxed, because the pipeline runs admission: the type of this future would contain itself.
    let asked: AdmissionFuture<'_, Response<Body>> = Box::pin(pipeline::internal(&state, request));
    let exchange = async {
        let (parts, body) = asked.await.into_parts();
        let body = answers.read(body, longest).await.map_err(|error| failed(&error.to_string()))?;
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        heavy_lane::enter_lane(body.len()).await;
        Ok(WebhookReply { status: parts.status.as_u16(), content_type, body: body.to_vec() })
    };
    tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| Err(failed("context deadline exceeded")))
}
