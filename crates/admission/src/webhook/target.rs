//! `clientConfig` → where a webhook is and whom to trust there.

use api::attestation::{self, WebhookConfigurationKind};
use api::meta;
use base64::Engine as _;
use value::{Str, Value};

/// The port of a service reference that names none.
const DEFAULT_PORT: u16 = 443;

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The place.
    pub place: Place,
    /// PEM of the authorities that may vouch for it; empty leaves that to those the system trusts.
    pub authorities: Vec<u8>,
}

/// Whom a token is for that is shown to a webhook: the webhook, by what it is registered in and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipient {
    /// The kind of its configuration.
    pub kind: WebhookConfigurationKind,
    /// The uid of its configuration.
    pub uid: Str,
    /// The name of its configuration.
    pub configuration: Str,
    /// What the token's audience has to be.
    pub audience: Str,
}

impl Recipient {
    /// A webhook of a configuration of the API.
    pub(super) fn read(configuration: &Value, hook: &Value) -> Option<Self> {
        Some(Recipient {
            kind: WebhookConfigurationKind::of_kind(configuration.str_at(&["kind"])?)?,
            uid: Some(meta::uid(configuration)).filter(|uid| !uid.is_empty())?.into(),
            configuration: meta::name(configuration).into(),
            audience: attestation::audience(hook.get("clientConfig")?)?,
        })
    }
}

/// A URL, or a service of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A URL.
    Url(Str),
    /// A service: reached through its endpoints, and it proves the name `NAME.NAMESPACE.svc`.
    Service {
        /// Its namespace.
        namespace: Str,
        /// Its name.
        name: Str,
        /// The port of the service.
        port: u16,
        /// The path there; may be empty.
        path: Str,
    },
    /// Neither, which validation does not let through.
    Nowhere,
}

impl Target {
    /// Reads a `clientConfig` that has been validated.
    pub fn read(config: Option<&Value>) -> Self {
        let text = |keys: &[&str]| config.and_then(|config| config.str_at(keys)).unwrap_or_default();
        let place = match (config.and_then(|config| config.get("service")), text(&["url"])) {
            (Some(Value::Map(_)), _) => Place::Service {
                namespace: text(&["service", "namespace"]).into(),
                name: text(&["service", "name"]).into(),
                port: config
                    .and_then(|config| config.int_at(&["service", "port"]))
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(DEFAULT_PORT),
                path: text(&["service", "path"]).into(),
            },
            (_, "") => Place::Nowhere,
            (_, url) => Place::Url(url.into()),
        };
        // The decoder of requests has refused what is not base64.
        let authorities =
            base64::engine::general_purpose::STANDARD.decode(text(&["caBundle"])).unwrap_or_default();
        Target { place, authorities }
    }
}

impl Place {
    /// The name that a service's server has to prove.
    pub fn service_host(namespace: &str, name: &str) -> String {
        format!("{name}.{namespace}.svc")
    }
}
