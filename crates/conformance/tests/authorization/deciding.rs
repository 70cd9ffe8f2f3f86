//! Decisions of the chain: order of authorizers, conditions, failures, and caching.

use std::sync::Arc;
use std::time::Duration;

use conformance::{Hook, HookReply, Server, accepts, rejects};
use serde_json::json;
use tokio::sync::Semaphore;

use super::chain::{AuthorizerWebhook, Files, WITHOUT_CONTROLLERS, always, by_user, metrics, review, status};

#[tokio::test]
async fn the_first_allow_or_deny_ends_the_chain_and_reasons_of_others_are_joined() {
    let (first, second) = (by_user("first").await, by_user("second").await);
    let files = Files::new();
    let server = files
        .serve_with(&[AuthorizerWebhook::new("first", &first), AuthorizerWebhook::new("second", &second)])
        .await;

    let client = server.client().unwrap();
    accepts(
        client.as_token(Some("alicetoken")).get("/api/v1/namespaces/default/pods?labelSelector=a%3Db").await,
    )
    .unwrap();
    let asked = first.take();
    assert_eq!(asked.len(), 1);
    assert_eq!(second.take().len(), 0);
    assert_eq!(asked[0].path, "/first");
    assert_eq!(asked[0].headers["authorization"], "Bearer hook-token");
    assert_eq!(
        asked[0].body["spec"],
        json!({"user": "alice", "uid": "alice-uid", "groups": ["devs", "testers", "system:authenticated"],
            "resourceAttributes": {"verb": "list", "version": "v1", "resource": "pods", "namespace": "default",
                "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}}})
    );

    assert_eq!(
        review(&server, "carol", "a").await,
        json!({"allowed": false, "denied": true, "reason": "first knows carol"})
    );
    assert_eq!(second.take().len(), 0);
    assert_eq!(
        review(&server, "dave", "a").await,
        json!({"allowed": false, "reason": "first: first shrugs\nsecond: second shrugs"})
    );
    assert_eq!(second.take().len(), 1);

    let refused = client.as_token(Some("bobtoken")).get("/api/v1/namespaces/default/pods").await;
    let refused = rejects(refused, 403, "Forbidden").unwrap();
    assert_eq!(
        refused["message"],
        "pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\": first: first shrugs\nsecond: second shrugs"
    );

    // system:masters is allowed before the chain is asked.
    first.take();
    accepts(client.get("/api/v1/nodes").await).unwrap();
    assert_eq!(first.take().len(), 0);
    assert_eq!(
        metrics(&server, &["apiserver_authorization_decisions_total", "name=\"first\"", "denied"])
            .await
            .len(),
        1
    );
    assert_eq!(
        metrics(&server, &["step_invocations_total", "mode=\"webhook_second\"", "NoOpinion"]).await.len(),
        1
    );
}

#[tokio::test]
async fn match_conditions_skip_webhooks_and_their_errors_follow_the_failure_policy() {
    let (lenient, strict) = (by_user("lenient").await, by_user("strict").await);
    let files = Files::new();
    let conditions =
        ["has(request.resourceAttributes)", "request.resourceAttributes.namespace == 'kube-system'"];
    let server = files
        .serve_with(&[
            AuthorizerWebhook { conditions: &conditions, ..AuthorizerWebhook::new("lenient", &lenient) },
            AuthorizerWebhook {
                policy: "Deny",
                conditions: &["request.nonResourceAttributes.path != ''", "request.user != 'zed'"],
                ..AuthorizerWebhook::new("strict", &strict)
            },
        ])
        .await;
    // A condition of the second webhook fails on every resource, unless its other condition is false.
    let denied = review(&server, "bob", "default").await;
    assert_eq!(denied["denied"], true);
    assert_eq!(
        denied["evaluationError"],
        "cel evaluation error: expression 'request.nonResourceAttributes.path != ''' resulted in error: no such key: nonResourceAttributes"
    );
    assert_eq!(review(&server, "zed", "default").await, json!({"allowed": false}));
    assert_eq!((lenient.take().len(), strict.take().len()), (0, 0));
    assert_eq!(review(&server, "alice", "kube-system").await["allowed"], true);
    assert_eq!(lenient.take().len(), 1);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
async fn webhooks_that_time_out_or_answer_wrongly_follow_the_failure_policy() {
    const REVIEW: &str = "authorization.k8s.io/v1";
    let huge = format!(r#"{{"status":{{"allowed":true,"reason":"{}"}}}}"#, "x".repeat(100_000));
    let bad = [
        ("hang", always(HookReply::Hang).await, "context deadline exceeded"),
        (
            "garbage",
            always(HookReply::Raw(200, "application/json", b"{\"status\": {".to_vec())).await,
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            "empty",
            always(HookReply::Raw(200, "application/json", Vec::new())).await,
            "0-length response with status code: 200 and content type: application/json",
        ),
        (
            "other",
            always(HookReply::Json(
                200,
                json!({"apiVersion": "v1", "kind": "Pod", "status": {"allowed": true}}),
            ))
            .await,
            "unknown conversion",
        ),
        (
            "nothing",
            always(HookReply::Json(200, json!({}))).await,
            "the webhook's response is malformed: apiVersion and kind are missing",
        ),
        (
            "untyped",
            always(HookReply::Json(200, json!({"status": {"allowed": true}}))).await,
            "the webhook's response is malformed: apiVersion and kind are missing",
        ),
        (
            "undecided",
            always(HookReply::Json(200, json!({"apiVersion": REVIEW, "kind": "SubjectAccessReview"}))).await,
            "the webhook's response is malformed: status is missing",
        ),
        (
            "blank",
            always(HookReply::Json(
                200,
                json!({"apiVersion": REVIEW, "kind": "SubjectAccessReview", "status": {}}),
            ))
            .await,
            "the webhook's response is malformed: status.allowed is missing",
        ),
        ("refusal", always(HookReply::Raw(403, "text/plain", b"go away".to_vec())).await, "go away"),
        (
            "huge",
            always(HookReply::Raw(200, "application/json", huge.into_bytes())).await,
            "the response is longer than",
        ),
    ];
    for policy in ["NoOpinion", "Deny"] {
        let files = Files::new();
        let conditions: Vec<String> =
            bad.iter().map(|(name, ..)| format!("request.user == '{name}'")).collect();
        let conditions: Vec<[&str; 1]> = conditions.iter().map(|c| [c.as_str()]).collect();
        let webhooks: Vec<AuthorizerWebhook<'_>> = bad
            .iter()
            .zip(&conditions)
            .map(|((name, hook, _), conditions)| AuthorizerWebhook {
                policy,
                conditions,
                fields: &["timeout: 300ms"],
                ..AuthorizerWebhook::new(name, hook)
            })
            .collect();
        let server = files.serve_with(&webhooks).await;
        for (name, hook, words) in &bad {
            hook.take();
            // As in kube-apiserver, an answer without a decision is no error, whatever the failure policy, and is cached.
            let says_nothing = policy == "NoOpinion" && ["nothing", "undecided", "blank"].contains(name);
            // Sent twice, because a failure is not cached.
            for _ in 0..2 {
                let answer = review(&server, name, "default").await;
                assert_eq!(answer["allowed"], false, "{name}: {answer}");
                assert_eq!(answer["denied"] == true, policy == "Deny", "{name}: {answer}");
                let error = answer["evaluationError"].as_str().unwrap_or_default();
                assert!(
                    if says_nothing { error.is_empty() } else { error.contains(words) },
                    "{name}: {answer}"
                );
            }
            assert_eq!(hook.take().len(), if says_nothing { 1 } else { 2 }, "{name}");
        }
    }
    // An answer with both allowed and denied is an error, whatever the policy. A denial counts even in an answer without a kind.
    let liar =
        always(HookReply::Json(200, json!({"status": {"allowed": true, "denied": true, "reason": "both"}})))
            .await;
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("liar", &liar)]).await;
    assert_eq!(
        review(&server, "bob", "default").await,
        json!({"allowed": false, "denied": true, "reason": "both", "evaluationError": "webhook subject access review returned both allow and deny response"})
    );
    let answer =
        server.client().unwrap().as_token(Some("bobtoken")).get("/api/v1/pods?limit=1").await.unwrap();
    assert_eq!(answer.code, 500);
    assert_eq!(
        answer.text(),
        "Internal Server Error: \"/api/v1/pods?limit=1\": webhook subject access review returned both allow and deny response\n"
    );
}

#[tokio::test]
async fn transient_errors_are_retried() {
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let flaky = Hook::start(move |asked| match counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => HookReply::Raw(500, "text/plain", b"boom".to_vec()),
        1 => HookReply::Json(429, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429})),
        _ => status(asked, &json!({"allowed": true})),
    })
    .await
    .unwrap();
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("flaky", &flaky)]).await;
    assert_eq!(review(&server, "bob", "default").await["allowed"], true);
    assert_eq!(flaky.take().len(), 3);
    assert_eq!(
        metrics(&server, &["webhook_evaluations_total{name=\"flaky\",result=\"error\"} 2"]).await.len(),
        1
    );
    assert_eq!(
        metrics(
            &server,
            &["step_webhook_error_total", "code=\"5xx\"", "decision=\"NoOpinion\"", "name=\"flaky\"} 1"]
        )
        .await
        .len(),
        1
    );
}

#[tokio::test]
async fn answers_are_cached_by_all_attributes_for_the_configured_time() {
    let (cached, fresh) = (by_user("cached").await, by_user("fresh").await);
    let files = Files::new();
    let server = files
        .serve_with(&[
            AuthorizerWebhook {
                conditions: &["request.resourceAttributes.namespace != 'fresh'"],
                ..AuthorizerWebhook::new("cached", &cached)
            },
            AuthorizerWebhook {
                conditions: &["request.resourceAttributes.namespace == 'fresh'"],
                fields: &["authorizedTTL: 50ms", "cacheUnauthorizedRequests: false"],
                ..AuthorizerWebhook::new("fresh", &fresh)
            },
        ])
        .await;
    for _ in 0..3 {
        review(&server, "alice", "default").await;
        review(&server, "bob", "default").await;
    }
    assert_eq!(cached.take().len(), 2);
    review(&server, "alice", "other").await;
    assert_eq!(cached.take().len(), 1);
    // Reviews and requests share the cache entries of the same attributes.
    accepts(server.client().unwrap().as_token(Some("alicetoken")).get("/api/v1/namespaces/third/pods").await)
        .unwrap();
    let spec = json!({"user": "alice", "uid": "alice-uid", "groups": ["devs", "testers", "system:authenticated"],
        "resourceAttributes": {"verb": "list", "version": "v1", "resource": "pods", "namespace": "third"}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    accepts(server.client().unwrap().post(path, &json!({"spec": spec})).await).unwrap();
    assert_eq!(cached.take().len(), 1);
    // With a TTL of zero, and with a short TTL.
    review(&server, "bob", "fresh").await;
    review(&server, "bob", "fresh").await;
    assert_eq!(fresh.take().len(), 2);
    conformance::eventually(Duration::from_secs(10), async || {
        review(&server, "alice", "fresh").await;
        let asked = fresh.asked().len();
        if asked >= 2 { Ok(()) } else { Err(conformance::Problem::new(format!("asked {asked} times"))) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn identical_concurrent_reviews_share_one_webhook_call() {
    let gate = Arc::new(Semaphore::new(0));
    let closed = Arc::clone(&gate);
    let slow = Hook::start_slow(move |asked| {
        let gate = Arc::clone(&closed);
        async move {
            gate.acquire().await.unwrap().forget();
            status(&asked, &json!({"allowed": true}))
        }
    })
    .await
    .unwrap();
    let files = Files::new();
    let server = Arc::new(
        files
            .serve_with(&[AuthorizerWebhook {
                fields: &["timeout: 30s"],
                ..AuthorizerWebhook::new("slow", &slow)
            }])
            .await,
    );
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { review(&server, "bob", "default").await["allowed"] == true })
        })
        .collect();
    // One permit of the webhook answers all of them.
    gate.add_permits(1);
    for asked in asking {
        assert!(asked.await.unwrap());
    }
    assert_eq!(slow.take().len(), 1);
}

#[tokio::test]
async fn sixty_four_requests_that_wait_for_a_webhook_delay_no_others() {
    const WAITING: usize = 64;
    let arrived = Arc::new(Semaphore::new(0));
    let release = Arc::new(Semaphore::new(0));
    let (counted, gate) = (Arc::clone(&arrived), Arc::clone(&release));
    let slow = Hook::start_slow(move |asked| {
        let (arrived, release) = (Arc::clone(&counted), Arc::clone(&gate));
        async move {
            arrived.add_permits(1);
            release.acquire().await.unwrap().forget();
            status(&asked, &json!({"allowed": true}))
        }
    })
    .await
    .unwrap();
    let files = Files::new();
    let webhook = AuthorizerWebhook { fields: &["timeout: 30s"], ..AuthorizerWebhook::new("slow", &slow) };
    files.put("authz.yaml", &files.configuration(&[webhook]));
    // Two worker threads, whatever the number of processors.
    let flags = [&files.flag(), WITHOUT_CONTROLLERS];
    let server = Arc::new(Server::serve_after("export TOKIO_WORKER_THREADS=2", &flags).await.unwrap());
    let waiting: Vec<_> = (0..WAITING)
        .map(|i| {
            let server = Arc::clone(&server);
            tokio::spawn(
                async move { review(&server, &format!("user-{i}"), "default").await["allowed"] == true },
            )
        })
        .collect();
    let client = server.client().unwrap();
    // Not all would arrive if they waited for each other.
    let all = arrived.acquire_many(u32::try_from(WAITING).unwrap());
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap().unwrap().forget();
    for _ in 0..10 {
        let other = client.get("/api/v1/namespaces/default");
        accepts(tokio::time::timeout(Duration::from_secs(5), other).await.unwrap()).unwrap();
    }
    assert!(waiting.iter().all(|asked| !asked.is_finished()));
    release.add_permits(WAITING);
    for asked in waiting {
        assert!(asked.await.unwrap());
    }
    assert_eq!(slow.take().len(), WAITING);
}

#[tokio::test]
async fn impersonation_authorizes_user_groups_uid_and_extra() {
    let hook = by_user("hook").await;
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("hook", &hook)]).await;
    let alice = server.client().unwrap().as_token(Some("alicetoken"));
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", "alice-too"),
        ("impersonate-group", "g1"),
    ];
    let body = || bytes::Bytes::from_static(b"{}");
    let who = accepts(alice.send(http::Method::POST, path, &headers, body()).await).unwrap();
    assert_eq!(who["status"]["userInfo"]["username"], "alice-too");
    let asked: Vec<String> = hook
        .take()
        .iter()
        .map(|asked| {
            let spec = &asked.body["spec"];
            let what = &spec["resourceAttributes"];
            format!("{} {} {}", spec["user"], what["verb"], what["resource"]).replace('"', "")
        })
        .collect();
    assert!(asked.iter().any(|line| line.starts_with("alice impersonate")), "{asked:?}");
    assert_eq!(asked.last().unwrap(), "alice-too create selfsubjectreviews");
    let bob = server.client().unwrap().as_token(Some("bobtoken"));
    rejects(bob.send(http::Method::POST, path, &headers, body()).await, 403, "Forbidden").unwrap();
}
