//! A sample aggregated API server: it serves one group, and calls the cluster's webhooks for its objects with tokens from the
//! library.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use conformance::{Client, accepts};
use serde_json::{Value, json};
use webhook_auth::ConfigurationKind;
use webhook_auth::client::WebhookTokens;
use webhook_auth::verify::Dialect;

use crate::aggregated_example::ask_webhooks;
use crate::site::{Site, account, allow, attest, kube_client};

pub(crate) const GROUP: &str = "ninja.turtles.ai";
pub(crate) const VERSION: &str = "/apis/ninja.turtles.ai/v1";
pub(crate) const TURTLES: &str = "/apis/ninja.turtles.ai/v1/namespaces/default/ninjaturtles";
pub(crate) const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// The service account of the webhook tokens, and the one that the server runs as.
pub(crate) const ACCOUNT: &str = "turtles-webhook-auth";
const OWN: &str = "turtles-apiserver";
const NAMESPACE: &str = "turtles";

/// The result of a call to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurtleCall {
    pub(crate) kind: ConfigurationKind,
    /// The token, or the error of its request.
    pub(crate) token: Result<String, String>,
    /// The answer of the webhook.
    pub(crate) code: u16,
}

/// The state that is needed to call webhooks.
#[derive(Clone)]
pub(crate) struct TurtleCaller {
    kube: kube::Client,
    pub(crate) tokens: WebhookTokens,
    calls: Arc<Mutex<Vec<TurtleCall>>>,
}

pub(crate) struct TurtleApiServer {
    pub(crate) site: Site,
    pub(crate) webhook_caller: TurtleCaller,
}

impl TurtleCaller {
    /// Calls every webhook for this group, as the example of the library does. Returns whether all of them allow it.
    pub(crate) async fn call_webhooks(&self, review: &Value) -> bool {
        let asked = ask_webhooks(&self.kube, &self.tokens, GROUP, review).await.unwrap();
        let allowed = asked.iter().all(|asked| asked.allowed);
        self.calls.lock().unwrap().extend(asked.into_iter().map(|asked| TurtleCall {
            kind: asked.configuration.kind,
            token: asked.token.map(|token| token.to_string()).map_err(|error| error.to_string()),
            code: asked.status,
        }));
        allowed
    }

    pub(crate) fn take(&self) -> Vec<TurtleCall> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

/// Creates a turtle if the webhooks allow it.
async fn create(
    State(webhook_caller): State<TurtleCaller>,
    Path(namespace): Path<String>,
    body: String,
) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    let object: Value = serde_json::from_str(&body).unwrap();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": namespace, "name": object["metadata"]["name"],
            "kind": {"group": GROUP, "version": "v1", "kind": "NinjaTurtle"},
            "resource": {"group": GROUP, "version": "v1", "resource": "ninjaturtles"},
            "object": object, "userInfo": {"username": "ben"},
        },
    });
    let json = [("content-type", "application/json")];
    if webhook_caller.call_webhooks(&review).await {
        (StatusCode::CREATED, json, object.to_string())
    } else {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403});
        (StatusCode::FORBIDDEN, json, status.to_string())
    }
}

impl TurtleApiServer {
    /// Sets up accounts and permissions as the KEP recommends, and starts the server.
    pub(crate) async fn start(url: &str, client: &Client, dialect: Dialect) -> Self {
        accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await).unwrap();
        let own = account(client, NAMESPACE, OWN).await;
        account(client, NAMESPACE, ACCOUNT).await;
        let rules = json!([
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [ACCOUNT], "verbs": ["create"]},
        ]);
        allow(client, NAMESPACE, OWN, "work", &rules).await;
        allow(client, NAMESPACE, ACCOUNT, "attest", &attest(&[GROUP])).await;
        let webhook_caller = Self::webhook_caller(url, &own, GROUP, dialect).await;

        let proxies = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let proxies = accepts(client.get(proxies).await).unwrap();
        let proxies = proxies["data"]["requestheader-client-ca-file"].as_str().unwrap();
        let site = Site::start("turtles.turtles.svc", Some(proxies), |_| {
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ninja.turtles.ai/v1", "resources": [
                {"name": "ninjaturtles", "singularName": "ninjaturtle", "namespaced": true, "kind": "NinjaTurtle", "verbs": ["create"]}
            ]});
            let json = [("content-type", "application/json")];
            Router::new()
                .route(VERSION, get(async move || (json, list.to_string())))
                .route("/apis/ninja.turtles.ai/v1/namespaces/{namespace}/ninjaturtles", post(create))
                .with_state(webhook_caller.clone())
        })
        .await;
        TurtleApiServer { site, webhook_caller }
    }

    /// The state that is needed to call webhooks for a group.
    pub(crate) async fn webhook_caller(url: &str, own: &str, group: &str, dialect: Dialect) -> TurtleCaller {
        let kube = kube_client(url, own).await;
        let tokens = WebhookTokens::in_dialect(kube.clone(), NAMESPACE, ACCOUNT, group, dialect);
        TurtleCaller { kube, tokens, calls: Arc::default() }
    }

    pub(crate) async fn register(&self, client: &Client) {
        let service = json!({"metadata": {"name": "turtles"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
        accepts(client.post("/api/v1/namespaces/turtles/services", &service).await).unwrap();
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.ninja.turtles.ai"}, "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200, "caBundle": self.site.ca_bundle(),
            "service": {"namespace": NAMESPACE, "name": "turtles", "port": self.site.port}}});
        accepts(client.post(SERVICES, &service).await).unwrap();
    }
}
