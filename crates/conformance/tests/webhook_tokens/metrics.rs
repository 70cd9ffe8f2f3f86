//! The metrics of KEP-6060 besides those of token requests.

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Server};

use crate::token_requests::{KINDS, ON, at, create, hook, register, serve};

#[tokio::test]
async fn the_metrics_of_the_kep_say_whether_the_gate_is_on_and_how_long_webhooks_take() {
    let gate = |value| {
        format!(
            "kubernetes_feature_enabled{{name=\"APIServerWebhookAuthenticationToken\",stage=\"ALPHA\"}} {value}"
        )
    };
    let page = async |client: &Client| client.get("/metrics").await.unwrap().text();
    let (_off, client) = serve(&[]).await;
    let text = page(&client).await;
    assert!(text.contains(&gate(0)), "the gate is off");
    // Kubernetes uses an empty stage for generally available features.
    assert!(text.contains("kubernetes_feature_enabled{name=\"DRAAdminAccess\",stage=\"\"} 1"));
    assert!(text.contains("kubernetes_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0"));
    let up = Server::up().await.unwrap();
    assert!(page(&up.client().unwrap()).await.contains(&gate(1)), "the gate is on in `up`");

    let (_server, client) = serve(&[ON]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    register(&client, KINDS[0], "guards", &[hook(&at(&webhook), &["configmaps"])]).await;
    create(&client, "a").await.unwrap();
    let text = page(&client).await;
    assert!(text.contains(&gate(1)));
    for family in ["webhook_admission_duration_seconds", "webhook_latency_seconds"] {
        let series = format!(
            "apiserver_admission_{family}_count{{name=\"guard.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"}} 1"
        );
        assert!(text.contains(&series), "{series}");
    }
}
