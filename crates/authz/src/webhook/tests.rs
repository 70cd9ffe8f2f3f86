//! Tests of webhook calls: caching, sharing, retries, and the meaning of responses.

use std::collections::VecDeque;
use std::sync::Mutex;

use expect_test::{Expect, expect};

use super::*;
use crate::conditions::{AuthorizerMatchCondition, ConditionInput};
use crate::observe::NoObserver;
use crate::{Authorizer, AuthorizerChain, ChainStep, Denial, SelectorAttributes};

/// Responds from a list and records reviews and pauses. The test advances the clock.
struct Fake {
    answers: Mutex<VecDeque<Result<WebhookResponse, SendError>>>,
    received: Mutex<Vec<String>>,
    paused: Mutex<Vec<Duration>>,
    now: Mutex<Instant>,
    hold: Option<tokio::sync::Semaphore>,
}

impl Fake {
    fn new(answers: impl IntoIterator<Item = Result<WebhookResponse, SendError>>) -> Arc<Self> {
        Arc::new(Fake {
            answers: Mutex::new(answers.into_iter().collect()),
            received: Mutex::default(),
            paused: Mutex::default(),
            now: Mutex::new(Instant::now()),
            hold: None,
        })
    }

    fn calls(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    fn pass(&self, seconds: u64) {
        *self.now.lock().unwrap() += Duration::from_secs(seconds);
    }
}

impl ReviewTransport for Fake {
    fn send<'a>(&'a self, review: &'a [u8]) -> AuthorizationFuture<'a, Result<WebhookResponse, SendError>> {
        self.received.lock().unwrap().push(String::from_utf8(review.to_vec()).unwrap());
        let answer = self.answers.lock().unwrap().pop_front().unwrap();
        Box::pin(async move {
            if let Some(hold) = &self.hold {
                hold.acquire().await.unwrap().forget();
            }
            answer
        })
    }

    fn pause(&self, how_long: Duration) -> AuthorizationFuture<'_, ()> {
        self.paused.lock().unwrap().push(how_long);
        Box::pin(async {})
    }

    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn ok(body: &str) -> Result<WebhookResponse, SendError> {
    code(200, "application/json", body)
}

#[expect(clippy::unnecessary_wraps, reason = "a sender's result")]
fn code(status: u16, content_type: &str, body: &str) -> Result<WebhookResponse, SendError> {
    Ok(WebhookResponse {
        status,
        content_type: content_type.to_owned(),
        body: body.as_bytes().to_vec(),
        ..WebhookResponse::default()
    })
}

/// A response with a complete review that has this status.
fn review(status: &str) -> Result<WebhookResponse, SendError> {
    let typed = r#""apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview""#;
    ok(&format!(r#"{{{typed},"status":{status},"more":1}}"#))
}

fn allow() -> Result<WebhookResponse, SendError> {
    review(r#"{"allowed":true,"reason":"yes"}"#)
}

fn deny() -> Result<WebhookResponse, SendError> {
    review(r#"{"denied":true,"reason":"no"}"#)
}

fn configuration() -> WebhookConfiguration {
    WebhookConfiguration {
        authorized_ttl: Some(Duration::from_mins(5)),
        unauthorized_ttl: Some(Duration::from_secs(30)),
        timeout: Duration::from_secs(3),
        version: SubjectAccessReviewVersion::V1,
        failure_policy: FailurePolicy::NoOpinion,
        kubeconfig: "/k".into(),
        conditions: Conditions::default(),
    }
}

fn webhook(sender: &Arc<Fake>, configuration: &WebhookConfiguration) -> WebhookAuthorizer {
    WebhookAuthorizer::new("wh", configuration, sender.clone(), Arc::new(NoObserver))
}

fn alice() -> User {
    let mut user = User::named("alice").in_groups(["devs"]);
    user.uid = "7".into();
    user.extra.insert("scopes".into(), vec!["a".into()]);
    user
}

fn pods() -> AuthorizationAttributes {
    AuthorizationAttributes::resource("list", "", "pods").in_namespace("prod")
}

#[test]
fn subject_access_review_carries_user_and_request_attributes() {
    let sender = Fake::new([allow(), allow(), allow()]);
    let v1 = webhook(&sender, &configuration());
    let beta = webhook(
        &sender,
        &WebhookConfiguration { version: SubjectAccessReviewVersion::V1Beta1, ..configuration() },
    );
    let mut attributes = pods();
    attributes.labels = SelectorAttributes {
        requirements: vec![crate::Requirement {
            key: "app".into(),
            operator: crate::SelectorOperator::Exists,
            values: [].into(),
        }],
        error: None,
    };
    run(v1.decide(&alice(), &attributes));
    run(beta.decide(&User::named("bob").in_groups(["g"]), &AuthorizationAttributes::path("get", "/healthz")));
    let received = sender.received.lock().unwrap().join("\n");
    expect![[r#"
        {"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{"extra":{"scopes":["a"]},"groups":["devs"],"resourceAttributes":{"labelSelector":{"requirements":[{"key":"app","operator":"Exists"}]},"namespace":"prod","resource":"pods","verb":"list","version":"*"},"uid":"7","user":"alice"},"status":{"allowed":false}}
        {"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","metadata":{},"spec":{"group":["g"],"nonResourceAttributes":{"path":"/healthz","verb":"get"},"user":"bob"},"status":{"allowed":false}}"#]]
    .assert_eq(&received);
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at its callers")]
fn means(answer: Result<WebhookResponse, SendError>, expected: &Expect) {
    let answers: Vec<_> = (0..5).map(|_| answer.clone()).collect();
    let sender = Fake::new(answers);
    let answer = run(webhook(&sender, &configuration()).decide(&alice(), &pods()));
    let error = answer.error.map(|e| format!(", error {e}")).unwrap_or_default();
    expected.assert_eq(&format!(
        "{}, reason {:?}{error}, calls {}",
        answer.decision.label(),
        answer.reason.to_string(),
        sender.calls()
    ));
}

#[test]
fn webhook_status_maps_to_allow_deny_or_no_opinion() {
    means(allow(), &expect![[r#"allowed, reason "yes", calls 1"#]]);
    means(deny(), &expect![[r#"denied, reason "no", calls 1"#]]);
    means(review(r#"{"allowed":false,"reason":"?"}"#), &expect![[r#"no-opinion, reason "?", calls 1"#]]);
    means(
        review(r#"{"allowed":true,"denied":true,"reason":"both"}"#),
        &expect![[
            r#"denied, reason "both", error webhook subject access review returned both allow and deny response, calls 1"#
        ]],
    );
    means(
        ok(
            "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nstatus: {allowed: true, reason: in YAML}",
        ),
        &expect![[r#"allowed, reason "in YAML", calls 1"#]],
    );
}

#[test]
fn malformed_webhook_response_or_timeout_is_an_error_without_opinion() {
    means(
        ok(r#"{"status": {"allowed": "#),
        &expect![[
            r#"no-opinion, reason "", error couldn't get version/kind; json parse error: unexpected end of JSON input, calls 1"#
        ]],
    );
    means(
        ok(""),
        &expect![[
            r#"no-opinion, reason "", error 0-length response with status code: 200 and content type: application/json, calls 1"#
        ]],
    );
    means(
        ok("\"x\""),
        &expect![[
            r#"no-opinion, reason "", error couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }, calls 1"#
        ]],
    );
    means(
        ok(r#"{"apiVersion":"v1","kind":"Pod"}"#),
        &expect![[
            r#"no-opinion, reason "", error converting (v1.Pod) to (v1.SubjectAccessReview): unknown conversion, calls 1"#
        ]],
    );
    means(
        ok(r#"{"apiVersion":"authorization.k8s.io/v7","kind":"SubjectAccessReview"}"#),
        &expect![[
            r#"no-opinion, reason "", error no kind "SubjectAccessReview" is registered for version "authorization.k8s.io/v7" in scheme "k8s.io/client-go/kubernetes/scheme/register.go:84", calls 1"#
        ]],
    );
    means(
        review(r#"{"allowed":"true"}"#),
        &expect![[
            r#"no-opinion, reason "", error json: cannot unmarshal string into Go struct field SubjectAccessReviewStatus.status.allowed of type bool, calls 1"#
        ]],
    );
    means(
        ok("hello"),
        &expect![[
            r#"no-opinion, reason "", error couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }, calls 1"#
        ]],
    );
    means(
        Err(SendError::Timeout("context deadline exceeded".to_owned())),
        &expect![[r#"no-opinion, reason "", error context deadline exceeded, calls 1"#]],
    );
}

#[test]
fn webhook_response_without_a_decision_follows_the_failure_policy() {
    const TYPED: &str = r#""apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview""#;
    let deny = WebhookConfiguration { failure_policy: FailurePolicy::Deny, ..configuration() };
    for (body, why) in [
        ("{}".to_owned(), "apiVersion and kind are missing"),
        (r#"{"status":{"allowed":true}}"#.to_owned(), "apiVersion and kind are missing"),
        (r#"{"kind":"SubjectAccessReview","status":{"allowed":true}}"#.to_owned(), "apiVersion is missing"),
        (
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"","status":{"allowed":true}}"#.to_owned(),
            "kind is missing",
        ),
        (format!("{{{TYPED}}}"), "status is missing"),
        (format!(r#"{{{TYPED},"status":null}}"#), "status is missing"),
        (format!(r#"{{{TYPED},"status":{{}}}}"#), "status.allowed is missing"),
        (format!(r#"{{{TYPED},"status":{{"allowed":null,"reason":"x"}}}}"#), "status.allowed is missing"),
        (
            r#"{"apiVersion":"v1","kind":"Status","status":"Success"}"#.to_owned(),
            "it is a Status and has no decision",
        ),
    ] {
        for (policy, decision) in [(&configuration(), Decision::NoOpinion), (&deny, Decision::Deny)] {
            let sender = Fake::new([ok(&body)]);
            let answer = run(webhook(&sender, policy).decide(&alice(), &pods()));
            assert_eq!(answer.decision, decision, "{body}");
            // As in kube-apiserver, a response without a decision means no opinion and is not an error.
            if decision == Decision::NoOpinion && !body.contains(r#""allowed":true"#) {
                assert_eq!(answer.error, None, "{body}");
                continue;
            }
            let error = answer.error.unwrap_or_default();
            assert!(
                error.starts_with("the webhook's response is malformed: ") && error.contains(why),
                "{error}"
            );
        }
    }
    // A deny counts even without apiVersion and kind.
    let sender = Fake::new([ok(r#"{"status":{"denied":true,"reason":"no"}}"#)]);
    let answer = run(webhook(&sender, &configuration()).decide(&alice(), &pods()));
    assert_eq!((answer.decision, answer.error), (Decision::Deny, None));
}

#[test]
fn webhook_call_is_retried_only_after_transient_errors() {
    means(
        code(500, "text/plain", "boom\n"),
        &expect![[
            r#"no-opinion, reason "", error an error on the server ("boom") has prevented the request from succeeding, calls 5"#
        ]],
    );
    means(
        code(429, "application/json", "{}"),
        &expect![[
            r#"no-opinion, reason "", error the server has received too many requests and has asked us to try again later, calls 5"#
        ]],
    );
    means(
        code(503, "text/plain", "x"),
        &expect![[
            r#"no-opinion, reason "", error the server is currently unable to handle the request, calls 1"#
        ]],
    );
    means(
        code(504, "text/plain", "x"),
        &expect![[
            r#"no-opinion, reason "", error the server was unable to return a response in the time allotted, but may still be processing the request, calls 5"#
        ]],
    );
    means(
        code(404, "text/plain", "x"),
        &expect![[
            r#"no-opinion, reason "", error the server could not find the requested resource, calls 1"#
        ]],
    );
    means(
        code(403, "application/json", r#"{"apiVersion":"v1","kind":"Status","message":"webhook refused"}"#),
        &expect![[r#"no-opinion, reason "", error webhook refused, calls 1"#]],
    );
    let sender = Fake::new([code(500, "", ""), Err(SendError::Reset("reset".to_owned())), allow()]);
    assert_eq!(run(webhook(&sender, &configuration()).decide(&alice(), &pods())).decision, Decision::Allow);
    assert_eq!(*sender.paused.lock().unwrap(), [Duration::from_millis(500), Duration::from_millis(750)]);
}

#[test]
fn failure_policy_deny_denies_when_the_webhook_fails() {
    let deny = WebhookConfiguration { failure_policy: FailurePolicy::Deny, ..configuration() };
    let sender = Fake::new([ok("")]);
    let answer = run(webhook(&sender, &deny).decide(&alice(), &pods()));
    assert_eq!(answer.decision, Decision::Deny);
    assert!(answer.error.is_some());
}

#[test]
fn webhook_error_is_a_500_unless_a_later_authorizer_allows() {
    let caller = authn::Caller::internal(authn::InternalIdentity::Scheduler);
    let steps = |last| {
        let sender = Fake::new([code(404, "", "")]);
        let webhook = Authorizer::Webhook(Arc::new(webhook(&sender, &configuration())));
        let step = |name: &str, authorizer| ChainStep { name: name.into(), authorizer };
        AuthorizerChain::new(vec![step("wh", webhook), step("last", last)]).unwrap()
    };
    let refused = run(steps(Authorizer::AlwaysDeny).authorize(&caller, pods())).unwrap_err();
    let error = "the server could not find the requested resource".to_owned();
    assert_eq!(refused, Denial::Failed { error });
    assert!(run(steps(Authorizer::AlwaysAllow).authorize(&caller, pods())).is_ok());
}

#[test]
fn webhook_decisions_are_cached_for_the_configured_ttl() {
    let sender = Fake::new([allow(), deny(), deny(), allow()]);
    let webhook = webhook(&sender, &configuration());
    let ask = |name: &str| {
        run(webhook.decide(&User::named(name), &pods()));
        sender.calls()
    };
    assert_eq!([ask("alice"), ask("alice"), ask("bob"), ask("bob")], [1, 1, 2, 2]);
    sender.pass(29);
    assert_eq!([ask("alice"), ask("bob")], [2, 2]);
    sender.pass(1);
    assert_eq!([ask("alice"), ask("bob")], [2, 3]);
    sender.pass(270);
    assert_eq!(ask("alice"), 4);
}

#[test]
fn failures_and_long_requests_are_not_cached_and_caching_can_be_disabled() {
    let sender = Fake::new([ok(""), allow(), allow(), allow()]);
    let cached = webhook(&sender, &configuration());
    run(cached.decide(&alice(), &pods()));
    run(cached.decide(&alice(), &pods()));
    assert_eq!(sender.calls(), 2);
    let long = pods().named("x".repeat(10_000));
    run(cached.decide(&alice(), &long));
    run(cached.decide(&alice(), &long));
    assert_eq!(sender.calls(), 4);
    let off = WebhookConfiguration { authorized_ttl: None, ..configuration() };
    let sender = Fake::new([allow(), allow()]);
    let uncached = webhook(&sender, &off);
    run(uncached.decide(&alice(), &pods()));
    run(uncached.decide(&alice(), &pods()));
    assert_eq!(sender.calls(), 2);
}

#[test]
fn identical_concurrent_requests_share_one_webhook_call() {
    let mut fake = Arc::into_inner(Fake::new([allow(), deny()])).unwrap();
    fake.hold = Some(tokio::sync::Semaphore::new(0));
    let sender = Arc::new(fake);
    let webhook = Arc::new(webhook(&sender, &configuration()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let ask = |name: &'static str| {
            let webhook = webhook.clone();
            tokio::spawn(async move { webhook.decide(&User::named(name), &pods()).await.decision })
        };
        let same = [ask("alice"), ask("alice"), ask("alice")];
        let other = ask("bob");
        while sender.calls() < 2 {
            tokio::task::yield_now().await;
        }
        sender.hold.as_ref().unwrap().add_permits(2);
        for answer in same {
            assert_eq!(answer.await.unwrap(), Decision::Allow);
        }
        assert_eq!(other.await.unwrap(), Decision::Deny);
        assert_eq!(sender.calls(), 2);
    });
}

#[test]
fn a_waiting_request_repeats_the_webhook_call_when_the_first_is_canceled() {
    let mut fake = Arc::into_inner(Fake::new([deny(), allow()])).unwrap();
    fake.hold = Some(tokio::sync::Semaphore::new(0));
    let sender = Arc::new(fake);
    let webhook = Arc::new(webhook(&sender, &configuration()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let ask = || {
            let webhook = webhook.clone();
            tokio::spawn(async move { webhook.decide(&alice(), &pods()).await.decision })
        };
        let (first, second) = (ask(), ask());
        while sender.calls() < 1 {
            tokio::task::yield_now().await;
        }
        first.abort();
        while sender.calls() < 2 {
            tokio::task::yield_now().await;
        }
        sender.hold.as_ref().unwrap().add_permits(1);
        assert_eq!(second.await.unwrap(), Decision::Allow);
    });
}

/// A condition with a fixed result.
struct Fixed(Result<bool, String>);

impl AuthorizerMatchCondition for Fixed {
    fn evaluate(&self, _: &ConditionInput<'_>) -> Result<bool, String> {
        self.0.clone()
    }

    fn expression(&self) -> &'static str {
        "x"
    }
}

#[test]
fn match_conditions_decide_whether_the_webhook_is_called() {
    let with = |value: Result<bool, String>, failure_policy| {
        let conditions = Conditions::new(vec![Arc::new(Fixed(value))]);
        let sender = Fake::new([allow()]);
        let configuration = WebhookConfiguration { failure_policy, conditions, ..configuration() };
        let answer = run(webhook(&sender, &configuration).decide(&alice(), &pods()));
        (answer.decision, answer.error, sender.calls())
    };
    assert_eq!(with(Ok(true), FailurePolicy::Deny), (Decision::Allow, None, 1));
    assert_eq!(with(Ok(false), FailurePolicy::Deny), (Decision::NoOpinion, None, 0));
    let error = Some("cel evaluation error: expression 'x' resulted in error: no such key".to_owned());
    let fail = || Err("no such key".to_owned());
    assert_eq!(with(fail(), FailurePolicy::Deny), (Decision::Deny, error.clone(), 0));
    assert_eq!(with(fail(), FailurePolicy::NoOpinion), (Decision::NoOpinion, error, 0));
}
