//! [`ClientConfig`]: how a configuration says where its webhook is → the audience of tokens for it.

use serde::{Deserialize, Serialize};

/// `clientConfig` of a webhook, as far as the audience goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClientConfig {
    /// Where it is, as a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where it is, as a service of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
}

/// A service of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ServiceReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The path; `/` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The port; 443 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl ClientConfig {
    /// A webhook at a URL.
    pub fn url(url: impl Into<String>) -> Self {
        ClientConfig { url: Some(url.into()), service: None }
    }

    /// A webhook behind a service, with the default port and path.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let service =
            ServiceReference { namespace: namespace.into(), name: name.into(), path: None, port: None };
        ClientConfig { url: None, service: Some(service) }
    }

    /// The audience of tokens for this webhook: the URL as it is written, or `https://NAME.NAMESPACE.svc:PORT/PATH` with the
    /// port always there. API servers and webhooks derive it alike. `None` if neither is given, or both.
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
