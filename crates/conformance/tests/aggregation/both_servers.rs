//! Starts a server with an aggregated API server behind it.

use std::time::Duration;

use conformance::aggregated_server::{AggregatedReply, AggregatedServer, Received};
use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::{Value, json};

pub(crate) const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(crate) const GROUP: &str = "wardle.example.com";
pub(crate) const ROOT: &str = "/apis/wardle.example.com/v1alpha1";
pub(crate) const FISCHERS: &str = "/apis/wardle.example.com/v1alpha1/fischers";
pub(crate) const NAME: &str = "v1alpha1.wardle.example.com";
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn resource_list() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1", "resources": [
        {"name": "fischers", "singularName": "fischer", "namespaced": false, "kind": "Fischer", "verbs": ["get", "list", "watch", "create"]}
    ]})
}

pub(crate) fn fischers() -> Value {
    let item = json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Fischer", "metadata": {"name": "fritz", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "FischerList", "metadata": {"resourceVersion": "7"}, "items": [item]})
}

/// Answers of a server that has only unaggregated discovery.
pub(crate) fn without_aggregated_discovery(received: &Received) -> AggregatedReply {
    match (received.path(), received.target.contains("watch=")) {
        (ROOT, _) => AggregatedReply::Json(200, resource_list()),
        (FISCHERS, true) => AggregatedReply::Stream,
        (FISCHERS, false) => AggregatedReply::Json(200, fischers()),
        _ => AggregatedReply::Json(
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
        ),
    }
}

/// Answers of a server with aggregated discovery and OpenAPI v3.
pub(crate) fn with_aggregated_discovery(received: &Received) -> AggregatedReply {
    match received.path() {
        "/apis" => {
            let verbs = ["get", "list", "watch", "create"];
            let resource = json!({"resource": "fischers", "responseKind": {"group": "", "version": "", "kind": "Fischer"}, "scope": "Cluster", "singularResource": "fischer", "verbs": verbs, "shortNames": ["fi"]});
            let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
                {"metadata": {"name": GROUP}, "versions": [{"version": "v1alpha1", "freshness": "Current", "resources": [resource]}]}]});
            AggregatedReply::Raw(200, AGGREGATED, Vec::new(), list.to_string())
        }
        "/openapi/v3" => AggregatedReply::Json(
            200,
            json!({"paths": {
                "apis/wardle.example.com/v1alpha1": {"serverRelativeURL": "/openapi/v3/apis/wardle.example.com/v1alpha1?hash=1"},
                "apis/wardle.example.com": {"serverRelativeURL": "/openapi/v3/apis/wardle.example.com?hash=2"},
                "apis/apps": {"serverRelativeURL": "/openapi/v3/apis/apps?hash=3"},
                "api/v1": {"serverRelativeURL": "https://evil.example.com/"},
            }}),
        ),
        "/openapi/v3/apis/wardle.example.com" => {
            AggregatedReply::Json(200, json!({"openapi": "3.0.0", "info": {"title": "the group"}}))
        }
        "/openapi/v3/apis/wardle.example.com/v1alpha1" => {
            AggregatedReply::Json(200, json!({"openapi": "3.0.0", "info": {"title": "wardle"}}))
        }
        "/openapi/v2" => AggregatedReply::Json(
            200,
            json!({"swagger": "2.0", "info": {}, "paths": {
                "/apis/wardle.example.com/v1alpha1/fischers": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/com.example.Fischer"}}}}},
                "/api/v1/namespaces/{namespace}/configmaps": {"get": {"description": "not theirs"}},
            }, "definitions": {
                "com.example.Fischer": {"type": "object", "properties": {"metadata": {"$ref": "#/definitions/io.k8s.api.core.v1.ConfigMap"}}},
                "io.k8s.api.core.v1.ConfigMap": {"type": "string"},
                "unused": {"type": "object"},
            }}),
        ),
        _ => without_aggregated_discovery(received),
    }
}

pub(crate) fn service(port: u16, ca_bundle: &str) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME}, "spec": {
        "group": GROUP, "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200, "caBundle": ca_bundle,
        "service": {"namespace": "default", "name": "wardle", "port": port}}})
}

/// A Service whose endpoint is this machine.
pub(crate) async fn create_service(client: &Client) {
    let service = json!({"metadata": {"name": "wardle"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    accepts(client.post("/api/v1/namespaces/default/services", &service).await).unwrap();
}

/// The CA of front proxies, from the config map `extension-apiserver-authentication`.
pub(crate) async fn proxies(client: &Client) -> String {
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = accepts(client.get(path).await).unwrap();
    map["data"]["requestheader-client-ca-file"].as_str().unwrap().to_owned()
}

/// Waits until the condition of an APIService has this reason.
pub(crate) async fn wait_for_condition(client: &Client, name: &str, status: &str, reason: &str) -> Value {
    eventually(PATIENCE, async || {
        let service = accepts(client.get(&format!("{SERVICES}/{name}")).await)?;
        let condition = service["status"]["conditions"][0].clone();
        if condition["status"] == status && condition["reason"] == reason {
            Ok(condition)
        } else {
            Err(Problem::new(format!("{condition}")))
        }
    })
    .await
    .unwrap()
}

/// Starts both servers with default configuration.
pub(crate) async fn start_both(
    reply: impl Fn(&Received) -> AggregatedReply + Send + Sync + 'static,
) -> (Server, Client, AggregatedServer) {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let authority = proxies(&client).await;
    let extension = start_behind(&client, Some(&authority), reply).await;
    (server, client, extension)
}

/// Starts an aggregated API server behind a server, whose front proxies have certificates of this CA.
pub(crate) async fn start_behind(
    client: &Client,
    authority: Option<&str>,
    reply: impl Fn(&Received) -> AggregatedReply + Send + Sync + 'static,
) -> AggregatedServer {
    let extension = AggregatedServer::start("wardle.default.svc", authority, reply).await.unwrap();
    create_service(client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    wait_for_condition(client, NAME, "True", "Passed").await;
    extension
}
