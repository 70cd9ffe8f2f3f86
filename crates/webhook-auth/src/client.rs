//! Integration with a kube client: tokens for aggregated API servers; keys and TokenReviews for webhooks.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use serde_json::Value;

use crate::Pending;
use crate::keys::{FetchError, FetchKeys};
use crate::tokens::{Issued, RequestToken, TokenCache, TokenError, TokenProperties};
use crate::verify::{
    ClientConfig, Configuration, Dialect, JWKS_PATH, JWKS_TYPE, KeySet, PROVIDER_PATH, Provider,
};

/// Tokens for the webhooks that an aggregated API server calls about one API group.
///
/// The client's user needs `create` on `serviceaccounts/token` for the account, and the account needs
/// `attest` on the group. Use a separate account for each API server. Send tokens only over connections whose
/// server certificate was verified.
#[derive(Clone, Debug)]
pub struct WebhookTokens {
    cache: TokenCache,
    group: String,
}

impl WebhookTokens {
    /// Tokens of this service account, for requests about this API group. Uses the dialect of Kubernetes
    /// 1.37, except for the core group, which only the KEP's dialect supports.
    pub fn new(client: Client, namespace: &str, account: &str, group: &str) -> Self {
        let dialect = if group.is_empty() { Dialect::AttestationClaims } else { Dialect::Attestations };
        Self::in_dialect(client, namespace, account, group, dialect)
    }

    /// Like [`WebhookTokens::new`], with a specific dialect.
    pub fn in_dialect(client: Client, namespace: &str, account: &str, group: &str, dialect: Dialect) -> Self {
        let path =
            format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", segment(namespace), segment(account));
        let source = RequestingAccount { client, path, dialect };
        WebhookTokens { cache: TokenCache::new(source), group: group.to_owned() }
    }

    /// The bearer token to send to a webhook of this configuration. Tokens are cached until shortly before
    /// they expire, or until the configuration's uid changes.
    ///
    /// If this fails, call the webhook without a token: it decides whether it requires one.
    pub async fn token(
        &self,
        configuration: &Configuration,
        webhook: &ClientConfig,
    ) -> Result<Arc<str>, TokenError> {
        self.cache.token(&TokenProperties::new(configuration, webhook, self.group.clone())?).await
    }

    /// Drops the tokens of a deleted configuration, whatever its uid.
    pub fn forget(&self, configuration: &Configuration) {
        self.cache.forget(configuration);
    }
}

struct RequestingAccount {
    client: Client,
    path: String,
    dialect: Dialect,
}

impl RequestToken for RequestingAccount {
    fn request<'a>(&'a self, properties: &'a TokenProperties) -> Pending<'a, Result<Issued, TokenError>> {
        Box::pin(async move {
            let body = properties.to_request(self.dialect)?;
            let answer = post(&self.client, &self.path, &body).await.map_err(|error| match error {
                kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
                    TokenError::Refused(status.message.clone())
                }
                other => TokenError::Failed(other.to_string()),
            })?;
            Issued::from_answer(&answer)
                .ok_or_else(|| TokenError::Failed("the answer has no token".to_owned()))
        })
    }
}

/// Reads the issuer's keys from the client's API server, whatever the issuer's URL. By default every service
/// account may do so (role `system:service-account-issuer-discovery`).
#[derive(Clone)]
pub struct ApiServerKeys {
    client: Client,
    issuer: String,
}

impl ApiServerKeys {
    /// Keys of this issuer.
    pub fn new(client: Client, issuer: impl Into<String>) -> Self {
        ApiServerKeys { client, issuer: issuer.into() }
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Vec<u8>, FetchError> {
        let failed = |error: &dyn fmt::Display| FetchError::Transport(format!("{path}: {error}"));
        let request = Request::get(path).header(ACCEPT, accept).body(Vec::new()).map_err(|e| failed(&e))?;
        Ok(self.client.request_text(request).await.map_err(|e| failed(&e))?.into_bytes())
    }
}

impl FetchKeys for ApiServerKeys {
    fn fetch(&self) -> Pending<'_, Result<KeySet, FetchError>> {
        Box::pin(async move {
            Provider::read(&self.get(PROVIDER_PATH, "application/json").await?, &self.issuer)?;
            Ok(KeySet::from_jwks(&self.get(JWKS_PATH, JWKS_TYPE).await?)?)
        })
    }
}

impl fmt::Debug for ApiServerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerKeys").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Asks the API server about every token, with a TokenReview that times out after five seconds. The client's user needs
/// `create` on `tokenreviews`.
#[cfg(feature = "tower")]
#[derive(Clone)]
pub struct TokenReviews {
    client: Client,
}

#[cfg(feature = "tower")]
impl TokenReviews {
    /// Sends TokenReviews with this client.
    pub fn new(client: Client) -> Self {
        TokenReviews { client }
    }
}

#[cfg(feature = "tower")]
impl fmt::Debug for TokenReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews").finish_non_exhaustive()
    }
}

#[cfg(feature = "tower")]
impl crate::layer::ReviewToken for TokenReviews {
    fn review<'a>(
        &'a self,
        token: &'a str,
        identity: &'a crate::Identity,
    ) -> Pending<'a, Result<(), crate::Rejection>> {
        use crate::{Reason, Rejection};
        use serde_json::json;
        Box::pin(async move {
            let body = json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token, "audiences": [identity.audience()]},
            });
            let asked = post(&self.client, "/apis/authentication.k8s.io/v1/tokenreviews", &body);
            let asked = tokio::time::timeout(std::time::Duration::from_secs(5), asked).await;
            let unavailable = |detail: String| Rejection::new(Reason::ReviewUnavailable, detail);
            let answer = asked
                .map_err(|_| unavailable("the API server did not respond in time".to_owned()))?
                .map_err(|error| unavailable(error.to_string()))?;
            let status = |pointer: &str| answer.pointer(&format!("/status/{pointer}"));
            let for_us = |list: &Value| {
                list.as_array().is_some_and(|list| list.iter().any(|item| item == identity.audience()))
            };
            let good = status("authenticated") == Some(&Value::Bool(true))
                && status("audiences").is_some_and(for_us)
                && status("user/username").and_then(Value::as_str) == Some(identity.subject());
            if good {
                return Ok(());
            }
            let why = status("error").and_then(Value::as_str).unwrap_or("not authenticated");
            Err(Rejection::new(Reason::Reviewed, format!("the API server says {why:?}")))
        })
    }
}

async fn post(client: &Client, path: &str, body: &Value) -> kube::Result<Value> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Escapes a name as one path segment. Kubernetes names need no escaping; anything else cannot leave its
/// segment.
fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
