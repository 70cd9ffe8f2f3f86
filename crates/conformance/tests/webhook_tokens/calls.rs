//! Webhook calls of the server: API webhooks get a token, other servers do not.

use std::fs;

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{accepts, rejects};
use serde_json::json;
use tempfile::TempDir;

use crate::token_requests::{
    DURATIONS, KINDS, LOOKUPS, MAPS, MUTATING, ON, REQUESTS, VALIDATING, at, bearer_token, claims,
    configurations, create, hook, metric_sum, register, review, review_target, serve, token_of,
};

#[tokio::test]
async fn every_api_webhook_gets_a_token_that_is_reused() {
    let (server, client) = serve(&[ON]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    for kind in KINDS {
        let made = register(&client, kind, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
        // Concurrent calls share one token request.
        let (requests, misses) =
            (metric_sum(&client, REQUESTS, "success").await, metric_sum(&client, LOOKUPS, "miss").await);
        let names: Vec<String> = (0..4).map(|i| format!("{}-{i}", kind.to_lowercase())).collect();
        let clients: Vec<_> = names.iter().map(|_| client.as_token(client.token())).collect();
        let both = names.iter().zip(&clients).map(|(name, client)| create(client, name));
        for made in futures_util::future::join_all(both).await {
            made.unwrap();
        }
        create(&client, &format!("{}-later", kind.to_lowercase())).await.unwrap();
        let calls = webhook.take_calls();
        assert_eq!(calls.len(), 5);
        let tokens: Vec<Option<String>> = calls.iter().map(bearer_token).collect();
        assert!(
            tokens.iter().all(|token| token.is_some() && *token == tokens[0]),
            "{tokens:?} {}",
            server.log()
        );
        let token = tokens[0].clone().unwrap();
        assert!((metric_sum(&client, REQUESTS, "success").await - requests - 1.0).abs() < 0.1);
        assert!(metric_sum(&client, LOOKUPS, "miss").await - misses >= 1.0);
        assert!(metric_sum(&client, LOOKUPS, "hit").await >= 1.0);
        assert!(metric_sum(&client, DURATIONS, "success").await >= 1.0);

        let audience = webhook.url("/review");
        let said = claims(&token);
        assert_eq!(said["aud"], json!([audience]));
        assert_eq!(said["sub"], "system:serviceaccount:kube-system:webhook-auth");
        let status = review(&client, &token, &audience).await;
        assert_eq!(status["authenticated"], true, "{status}");
        let extra = &status["user"]["extra"];
        assert_eq!(extra["attestation.authentication.kubernetes.io/admissionReviewAPIGroups"], json!(["*"]));
        let key = format!("authentication.kubernetes.io/{}-uid", kind.to_lowercase());
        assert_eq!(extra[key], json!([made["metadata"]["uid"]]));
        accepts(client.delete(&format!("{}/hooks", configurations(kind))).await).unwrap();
    }
}

#[tokio::test]
async fn two_webhooks_get_different_tokens_that_are_valid_only_for_themselves() {
    let (_server, client) = serve(&[ON]).await;
    let one = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let two = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let mut second = hook(&at(&two), &["configmaps"]);
    second["name"] = json!("second.example.com");
    register(&client, VALIDATING, "hooks", &[hook(&at(&one), &["configmaps"]), second]).await;
    create(&client, "a").await.unwrap();
    let (first, second) =
        (bearer_token(&one.take_calls()[0]).unwrap(), bearer_token(&two.take_calls()[0]).unwrap());
    assert_ne!(first, second);
    assert_eq!(review(&client, &first, &one.url("/review")).await["authenticated"], true);
    assert_ne!(review(&client, &first, &two.url("/review")).await["authenticated"], true);
    assert_ne!(review(&client, &second, &one.url("/review")).await["authenticated"], true);
}

/// A webhook for config maps and token requests that denies calls without a token.
async fn start_webhook_requiring_tokens(client: &conformance::Client, policy: &str) -> WebhookServer {
    let webhook = WebhookServer::start(ServingCertificate::Signed, |call| {
        if bearer_token(call).is_some() {
            ReviewReply::allow()
        } else {
            ReviewReply::Raw(401, "text/plain", Vec::new(), "who are you?".to_owned())
        }
    })
    .await
    .unwrap();
    let mut hook = hook(&at(&webhook), &["configmaps", "serviceaccounts/token"]);
    hook["failurePolicy"] = json!(policy);
    register(client, VALIDATING, "hooks", &[hook]).await;
    webhook
}

#[tokio::test]
async fn a_webhook_that_intercepts_token_requests_does_not_deadlock() {
    // It denies the request for its own token, so it never gets one and denies everything. No request waits for another.
    let (_server, client) = serve(&[ON]).await;
    let webhook = start_webhook_requiring_tokens(&client, "Fail").await;
    let status =
        rejects(client.post(MAPS, &json!({"metadata": {"name": "a"}})).await, 500, "InternalError").unwrap();
    assert!(status["message"].as_str().unwrap().contains("failed calling webhook"), "{status}");
    let calls = webhook.take_calls();
    let about: Vec<String> = calls.iter().map(review_target).collect();
    assert_eq!(about, ["serviceaccounts/token webhook-auth", "configmaps/ a"]);
    assert!(calls.iter().all(|call| bearer_token(call).is_none()));
    let user = &calls[0].review["request"]["userInfo"]["username"];
    assert_eq!(user, "system:apiserver");

    // With failurePolicy Ignore, the token request succeeds, and all other calls have a token, including those for tokens of
    // other accounts.
    accepts(client.delete(&format!("{}/hooks", configurations(VALIDATING))).await).unwrap();
    let webhook = start_webhook_requiring_tokens(&client, "Ignore").await;
    create(&client, "b").await.unwrap();
    let calls = webhook.take_calls();
    let about: Vec<(String, bool)> =
        calls.iter().map(|call| (review_target(call), bearer_token(call).is_some())).collect();
    let nested = ("serviceaccounts/token webhook-auth".to_owned(), false);
    assert_eq!(about, [nested, ("configmaps/ b".to_owned(), true)]);
    accepts(client.post(&token_of("default"), &json!({"spec": {}})).await).unwrap();
    let calls = webhook.take_calls();
    assert_eq!(review_target(&calls[0]), "serviceaccounts/token default");
    assert!(bearer_token(&calls[0]).is_some());
}

#[tokio::test]
async fn a_webhook_that_never_answers_token_requests_delays_others_once() {
    let (_server, client) = serve(&[ON]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |call| {
        if review_target(call).starts_with("serviceaccounts/token") {
            ReviewReply::Silence
        } else {
            ReviewReply::allow()
        }
    })
    .await
    .unwrap();
    let mut hook = hook(&at(&webhook), &["configmaps", "serviceaccounts/token"]);
    hook["timeoutSeconds"] = json!(1);
    register(&client, MUTATING, "hooks", &[hook]).await;
    create(&client, "a").await.unwrap();
    let calls = webhook.take_calls();
    let about: Vec<String> = calls.iter().map(review_target).collect();
    assert_eq!(about, ["serviceaccounts/token webhook-auth", "configmaps/ a"]);
    assert!(calls.iter().all(|call| bearer_token(call).is_none()));
    // The next call does not request a token again at once.
    create(&client, "b").await.unwrap();
    let about: Vec<String> = webhook.take_calls().iter().map(review_target).collect();
    assert_eq!(about, ["configmaps/ b"]);
}

#[tokio::test]
async fn credentials_of_a_kubeconfig_take_precedence() {
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let port = webhook.port;
    fs::write(
        &kubeconfig,
        format!("apiVersion: v1\nkind: Config\nusers:\n- name: 127.0.0.1:{port}\n  user: {{token: mine}}\n"),
    )
    .unwrap();
    let file = folder.path().join("admission.yaml");
    fs::write(
        &file,
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    kubeConfigFile: {}\n",
            kubeconfig.display()
        ),
    )
    .unwrap();
    let (_server, client) =
        serve(&[ON, &format!("--admission-control-config-file={}", file.display())]).await;
    let by_name = json!({"url": format!("https://localhost:{port}/review"), "caBundle": webhook.ca_bundle});
    let mut other = hook(&by_name, &["configmaps"]);
    other["name"] = json!("other.example.com");
    register(&client, VALIDATING, "hooks", &[hook(&at(&webhook), &["configmaps"]), other]).await;
    create(&client, "a").await.unwrap();
    let calls = webhook.take_calls();
    let mine = calls.iter().filter(|call| bearer_token(call).as_deref() == Some("mine")).count();
    // The other host has no credentials in the kubeconfig, and gets a token.
    let tokens = calls.iter().filter_map(bearer_token).filter(|token| token.contains('.')).count();
    assert_eq!((mine, tokens), (1, 1));
}

#[tokio::test]
async fn static_webhooks_get_no_token() {
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let manifests = folder.path().join("static");
    fs::create_dir(&manifests).unwrap();
    let text = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": VALIDATING,
        "metadata": {"name": "hooks.static.k8s.io"}, "webhooks": [hook(&at(&webhook), &["configmaps"])]
    });
    fs::write(manifests.join("hooks.yaml"), text.to_string()).unwrap();
    let file = folder.path().join("admission.yaml");
    fs::write(
        &file,
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    staticManifestsDir: {}\n",
            manifests.display()
        ),
    )
    .unwrap();
    let (_server, client) =
        serve(&[ON, &format!("--admission-control-config-file={}", file.display())]).await;
    webhook.take_calls();
    let lookups = metric_sum(&client, LOOKUPS, "").await;
    create(&client, "a").await.unwrap();
    let calls = webhook.take_calls();
    assert_eq!((calls.len(), bearer_token(&calls[0])), (1, None));
    assert!((metric_sum(&client, LOOKUPS, "").await - lookups).abs() < 0.1);
    // The same webhook gets a token when it is registered with the API.
    register(&client, VALIDATING, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
    create(&client, "b").await.unwrap();
    let mut tokens: Vec<bool> =
        webhook.take_calls().iter().map(|call| bearer_token(call).is_some()).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [false, true]);
}
