//! An aggregated API server calls the cluster's webhooks about an object of its own API group, with tokens that are valid for
//! this group only.
//!
//! ```sh
//! cargo run -p webhook-auth --features client --example aggregated -- turtles turtles-webhook-auth ninja.turtles.ai review.json
//! ```
//!
//! Arguments: namespace and name of the service account whose tokens are sent to webhooks, the API group, and a file with an
//! AdmissionReview. `docs/tasks/authenticate-to-webhooks.md` lists the permissions that account and caller need, in both dialects.

use std::error::Error;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::Client;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig as TlsConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use webhook_auth::client::WebhookTokens;
use webhook_auth::tokens::TokenError;
use webhook_auth::verify::Configuration;
use webhook_auth::{ClientConfig, ConfigurationKind};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The result of calling a webhook.
#[derive(Debug)]
pub(crate) struct AggregatedWebhookCall {
    /// The configuration that contains the webhook.
    pub(crate) configuration: Configuration,
    /// The token that was sent, or the reason why there was none.
    pub(crate) token: std::result::Result<Arc<str>, TokenError>,
    /// The HTTP status of the response.
    pub(crate) status: u16,
    /// Whether the webhook allows the request.
    pub(crate) allowed: bool,
}

/// Calls every webhook with a rule for the group. A real API server also matches versions, resources,
/// operations, selectors and match conditions, applies `timeoutSeconds` and `failurePolicy`, and applies the
/// patches of mutating webhooks.
pub(crate) async fn ask_webhooks(
    client: &Client,
    tokens: &WebhookTokens,
    group: &str,
    review: &Value,
) -> Result<Vec<AggregatedWebhookCall>> {
    let mut asked = Vec::new();
    for (kind, plural) in [
        (ConfigurationKind::Mutating, "mutatingwebhookconfigurations"),
        (ConfigurationKind::Validating, "validatingwebhookconfigurations"),
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        for object in items(&list, "items") {
            let text = |field: &str| {
                let value = object.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            let configuration = Configuration { kind, name: text("name"), uid: text("uid") };
            for webhook in items(object, "webhooks").filter(|webhook| has_rule(webhook, group)) {
                asked.push(ask(tokens, &configuration, webhook, review).await?);
            }
        }
    }
    Ok(asked)
}

async fn ask(
    tokens: &WebhookTokens,
    configuration: &Configuration,
    webhook: &Value,
    review: &Value,
) -> Result<AggregatedWebhookCall> {
    let config = webhook.get("clientConfig").ok_or("a webhook without clientConfig")?;
    let client_config: ClientConfig = serde_json::from_value(config.clone())?;
    // The audience of a webhook is its URL. Within the cluster, the service's name resolves.
    let url: Uri = client_config.audience().ok_or("a webhook without an address")?.parse()?;
    let bundle = STANDARD.decode(config.get("caBundle").and_then(Value::as_str).unwrap_or_default())?;
    let token = tokens.token(configuration, &client_config).await;
    // The webhook is called even without a token: it decides whether it requires one.
    let (status, body) = post(&url, &bundle, token.as_deref().ok(), review).await?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let allowed = status == 200 && answer.pointer("/response/allowed") == Some(&Value::Bool(true));
    Ok(AggregatedWebhookCall { configuration: configuration.clone(), token, status, allowed })
}

/// Sends a review over TLS and verifies the server's name: a token must not be sent to any other server.
async fn post(url: &Uri, authorities: &[u8], token: Option<&str>, review: &Value) -> Result<(u16, Bytes)> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate?)?;
    }
    let tls = TlsConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let authority = url.authority().ok_or("an address without a host")?;
    let tcp = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(443))).await?;
    let name = ServerName::try_from(authority.host().to_owned())?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path)
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(review.to_string())))?;
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), 8 * 1024 * 1024).collect().await?;
    Ok((status, body.to_bytes()))
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn has_rule(webhook: &Value, group: &str) -> bool {
    items(webhook, "rules").flat_map(|rule| items(rule, "apiGroups")).any(|own| own == "*" || own == group)
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [namespace, account, group, file] = words.as_slice() else {
        return Err("usage: aggregated NAMESPACE ACCOUNT GROUP REVIEW".into());
    };
    // Uses the pod's service account in a cluster, otherwise KUBECONFIG.
    let client = Client::try_default().await?;
    let tokens = WebhookTokens::new(client.clone(), namespace, account, group);
    let review: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    for AggregatedWebhookCall { configuration, token, status, allowed } in
        ask_webhooks(&client, &tokens, group, &review).await?
    {
        let with = token.map_or_else(|why| format!("without a token ({why})"), |_| "with a token".to_owned());
        println!(
            "{} {}: asked {with}, answered {status}, allowed: {allowed}",
            configuration.kind, configuration.name
        );
    }
    Ok(())
}
