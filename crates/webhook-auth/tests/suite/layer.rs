//! The layer and the extractor: responses by mode and token, and whether the body was read before.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::post;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use serde_json::{Value, json};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use webhook_auth::extract::{MAX_REVIEW, Refused, Review};
use webhook_auth::keys::KeyCache;
use webhook_auth::layer::{Authentication, Denied, ReviewToken, WebhookAuthLayer};
use webhook_auth::verify::MAX_TOKEN;
use webhook_auth::{AdmissionRequest, Counts, Identity, Mode, Pending, Reason, Rejection};

use crate::issuer::{Key, NOW, at, changed, claims, expected, key_set};

struct TestWebhook {
    key: Key,
    counts: Arc<Counts>,
    router: Router,
}

/// A webhook that responds with the uid of the request and the caller's subject.
async fn answer(review: Review<Value>) -> String {
    let subject = review.verified.map(|verified| verified.identity().subject().to_owned());
    format!("{} by {}", review.review["request"]["uid"], subject.unwrap_or_default())
}

/// A webhook that handles rejections itself: it denies the request in a successful response marked as [`Denied`].
async fn denying(review: Result<Review<Value>, Refused>) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("allowed: {}", review.is_ok())));
    if review.is_err() {
        response.extensions_mut().insert(Denied);
    }
    response
}

fn layer(key: &Key) -> WebhookAuthLayer {
    WebhookAuthLayer::new(expected(), KeyCache::fixed(key_set(&[key]))).unwrap().clock(|| at(NOW))
}

fn webhook(mode: Mode) -> TestWebhook {
    let key = Key::ec("k");
    let counts = Arc::<Counts>::default();
    let layer = layer(&key).mode(mode).counts(Arc::clone(&counts));
    let router = Router::new()
        .route("/review", post(answer))
        .route("/forgetful", post(async || "allowed"))
        .route("/careless", post(async |_: Result<Review<Value>, Refused>| "allowed"))
        .route("/denying", post(denying))
        .route_layer(layer);
    TestWebhook { key, counts, router }
}

fn review(group: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": group, "version": "v1", "kind": "Thing"},
            "resource": {"group": group, "version": "v1", "resource": "things"},
        },
    })
}

impl TestWebhook {
    async fn ask(
        &self,
        path: &str,
        authorization: Option<&str>,
        body: Body,
    ) -> (u16, String, Option<String>) {
        let mut request = Request::post(path);
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let challenge = response.headers().get("www-authenticate").map(|v| v.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap(), challenge)
    }

    /// The status for a token of group `token_for` and a request about `group`.
    async fn about(&self, token_for: &str, group: &str) -> u16 {
        let bearer = format!("Bearer {}", self.key.token(&claims(token_for)));
        self.ask("/review", Some(&bearer), Body::from(review(group).to_string())).await.0
    }
}

/// An empty body that records whether it was polled.
struct PolledBody(Arc<AtomicBool>);

impl http_body::Body for PolledBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.store(true, Ordering::SeqCst);
        Poll::Ready(None)
    }
}

#[tokio::test]
async fn request_with_a_valid_token_is_accepted() {
    let webhook = webhook(Mode::Require);
    let token = webhook.key.token(&claims("*"));
    for scheme in ["Bearer", "bearer", "BEARER", "Bearer "] {
        let value = format!("{scheme} {token}");
        let answer = webhook.ask("/review", Some(&value), Body::from(review("apps").to_string())).await;
        assert_eq!(answer, (200, "\"u\" by system:serviceaccount:kube-system:webhook-auth".to_owned(), None));
    }
    assert_eq!(webhook.counts.accepted(), 4);
    assert_eq!(webhook.counts.rejected_in_all(), 0);
}

#[tokio::test]
async fn missing_or_invalid_token_is_a_401_before_the_body_is_read() {
    let webhook = webhook(Mode::Require);
    let expired = webhook.key.token(&changed("*", |c| {
        c["exp"] = json!(NOW - 600);
        c["iat"] = json!(NOW - 1200);
    }));
    let expired = format!("Bearer {expired}");
    let long = format!("Bearer {}", "x".repeat(MAX_TOKEN + 65));
    let invalid = Some("Bearer error=\"invalid_token\"".to_owned());
    for (authorization, reason) in [
        (None, Reason::Missing),
        (Some("Basic dXNlcjpwYXNz"), Reason::Missing),
        (Some("Bearer"), Reason::Missing),
        (Some("Bearer "), Reason::Missing),
        (Some("Bearer x"), Reason::Malformed),
        (Some(expired.as_str()), Reason::Expired),
        (Some(long.as_str()), Reason::Oversize),
    ] {
        let read = Arc::new(AtomicBool::new(false));
        let before = webhook.counts.rejected(reason);
        let answer = webhook.ask("/review", authorization, Body::new(PolledBody(Arc::clone(&read)))).await;
        let challenge = if reason == Reason::Missing { Some("Bearer".to_owned()) } else { invalid.clone() };
        assert_eq!(answer, (401, String::new(), challenge), "{reason:?}");
        assert!(!read.load(Ordering::SeqCst), "{reason:?}");
        assert_eq!(webhook.counts.rejected(reason), before + 1);
    }
    assert_eq!(webhook.counts.accepted(), 0);
}

#[tokio::test]
async fn two_authorization_headers_are_rejected() {
    let webhook = webhook(Mode::Require);
    let value = HeaderValue::from_str(&format!("Bearer {}", webhook.key.token(&claims("*")))).unwrap();
    let request =
        Request::post("/review").header("authorization", value.clone()).header("authorization", value);
    let request = request.body(Body::from(review("").to_string())).unwrap();
    let response = webhook.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(webhook.counts.rejected(Reason::Malformed), 1);
}

#[tokio::test]
async fn review_of_a_group_that_the_token_does_not_attest_is_a_403() {
    let webhook = webhook(Mode::Require);
    assert_eq!(webhook.about("ninja.turtles.ai", "ninja.turtles.ai").await, 200);
    assert_eq!(webhook.about("ninja.turtles.ai", "").await, 403);
    assert_eq!(webhook.about("", "ninja.turtles.ai").await, 403);
    assert_eq!(webhook.about("*", "").await, 200);
    assert_eq!((webhook.counts.accepted(), webhook.counts.rejected(Reason::Group)), (2, 2));
    let text = webhook.counts.to_prometheus();
    assert!(text.contains("webhook_auth_accepted_total 2\n"), "{text}");
    assert!(text.contains("webhook_auth_rejected_total{reason=\"group\"} 2\n"), "{text}");
    assert!(text.contains("webhook_auth_rejected_total{reason=\"expired\"} 0\n"), "{text}");
}

#[tokio::test]
async fn malformed_review_is_a_400_and_oversized_body_a_413() {
    let webhook = webhook(Mode::Require);
    let bearer = format!("Bearer {}", webhook.key.token(&claims("apps")));
    let ask = async |body: Body| webhook.ask("/review", Some(&bearer), body).await.0;
    assert_eq!(ask(Body::from("{}")).await, 400);
    assert_eq!(ask(Body::from("nothing")).await, 400);
    let twice = review("apps").to_string().replacen("\"request\":{", "\"request\":{},\"request\":{", 1);
    assert_eq!(ask(Body::from(twice)).await, 400);
    assert_eq!(ask(Body::from(vec![b' '; MAX_REVIEW + 1])).await, 413);
}

#[tokio::test]
async fn observe_mode_accepts_all_requests_and_counts_rejections() {
    let webhook = webhook(Mode::Observe);
    let body = || Body::from(review("apps").to_string());
    let (status, text, _) = webhook.ask("/review", None, body()).await;
    assert_eq!((status, text.as_str()), (200, "\"u\" by "));
    assert_eq!(webhook.ask("/review", Some("Bearer x"), body()).await.0, 200);
    assert_eq!(webhook.about("ninja.turtles.ai", "apps").await, 200);
    assert_eq!(webhook.about("apps", "apps").await, 200);
    assert_eq!(webhook.ask("/forgetful", None, body()).await.0, 200);
    let rejected = |reason| webhook.counts.rejected(reason);
    assert_eq!((rejected(Reason::Missing), rejected(Reason::Malformed), rejected(Reason::Group)), (2, 1, 1));
    assert_eq!((webhook.counts.accepted(), webhook.counts.rejected_in_all()), (1, 4));
}

#[tokio::test]
async fn off_mode_accepts_all_requests_and_counts_none() {
    let webhook = webhook(Mode::Off);
    assert_eq!(webhook.ask("/review", Some("Bearer x"), Body::from(review("").to_string())).await.0, 200);
    assert_eq!(webhook.ask("/forgetful", None, Body::empty()).await.0, 200);
    assert_eq!(webhook.about("ninja.turtles.ai", "").await, 200);
    assert_eq!((webhook.counts.accepted(), webhook.counts.rejected_in_all()), (0, 0));
}

#[tokio::test]
async fn handler_that_does_not_check_the_group_is_a_500() {
    let webhook = webhook(Mode::Require);
    let bearer = format!("Bearer {}", webhook.key.token(&claims("*")));
    let answer = webhook.ask("/forgetful", Some(&bearer), Body::from(review("").to_string())).await;
    assert_eq!(answer, (500, String::new(), None));
    assert_eq!(webhook.counts.rejected(Reason::Unchecked), 1);
}

#[tokio::test]
async fn handler_that_ignores_a_failed_group_check_is_a_500() {
    let webhook = webhook(Mode::Require);
    let ask = async |group: &str| {
        let bearer = format!("Bearer {}", webhook.key.token(&claims(group)));
        webhook.ask("/careless", Some(&bearer), Body::from(review("apps").to_string())).await.0
    };
    assert_eq!(ask("apps").await, 200);
    assert_eq!(ask("ninja.turtles.ai").await, 500);
    let rejected = |reason| webhook.counts.rejected(reason);
    assert_eq!((rejected(Reason::Group), rejected(Reason::Disregarded)), (1, 1));
    assert_eq!(rejected(Reason::Unchecked), 0, "it did compare");
}

#[tokio::test]
async fn denial_after_a_failed_group_check_is_returned_unchanged() {
    let webhook = webhook(Mode::Require);
    let ask = async |group: &str| {
        let bearer = format!("Bearer {}", webhook.key.token(&claims(group)));
        webhook.ask("/denying", Some(&bearer), Body::from(review("apps").to_string())).await
    };
    assert_eq!(ask("apps").await, (200, "allowed: true".to_owned(), None));
    assert_eq!(ask("ninja.turtles.ai").await, (200, "allowed: false".to_owned(), None));
    let rejected = |reason| webhook.counts.rejected(reason);
    assert_eq!((rejected(Reason::Group), rejected(Reason::Disregarded)), (1, 0));
}

#[tokio::test]
async fn handler_without_the_authentication_layer_is_a_500() {
    let router: Router = Router::new().route("/review", post(answer));
    let request = Request::post("/review").body(Body::from(review("").to_string())).unwrap();
    assert_eq!(router.oneshot(request).await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn plain_tower_service_can_check_the_group_of_a_review() {
    let key = Key::ec("k");
    let service = service_fn(async |request: Request<String>| {
        let about = AdmissionRequest::from_review(request.body().as_bytes()).unwrap();
        let checked = Authentication::of(request.extensions()).unwrap().check(&about);
        let status = checked.map_or_else(|rejection| rejection.reason().status(), |_| 200);
        Ok::<_, Infallible>(Response::builder().status(status).body(String::new()).unwrap())
    });
    let mut service = layer(&key).layer(service);
    for (group, status) in [("apps", 200), ("", 403)] {
        let request = Request::post("/")
            .header("authorization", format!("Bearer {}", key.token(&claims("apps"))))
            .body(review(group).to_string())
            .unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
    }
}

/// A TokenReview that rejects with the given reason, if set.
struct Reviewer(Arc<Mutex<Option<Reason>>>);

impl ReviewToken for Reviewer {
    fn review<'a>(&'a self, _: &'a str, _: &'a Identity) -> Pending<'a, Result<(), Rejection>> {
        let says = *self.0.lock().unwrap();
        Box::pin(async move { says.map_or(Ok(()), |reason| Err(Rejection::new(reason, "so it says"))) })
    }
}

#[tokio::test]
async fn optional_token_review_can_reject_a_valid_token() {
    let key = Key::ec("k");
    let says = Arc::new(Mutex::new(None));
    let layer = layer(&key).review(Reviewer(Arc::clone(&says)));
    let router = Router::new().route("/review", post(answer)).route_layer(layer);
    for (answer, status) in [
        (None, StatusCode::OK),
        (Some(Reason::Reviewed), StatusCode::UNAUTHORIZED),
        (Some(Reason::ReviewUnavailable), StatusCode::SERVICE_UNAVAILABLE),
    ] {
        *says.lock().unwrap() = answer;
        let request = Request::post("/review")
            .header("authorization", format!("Bearer {}", key.token(&claims("*"))))
            .body(Body::from(review("").to_string()))
            .unwrap();
        assert_eq!(router.clone().oneshot(request).await.unwrap().status(), status);
    }
}

#[test]
fn modes_are_parsed_by_name_and_default_to_require() {
    assert_eq!("off".parse(), Ok(Mode::Off));
    assert_eq!("observe".parse(), Ok(Mode::Observe));
    assert_eq!("require".parse(), Ok(Mode::Require));
    assert!("on".parse::<Mode>().is_err());
    assert_eq!(Mode::default(), Mode::Require);
}
