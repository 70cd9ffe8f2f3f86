//! [`ClientConfig`]: derives the audience of tokens from a webhook's address.

use serde::{Deserialize, Serialize};

/// The fields of a webhook's `clientConfig` that determine the audience.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClientConfig {
    /// The webhook's URL; excludes `service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The webhook's service in the cluster; excludes `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
}

/// The service in front of a webhook, as in `clientConfig.service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ServiceReference {
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub name: String,
    /// The URL path; `/` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port of the service; 443 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl ClientConfig {
    /// A webhook with a URL.
    pub fn url(url: impl Into<String>) -> Self {
        ClientConfig { url: Some(url.into()), service: None }
    }

    /// A webhook behind a service, with default port and path.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let service =
            ServiceReference { namespace: namespace.into(), name: name.into(), path: None, port: None };
        ClientConfig { url: None, service: Some(service) }
    }

    /// The audience of tokens for this webhook: the URL verbatim, or `https://NAME.NAMESPACE.svc:PORT/PATH`,
    /// always with the port. API servers and webhooks derive it the same way. `None` if neither or both are
    /// set.
    pub fn audience(&self) -> Option<String> {
        match (&self.url, &self.service) {
            (Some(url), None) => Some(url.clone()),
            (None, Some(ServiceReference { namespace, name, path, port })) => {
                let path = path.as_deref().unwrap_or_default();
                let slash = if path.starts_with('/') { "" } else { "/" };
                Some(format!("https://{name}.{namespace}.svc:{}{slash}{path}", port.unwrap_or(443)))
            }
            _ => None,
        }
    }
}
