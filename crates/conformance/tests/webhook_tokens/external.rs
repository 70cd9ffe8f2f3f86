//! Webhooks behind services of type ExternalName.

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, accepts, rejects};
use serde_json::json;

use crate::token_requests::{
    KINDS, MAPS, ON, bearer_token, claims, configurations, create, hook, register, serve,
};

async fn service(client: &Client, name: &str, external: &str) {
    let body =
        json!({"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": external}});
    accepts(client.post("/api/v1/namespaces/default/services", &body).await).unwrap();
}

#[tokio::test]
async fn a_webhook_behind_an_external_name_is_verified_by_its_service_name() {
    let (_server, client) = serve(&[ON]).await;
    service(&client, "hook", "localhost").await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    for kind in KINDS {
        let config = json!({"caBundle": webhook.ca_bundle, "service":
            {"namespace": "default", "name": "hook", "path": "/review", "port": webhook.port}});
        register(&client, kind, "external", &[hook(&config, &["configmaps"])]).await;
        create(&client, &format!("for-{}", kind.to_lowercase())).await.unwrap();
        let calls = webhook.take_calls();
        assert_eq!(calls.len(), 1);
        assert!(calls[0].target.starts_with("/review"), "{}", calls[0].target);
        let audience = format!("https://hook.default.svc:{}/review", webhook.port);
        assert_eq!(claims(&bearer_token(&calls[0]).unwrap())["aud"], json!([audience]));
        accepts(client.delete(&format!("{}/external", configurations(kind))).await).unwrap();
    }

    // The certificate must be for the service, not for the host. And only `localhost` leads to this host.
    for (name, external, why) in
        [("other", "localhost", "certificate"), ("loopback", "127.0.0.1", "127.0.0.1")]
    {
        service(&client, name, external).await;
        let config = json!({"caBundle": webhook.ca_bundle, "service":
            {"namespace": "default", "name": name, "path": "/review", "port": webhook.port}});
        register(&client, KINDS[0], name, &[hook(&config, &["configmaps"])]).await;
        let answer = client.post(MAPS, &json!({"metadata": {"name": name}})).await;
        let status = rejects(answer, 500, "InternalError").unwrap();
        assert!(status["message"].as_str().unwrap().contains(why), "{status}");
        assert!(webhook.take_calls().is_empty());
        accepts(client.delete(&format!("{}/{name}", configurations(KINDS[0]))).await).unwrap();
    }
}
