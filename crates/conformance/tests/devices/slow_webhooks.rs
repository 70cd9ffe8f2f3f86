//! The label for admin access is removed while a validating webhook delays a request that was allowed by it.

use std::sync::Arc;

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Problem, Server, accepts, eventually, rejects};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::claims::{REFUSED, SOON, V1, claim, label};

const LABEL: &str = "resource.kubernetes.io/admin-access";

#[tokio::test]
async fn no_admin_claim_is_stored_after_the_label_was_removed() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    label(&client, json!({LABEL: "true"})).await;
    let permits = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&permits);
    let webhook =
        WebhookServer::start(ServingCertificate::Signed, move |_| ReviewReply::AllowWith(Arc::clone(&gate)))
            .await
            .unwrap();
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
        "clientConfig": {"url": webhook.url("/review"), "caBundle": webhook.ca_bundle},
        "rules": [{"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["resourceclaims"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(client.post(path, &configuration).await).unwrap();
    let claims = format!("{V1}/resourceclaims");

    for (name, is_removed) in [("allowed", false), ("refused", true)] {
        let (creator, path) = (client.on_new_connection(), claims.clone());
        let creation = tokio::spawn(async move { creator.post(&path, &claim(name, true)).await });
        eventually(SOON, async || match webhook.take_calls().len() {
            0 => Err(Problem::new("the webhook was not called")),
            _ => Ok(()),
        })
        .await
        .unwrap();
        if is_removed {
            label(&client, json!({LABEL: null})).await;
        }
        permits.add_permits(1);
        let answer = creation.await.unwrap();
        if is_removed {
            let refused = rejects(answer, 422, "Invalid").unwrap();
            assert!(refused["message"].as_str().unwrap().contains(REFUSED), "{refused}");
            rejects(client.get(&format!("{claims}/{name}")).await, 404, "NotFound").unwrap();
        } else {
            accepts(answer).unwrap();
        }
    }
}
