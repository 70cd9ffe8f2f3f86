//! The lifetime of tokens, and the recovery of the server's own tokens.

use std::time::Duration;

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Problem, accepts, eventually, rejects};
use http::Method;
use serde_json::json;

use crate::token_requests::{
    ACCOUNTS, BINDINGS, KEP, KINDS, KUBERNETES, MAPS, MUTATING, ON, OWN_ACCOUNT, REQUESTS, ROLES, VALIDATING,
    account, at, bearer_token, claims, configurations, create, hook, metric_sum, register,
    register_unused_webhooks, request, review, serve, token_of, wait_until_rejected,
};

const APPS: &str = "https://apps.example/a";

#[tokio::test]
async fn a_token_is_invalid_after_its_configuration_was_deleted_or_recreated() {
    let (_server, client) = serve(&[ON]).await;
    register_unused_webhooks(&client).await;
    account(&client, "robot", KUBERNETES, &["apps", "*"]).await;
    for kind in KINDS {
        let mut tokens = Vec::new();
        for group in ["apps", "*"] {
            let token_request = request(kind, KUBERNETES, group, APPS);
            let got = accepts(client.post(&token_of("robot"), &token_request).await).unwrap();
            tokens.push(got["status"]["token"].as_str().unwrap().to_owned());
        }
        for token in &tokens {
            assert_eq!(review(&client, token, APPS).await["authenticated"], true);
            let elsewhere = review(&client, token, "x").await["error"].as_str().unwrap().to_owned();
            let words = format!("token audiences [\"{APPS}\"] is invalid for the target audiences [\"x\"]");
            assert_eq!(elsewhere, format!("[invalid bearer token, {words}]"));
        }
        accepts(client.delete(&format!("{}/hooks", configurations(kind))).await).unwrap();
        for token in &tokens {
            let why = wait_until_rejected(&client, token, APPS).await;
            assert_eq!(why, "[invalid bearer token, service account token has been invalidated]");
        }
        let again = register(&client, kind, "hooks", &[hook(&json!({"url": APPS}), &["nothings"])]).await;
        let uid = again["metadata"]["uid"].as_str().unwrap();
        for token in &tokens {
            let why = wait_until_rejected(&client, token, APPS).await;
            assert!(why.contains(&format!("{kind} UID ({uid}) does not match")), "{why}");
        }
    }
}

#[tokio::test]
async fn a_token_is_invalid_without_its_account_and_not_issued_without_permission() {
    let (_server, client) = serve(&[ON]).await;
    register_unused_webhooks(&client).await;
    account(&client, "robot", KEP, &["apps"]).await;
    let token_request = request(VALIDATING, KEP, "apps", APPS);
    let got = accepts(client.post(&token_of("robot"), &token_request).await).unwrap();
    let token = got["status"]["token"].as_str().unwrap();
    assert_eq!(review(&client, token, APPS).await["authenticated"], true);
    accepts(client.delete(&format!("{BINDINGS}/robot-apigroups")).await).unwrap();
    let status = rejects(client.post(&token_of("robot"), &token_request).await, 403, "Forbidden").unwrap();
    assert!(status["message"].as_str().unwrap().contains("cannot attest resource \"apigroups\""), "{status}");
    accepts(client.delete(&format!("{ACCOUNTS}/robot")).await).unwrap();
    wait_until_rejected(&client, token, APPS).await;
    rejects(client.post(&token_of("robot"), &token_request).await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn the_account_and_permissions_of_the_server_are_restored_after_deletion() {
    let (_server, client) = serve(&[ON]).await;
    let paths = [
        OWN_ACCOUNT.to_owned(),
        format!("{ROLES}/system:webhook-auth"),
        format!("{BINDINGS}/system:webhook-auth"),
    ];
    for path in &paths {
        let uid = accepts(client.get(path).await).unwrap()["metadata"]["uid"].clone();
        accepts(client.delete(path).await).unwrap();
        eventually(Duration::from_secs(10), async || {
            let back = accepts(client.get(path).await)?;
            if back["metadata"]["uid"] == uid { Err(Problem::new("still the old one")) } else { Ok(()) }
        })
        .await
        .unwrap();
    }
    let may = async |group: &str, resource: &str, name: &str| {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": "system:serviceaccount:kube-system:webhook-auth",
            "resourceAttributes": {"verb": "attest", "group": group, "resource": resource, "name": name}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        accepts(client.post(path, &body).await).unwrap()["status"]["allowed"] == true
    };
    for [.., group, resource] in [KUBERNETES, KEP] {
        assert!(may(group, resource, "*").await);
        assert!(!may(group, resource, "apps").await);
    }
}

#[tokio::test]
async fn tokens_of_a_deleted_account_or_configuration_are_not_sent_again() {
    let (_server, client) = serve(&[ON]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    register(&client, VALIDATING, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
    create(&client, "a").await.unwrap();
    let first = bearer_token(&webhook.take_calls()[0]).unwrap();

    // The service account is deleted and created again.
    let old = claims(&first)["kubernetes.io"]["serviceaccount"]["uid"].clone();
    accepts(client.delete(OWN_ACCOUNT).await).unwrap();
    let second = eventually(Duration::from_secs(10), async || {
        accepts(client.post(&format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": "b"}})).await)?;
        let token = webhook.take_calls().last().and_then(bearer_token).ok_or(Problem::new("no token"))?;
        let uid = &claims(&token)["kubernetes.io"]["serviceaccount"]["uid"];
        if *uid == old { Err(Problem::new("the old account's token")) } else { Ok(token) }
    })
    .await
    .unwrap();

    // The configuration is deleted and created again.
    accepts(client.delete(&format!("{}/hooks", configurations(VALIDATING))).await).unwrap();
    let again = register(&client, VALIDATING, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
    webhook.take_calls();
    create(&client, "c").await.unwrap();
    let third = bearer_token(webhook.take_calls().last().unwrap()).unwrap();
    assert_ne!(second, third);
    assert_eq!(
        claims(&third)["kubernetes.io"]["validatingWebhookConfiguration"]["uid"],
        again["metadata"]["uid"]
    );
}

#[tokio::test]
async fn without_permission_webhooks_are_called_without_a_token() {
    let (server, client) = serve(&[ON]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let role = format!("{ROLES}/system:webhook-auth");
    let mut changed = accepts(client.get(&role).await).unwrap();
    let rules = changed["rules"].clone();
    changed["rules"] = json!([]);
    accepts(client.json(Method::PUT, &role, &changed).await).unwrap();
    register(&client, MUTATING, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
    create(&client, "a").await.unwrap();
    let calls = webhook.take_calls();
    assert_eq!((calls.len(), bearer_token(&calls[0])), (1, None));
    assert!(metric_sum(&client, REQUESTS, "status=\"failure\"").await >= 1.0);
    let log = server.log();
    assert!(log.contains("cannot get a token for a webhook"), "{log}");
    assert!(log.contains("cannot attest resource"), "{log}");

    let mut changed = accepts(client.get(&role).await).unwrap();
    changed["rules"] = rules;
    accepts(client.json(Method::PUT, &role, &changed).await).unwrap();
    eventually(Duration::from_secs(10), async || {
        accepts(client.post(&format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": "b"}})).await)?;
        webhook.take_calls().last().and_then(bearer_token).ok_or(Problem::new("no token"))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_token_for_a_group_needs_its_apiservice_and_one_for_all_groups_does_not() {
    let (_server, client) = serve(&[ON]).await;
    register_unused_webhooks(&client).await;
    account(&client, "robot", KEP, &["gone.example.com", "*"]).await;
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = json!({"metadata": {"name": "v1.gone.example.com"}, "spec": {
        "group": "gone.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}});
    accepts(client.post(services, &service).await).unwrap();
    for kind in KINDS {
        let mut tokens = Vec::new();
        for group in ["gone.example.com", "*"] {
            let got =
                accepts(client.post(&token_of("robot"), &request(kind, KEP, group, APPS)).await).unwrap();
            tokens.push(got["status"]["token"].as_str().unwrap().to_owned());
        }
        for token in &tokens {
            assert_eq!(review(&client, token, APPS).await["authenticated"], true);
        }
        accepts(client.delete(&format!("{services}/v1.gone.example.com")).await).unwrap();
        let why = wait_until_rejected(&client, &tokens[0], APPS).await;
        assert_eq!(why, "[invalid bearer token, service account token has been invalidated]");
        assert_eq!(review(&client, &tokens[1], APPS).await["authenticated"], true);
        // With a new APIService the token is valid again: its bound object was never deleted.
        accepts(client.post(services, &service).await).unwrap();
        eventually(Duration::from_secs(30), async || {
            let status = review(&client, &tokens[0], APPS).await;
            if status["authenticated"] == true { Ok(()) } else { Err(Problem::new(status.to_string())) }
        })
        .await
        .unwrap();
    }
}
