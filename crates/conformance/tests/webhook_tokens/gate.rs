//! The feature gate: off, on and off again, as in an upgrade and a rollback.

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Server, accepts, rejects};
use serde_json::json;
use tempfile::TempDir;

use crate::token_requests::{
    KUBERNETES, MUTATING, ON, OWN_ACCOUNT, VALIDATING, account, at, bearer_token, create, hook, metric_sum,
    register, register_unused_webhooks, request, review, token_of,
};

#[tokio::test]
async fn the_feature_gate_changes_only_whether_webhooks_get_tokens() {
    let folder = TempDir::new().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let mut token = String::new();
    for (step, on) in [false, true, false, true].into_iter().enumerate() {
        let flags: &[&str] = if on { &[ON] } else { &[] };
        let mut server = Server::serve_at(folder.path(), flags).await.unwrap();
        let client = server.client().unwrap();
        if step == 0 {
            register_unused_webhooks(&client).await;
            account(&client, "robot", KUBERNETES, &["apps"]).await;
            register(&client, MUTATING, "guards", &[hook(&at(&webhook), &["configmaps"])]).await;
            rejects(client.get(OWN_ACCOUNT).await, 404, "NotFound").unwrap();
        } else {
            // Objects for the gate stay after it is turned off; no clean-up is needed.
            accepts(client.get(OWN_ACCOUNT).await).unwrap();
        }
        // A token that a server with the gate issued is rejected by a server without it.
        if step > 0 {
            let status = review(&client, &token, "https://apps.example/a").await;
            assert_eq!(status["authenticated"] == true, on, "{status}");
            if !on {
                let why = status["error"].as_str().unwrap();
                assert!(why.contains("is disabled, but token is webhook bound"), "{why}");
            }
        }
        webhook.take_calls();
        create(&client, &format!("step-{step}")).await.unwrap();
        let calls = webhook.take_calls();
        assert_eq!(calls.len(), 1);
        assert_eq!(bearer_token(&calls[0]).is_some(), on);

        let token_request = request(VALIDATING, KUBERNETES, "apps", "https://apps.example/a");
        let answer = client.post(&token_of("robot"), &token_request).await;
        if on {
            let got = accepts(answer).unwrap();
            got["status"]["token"].as_str().unwrap().clone_into(&mut token);
        } else {
            rejects(answer, 400, "BadRequest").unwrap();
            assert!(metric_sum(&client, "apiserver_webhook_authentication", "").await.abs() < 0.1);
            if step == 0 {
                // Any token works for the next request.
                let plain = accepts(
                    client
                        .post(&token_of("robot"), &json!({"spec": {"audiences": ["https://apps.example/a"]}}))
                        .await,
                )
                .unwrap();
                plain["status"]["token"].as_str().unwrap().clone_into(&mut token);
            }
        }
        server.terminate().unwrap();
        server.wait(std::time::Duration::from_secs(20)).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_with_default_configuration_sends_tokens() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    register(&client, VALIDATING, "hooks", &[hook(&at(&webhook), &["configmaps"])]).await;
    create(&client, "a").await.unwrap();
    assert!(bearer_token(&webhook.take_calls()[0]).is_some());
}
