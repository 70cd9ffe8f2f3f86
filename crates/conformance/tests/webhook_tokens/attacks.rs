//! Attacks on webhook tokens: theft, reuse, and blocking of token requests.

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{accepts, rejects};
use serde_json::{Value, json};

use crate::token_requests::{
    ACCOUNTS, KINDS, MAPS, MUTATING, ON, VALIDATING, at, bearer_token, claims, configurations, create, hook,
    register, review, review_target, serve, token_of,
};

#[tokio::test]
async fn no_token_is_sent_to_a_server_with_a_wrong_certificate() {
    let (_server, client) = serve(&[ON]).await;
    let honest = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    for proof in [ServingCertificate::OtherName, ServingCertificate::Expired, ServingCertificate::Signed] {
        let other = WebhookServer::start(proof, |_| ReviewReply::allow()).await.unwrap();
        // A certificate for another name, an expired one, and one of an unknown CA.
        let bundle = if proof == ServingCertificate::Signed { &honest.ca_bundle } else { &other.ca_bundle };
        let config = json!({"url": other.url("/review"), "caBundle": bundle});
        register(&client, VALIDATING, "hooks", &[hook(&config, &["configmaps"])]).await;
        let refused = client.post(MAPS, &json!({"metadata": {"name": "a"}})).await;
        let status = rejects(refused, 500, "InternalError").unwrap();
        assert!(
            status["message"].as_str().unwrap().contains("tls: failed to verify certificate"),
            "{status}"
        );
        assert!(other.take_calls().is_empty(), "{proof:?}");
        accepts(client.delete(&format!("{}/hooks", configurations(VALIDATING))).await).unwrap();
    }
    // Without a bundle, the system's CAs are used, which do not know it.
    let config = json!({"url": honest.url("/review")});
    register(&client, VALIDATING, "hooks", &[hook(&config, &["configmaps"])]).await;
    rejects(client.post(MAPS, &json!({"metadata": {"name": "a"}})).await, 500, "InternalError").unwrap();
    assert!(honest.take_calls().is_empty());
}

#[tokio::test]
async fn a_redirect_does_not_forward_the_token() {
    let (_server, client) = serve(&[ON]).await;
    let elsewhere = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    for status in [301, 302, 303, 307, 308] {
        let location: &'static str = elsewhere.url("/review").leak();
        let webhook = WebhookServer::start(ServingCertificate::Signed, move |_| {
            ReviewReply::Raw(status, "text/plain", vec![("location", location)], String::new())
        })
        .await
        .unwrap();
        // Both servers have valid certificates for the address: the token stays with the first only because redirects are not
        // followed.
        register(&client, MUTATING, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
        rejects(client.post(MAPS, &json!({"metadata": {"name": "a"}})).await, 500, "InternalError").unwrap();
        assert!(webhook.take_calls().iter().all(|call| bearer_token(call).is_some()));
        assert!(elsewhere.take_calls().is_empty(), "{status}");
        accepts(client.delete(&format!("{}/hooks", configurations(MUTATING))).await).unwrap();
    }
}

#[tokio::test]
async fn configurations_with_the_same_url_have_different_tokens() {
    let (_server, client) = serve(&[ON]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let mut uids: Vec<Value> = Vec::new();
    for (kind, name) in [(VALIDATING, "hooks"), (VALIDATING, "others"), (MUTATING, "hooks")] {
        let made = register(&client, kind, name, &[hook(&at(&webhook), &["configmaps"])]).await;
        uids.push(made["metadata"]["uid"].clone());
    }
    create(&client, "a").await.unwrap();
    let tokens: Vec<String> = webhook.take_calls().iter().filter_map(bearer_token).collect();
    let mut bound: Vec<Value> = tokens
        .iter()
        .map(|token| {
            let said = claims(token);
            let by = |kind: &str| said["kubernetes.io"][kind.to_lowercase()]["uid"].clone();
            KINDS.map(by).into_iter().find(|uid| !uid.is_null()).unwrap()
        })
        .collect();
    let sorted = |list: &mut Vec<Value>| list.sort_by_key(Value::to_string);
    sorted(&mut bound);
    sorted(&mut uids);
    assert_eq!(bound, uids);
    // Deleting one configuration invalidates only its own token.
    accepts(client.delete(&format!("{}/others", configurations(VALIDATING))).await).unwrap();
    create(&client, "b").await.unwrap();
    let left: Vec<String> = webhook.take_calls().iter().filter_map(bearer_token).collect();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|token| tokens.contains(token)));
    for token in left {
        assert_eq!(review(&client, &token, &webhook.url("/review")).await["authenticated"], true);
    }
}

/// Every way in which webhooks of both kinds can delay token requests, including their own.
#[tokio::test]
async fn token_requests_complete_even_if_webhooks_that_intercept_them_fail_or_hang() {
    let (_server, client) = serve(&[ON]).await;
    accepts(client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    let silent = |review_target: &str| review_target.starts_with("serviceaccounts/token");
    for (round, (policy, hangs)) in
        [("Fail", false), ("Fail", true), ("Ignore", false), ("Ignore", true)].into_iter().enumerate()
    {
        let webhook = WebhookServer::start(ServingCertificate::Signed, move |call| {
            match (silent(&review_target(call)), hangs) {
                (true, true) => ReviewReply::Silence,
                (true, false) => ReviewReply::deny("no tokens"),
                (false, _) => ReviewReply::allow(),
            }
        })
        .await
        .unwrap();
        let mut hook = hook(&at(&webhook), &["configmaps", "serviceaccounts/token"]);
        hook["failurePolicy"] = json!(policy);
        hook["timeoutSeconds"] = json!(1);
        // A match condition with an authorizer check adds another wait.
        let condition =
            "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()";
        hook["matchConditions"] = json!([{"name": "may", "expression": condition}]);
        for kind in KINDS {
            register(&client, kind, "hooks", std::slice::from_ref(&hook)).await;
        }
        create(&client, &format!("round-{round}")).await.unwrap();
        let calls = webhook.take_calls();
        let nested: Vec<_> = calls.iter().filter(|call| silent(&review_target(call))).collect();
        assert!(!nested.is_empty());
        assert!(nested.iter().all(|call| bearer_token(call).is_none()), "{policy} {hangs}");
        // Webhooks that fail or deny are called without a token, by their own configuration. An ignored timeout is no denial.
        let all_have_tokens = calls
            .iter()
            .filter(|call| !silent(&review_target(call)))
            .all(|call| bearer_token(call).is_some());
        assert_eq!(all_have_tokens, policy == "Ignore" && hangs, "{policy} {hangs}");
        // Token requests of other users do not hang either.
        let answer = client.post(&token_of("robot"), &json!({"spec": {}})).await.unwrap();
        assert_eq!(answer.code == 201, policy == "Ignore" && hangs, "{}", answer.text());
        for kind in KINDS {
            accepts(client.delete(&format!("{}/hooks", configurations(kind))).await).unwrap();
        }
    }
}
