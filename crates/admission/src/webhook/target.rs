//! Parses `clientConfig`: a webhook's address and the CAs that it trusts.

use api::attestation::{self, WebhookConfigurationKind};
use api::meta;
use value::go::base64::STD;
use value::{Str, Value};

/// The default of `service.port`.
const DEFAULT_PORT: u16 = 443;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WebhookTarget {
    pub endpoint: WebhookEndpoint,
    /// PEM of the `caBundle`; if empty, the system's CAs are trusted.
    pub ca_bundle: Vec<u8>,
}

/// The webhook that a token is issued for (KEP-6060).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRecipient {
    pub kind: WebhookConfigurationKind,
    /// The uid of the webhook's configuration.
    pub uid: Str,
    /// The name of the webhook's configuration.
    pub configuration: Str,
    /// The audience that the token must have.
    pub audience: Str,
}

impl TokenRecipient {
    /// `None` if a token cannot be bound to the webhook. The `kind` is that of the directory in which the configuration is stored.
    pub(super) fn read(
        kind: WebhookConfigurationKind,
        configuration: &Value,
        webhook: &Value,
    ) -> Option<Self> {
        Some(TokenRecipient {
            kind,
            uid: Some(meta::uid(configuration)).filter(|uid| !uid.is_empty())?.into(),
            configuration: meta::name(configuration).into(),
            audience: attestation::audience(webhook.get("clientConfig")?)?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WebhookEndpoint {
    Url(Str),
    /// Reached through the service's endpoints; its certificate must be valid for `NAME.NAMESPACE.svc`.
    Service {
        namespace: Str,
        name: Str,
        port: u16,
        /// The URL path; may be empty.
        path: Str,
    },
    /// Neither is set. Validation does not allow this.
    Unset,
}

impl WebhookTarget {
    /// Reads a validated `clientConfig`.
    pub fn read(config: Option<&Value>) -> Self {
        let text = |keys: &[&str]| config.and_then(|config| config.str_at(keys)).unwrap_or_default();
        let endpoint = match (config.and_then(|config| config.get("service")), text(&["url"])) {
            (Some(Value::Map(_)), _) => WebhookEndpoint::Service {
                namespace: text(&["service", "namespace"]).into(),
                name: text(&["service", "name"]).into(),
                port: config
                    .and_then(|config| config.int_at(&["service", "port"]))
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(DEFAULT_PORT),
                path: text(&["service", "path"]).into(),
            },
            (_, "") => WebhookEndpoint::Unset,
            (_, url) => WebhookEndpoint::Url(url.into()),
        };
        // Decoding has already rejected invalid base64.
        let ca_bundle = STD.decode(text(&["caBundle"])).unwrap_or_default();
        WebhookTarget { endpoint, ca_bundle }
    }
}

impl WebhookEndpoint {
    /// The DNS name that a service's certificate must be valid for.
    pub fn service_host(namespace: &str, name: &str) -> String {
        format!("{name}.{namespace}.svc")
    }
}
