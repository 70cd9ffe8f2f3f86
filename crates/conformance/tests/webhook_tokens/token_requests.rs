//! Starts a server with the feature gate, and creates webhook configurations and token requests.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use conformance::webhook::{ReviewCall, WebhookServer};
use conformance::{Client, Result, Server, accepts};
use serde_json::{Value, json};

pub(crate) const ON: &str = "--feature-gates=APIServerWebhookAuthenticationToken=true";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
pub(crate) const OWN_ACCOUNT: &str = "/api/v1/namespaces/kube-system/serviceaccounts/webhook-auth";
pub(crate) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(crate) const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(crate) const VALIDATING: &str = "ValidatingWebhookConfiguration";
pub(crate) const MUTATING: &str = "MutatingWebhookConfiguration";
pub(crate) const KINDS: [&str; 2] = [VALIDATING, MUTATING];

/// Kubernetes' names and the KEP's: field, key, group and resource of the permission.
pub(crate) const KUBERNETES: [&str; 4] =
    ["attestations", "admissionReviewAPIGroups", "authentication.k8s.io", "admissionReviewAPIGroups"];
pub(crate) const KEP: [&str; 4] = [
    "attestationClaims",
    "webhook-authentication.k8s.io/allowedAPIGroup",
    "webhook-authentication.k8s.io",
    "apigroups",
];

pub(crate) fn configurations(kind: &str) -> String {
    let plural = if kind == MUTATING { "mutating" } else { "validating" };
    format!("/apis/admissionregistration.k8s.io/v1/{plural}webhookconfigurations")
}

pub(crate) async fn serve(flags: &[&str]) -> (Server, Client) {
    let server = Server::serve(flags).await.unwrap();
    let client = server.client().unwrap();
    (server, client)
}

/// A webhook for these resources of the core group, at a URL or service.
pub(crate) fn hook(client_config: &Value, resources: &[&str]) -> Value {
    json!({
        "name": "guard.example.com",
        "clientConfig": client_config,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    })
}

pub(crate) fn at(server: &WebhookServer) -> Value {
    json!({"url": server.url("/review"), "caBundle": server.ca_bundle})
}

pub(crate) async fn register(client: &Client, kind: &str, name: &str, hooks: &[Value]) -> Value {
    let body = json!({"metadata": {"name": name}, "webhooks": hooks});
    accepts(client.post(&configurations(kind), &body).await).unwrap()
}

/// Configurations of both kinds named `hooks` whose webhooks are never called.
pub(crate) async fn register_unused_webhooks(client: &Client) -> Vec<Value> {
    let quiet = |name: &str, config: Value, groups: &[&str]| {
        json!({
            "name": name, "clientConfig": config, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": groups, "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["nothings"]}],
        })
    };
    let hooks = [
        quiet("apps.example.com", json!({"url": "https://apps.example/a"}), &["apps", "gone.example.com"]),
        quiet("svc.example.com", json!({"service": {"namespace": "ns", "name": "svc"}}), &["batch"]),
        quiet("core.example.com", json!({"url": "https://core.example/"}), &[""]),
    ];
    let mut made = Vec::new();
    for kind in KINDS {
        made.push(register(client, kind, "hooks", &hooks).await);
    }
    made
}

/// An account that may request tokens for these names, with one set of names.
pub(crate) async fn account(client: &Client, name: &str, [_, _, group, resource]: [&str; 4], names: &[&str]) {
    accepts(client.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await).unwrap();
    grant(client, name, [group, resource], names).await;
}

pub(crate) async fn grant(client: &Client, account: &str, [group, resource]: [&str; 2], names: &[&str]) {
    let name = format!("{account}-{resource}").to_lowercase();
    let role = json!({"metadata": {"name": name}, "rules": [
        {"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["attest"]}]});
    accepts(client.post(ROLES, &role).await).unwrap();
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}]});
    accepts(client.post(BINDINGS, &binding).await).unwrap();
}

/// A token request, of which a test changes the attestation.
pub(crate) fn request(kind: &str, [field, key, ..]: [&str; 4], group: &str, audience: &str) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "audiences": [audience],
        "boundObjectRef": {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "name": "hooks"},
        field: {key: [group]},
    }})
}

pub(crate) fn token_of(account: &str) -> String {
    format!("{ACCOUNTS}/{account}/token")
}

/// The claims of a token.
pub(crate) fn claims(token: &str) -> Value {
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

/// The status of a TokenReview for an audience.
pub(crate) async fn review(client: &Client, token: &str, audience: &str) -> Value {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]}});
    let made = accepts(client.post("/apis/authentication.k8s.io/v1/tokenreviews", &body).await).unwrap();
    made["status"].clone()
}

/// Waits until a token is rejected; the cache may accept it for ten seconds more.
pub(crate) async fn wait_until_rejected(client: &Client, token: &str, audience: &str) -> String {
    conformance::eventually(Duration::from_secs(30), async || {
        let status = review(client, token, audience).await;
        if status["authenticated"] == true {
            return Err(conformance::Problem::new(format!("still accepted: {status}")));
        }
        Ok(status["error"].as_str().unwrap_or_default().to_owned())
    })
    .await
    .unwrap()
}

/// The resource, subresource and name that a review is about.
pub(crate) fn review_target(call: &ReviewCall) -> String {
    let text =
        |pointer: &str| call.review.pointer(pointer).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    format!(
        "{}/{} {}",
        text("/request/resource/resource"),
        text("/request/subResource"),
        text("/request/name")
    )
}

pub(crate) fn bearer_token(call: &ReviewCall) -> Option<String> {
    let header = call.headers.get("authorization")?.to_str().unwrap();
    Some(header.strip_prefix("Bearer ").unwrap().to_owned())
}

/// Creates a config map, for which webhooks are called.
pub(crate) async fn create(client: &Client, name: &str) -> Result<Value> {
    accepts(client.post(MAPS, &json!({"metadata": {"name": name}})).await)
}

/// A counter of the server, summed over the series that contain all of these words; 0 if there are none.
pub(crate) async fn metric_sum(client: &Client, family: &str, words: &str) -> f64 {
    let page = client.get("/metrics").await.unwrap().text();
    page.lines()
        .filter(|line| line.starts_with(family) && line.contains(words))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

pub(crate) const REQUESTS: &str = "apiserver_webhook_authentication_token_request_total{";
pub(crate) const DURATIONS: &str = "apiserver_webhook_authentication_token_request_duration_seconds_count{";
pub(crate) const LOOKUPS: &str = "apiserver_webhook_authentication_token_create_calls_total{";
