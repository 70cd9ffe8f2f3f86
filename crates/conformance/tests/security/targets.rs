//! Users who may write Services and EndpointSlices cannot make the server call its own host or link-local addresses.

use std::time::Duration;

use conformance::aggregated_server::{AggregatedReply, AggregatedServer};
use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1alpha1.wardle.example.com";

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "https", "port": 8443}]}})
}

fn slice(service: &str, address_type: &str, address: &str, port: u16) -> Value {
    json!({
        "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
        "addressType": address_type,
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    })
}

#[tokio::test]
async fn an_endpoint_slice_with_names_does_not_send_webhook_calls_to_this_host() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    // Addresses are validated when a slice is written, names are not.
    rejects(client.post(SLICES, &slice("hook", "IPv4", "127.0.0.1", webhook.port)).await, 422, "Invalid")
        .unwrap();
    accepts(client.post(SERVICES, &service("hook")).await).unwrap();
    accepts(client.post(SLICES, &slice("hook", "FQDN", "127.0.0.1", webhook.port)).await).unwrap();
    let config = json!({
        "metadata": {"name": "guards"},
        "webhooks": [{
            "name": "guard.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "clientConfig": {
                "service": {"namespace": "default", "name": "hook", "port": 8443}, "caBundle": webhook.ca_bundle,
            },
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    accepts(client.post(WEBHOOKS, &config).await).unwrap();
    let map = json!({"metadata": {"name": "a"}});
    let status = rejects(client.post(MAPS, &map).await, 500, "InternalError").unwrap();
    let words = "no endpoints available for service \"hook\"";
    assert!(status["message"].as_str().unwrap().ends_with(words), "{status}");
    assert_eq!(webhook.take_calls().len(), 0, "the webhook was called on the loopback address");
    // A URL of an administrator may lead to this host.
    let url = json!({"webhooks": [{"name": "guard.example.com", "clientConfig": {
        "service": null, "caBundle": webhook.ca_bundle, "url": format!("https://127.0.0.1:{}/", webhook.port),
    }}]});
    let patched = client
        .send(
            http::Method::PATCH,
            &format!("{WEBHOOKS}/guards"),
            &[("content-type", "application/strategic-merge-patch+json")],
            url.to_string().into(),
        )
        .await;
    accepts(patched).unwrap();
    accepts(client.post(MAPS, &map).await).unwrap();
    assert_eq!(webhook.take_calls().len(), 1);
}

/// Waits for the condition of its APIService.
async fn wait_for_condition_reason(client: &Client, reason: &str) -> String {
    eventually(Duration::from_secs(20), async || {
        let service = accepts(client.get(&format!("{API_SERVICES}/{NAME}")).await)?;
        let condition = &service["status"]["conditions"][0];
        if condition["reason"] == reason {
            return Ok(condition["message"].as_str().unwrap_or_default().to_owned());
        }
        Err(Problem::new(format!("{condition}")))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_endpoint_slice_with_names_does_not_send_aggregated_requests_to_this_host() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let extension = AggregatedServer::start("wardle.default.svc", None, |_| {
        AggregatedReply::Json(200, json!({"kind": "APIResourceList"}))
    })
    .await
    .unwrap();
    accepts(client.post(SERVICES, &service("wardle")).await).unwrap();
    accepts(client.post(SLICES, &slice("wardle", "FQDN", "127.0.0.1", extension.port)).await).unwrap();
    let registered = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000,
            "versionPriority": 200, "caBundle": extension.ca_bundle,
            "service": {"namespace": "default", "name": "wardle", "port": 8443},
        },
    });
    accepts(client.post(API_SERVICES, &registered).await).unwrap();
    wait_for_condition_reason(&client, "EndpointsNotFound").await;
    let answer = client.get("/apis/wardle.example.com/v1alpha1/fischers").await.unwrap();
    assert_eq!(answer.code, 503, "{}", answer.text());
    assert!(extension.received().is_empty(), "the loopback address was called");

    // The name of an ExternalName service is resolved for each connection, and the resulting address is checked.
    accepts(client.delete(&format!("{SERVICES}/wardle")).await).unwrap();
    let external = |name: &str| json!({"metadata": {"name": "wardle"}, "spec": {"type": "ExternalName", "externalName": name}});
    accepts(client.post(SERVICES, &external("127.0.0.1")).await).unwrap();
    let patch = json!({"spec": {"service": {"port": extension.port}}});
    let patched = client
        .send(
            http::Method::PATCH,
            &format!("{API_SERVICES}/{NAME}"),
            &[("content-type", "application/merge-patch+json")],
            patch.to_string().into(),
        )
        .await;
    accepts(patched).unwrap();
    let message = wait_for_condition_reason(&client, "FailedDiscoveryCheck").await;
    assert!(message.contains("address not allowed"), "{message}");
    assert!(extension.received().is_empty(), "the loopback address was called");

    // The name `localhost` is allowed explicitly for development clusters.
    accepts(client.delete(&format!("{SERVICES}/wardle")).await).unwrap();
    accepts(client.post(SERVICES, &external("localhost")).await).unwrap();
    wait_for_condition_reason(&client, "Passed").await;
}
