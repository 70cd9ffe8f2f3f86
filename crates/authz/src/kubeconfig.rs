//! The kubeconfig that says where a webhook is and as whom to ask: text → [`Connection`].
//!
//! Only what a server needs is taken: one context, its cluster and its user. Credentials that would need a program to be run
//! are refused.

mod users;

use std::fmt;

use api::field::quote;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use value::{Str, Value, yaml};

pub use users::Users;

/// Where to connect, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The URL.
    pub server: Str,
    /// Whom to trust; `None` trusts the system's authorities.
    pub certificate_authority: Option<Material>,
    /// The name the server must prove, if not the URL's.
    pub server_name: Str,
    /// Whether anybody is trusted.
    pub insecure: bool,
    /// The proxy to go through.
    pub proxy_url: Str,
    /// The client certificate and its key.
    pub certificate: Option<(Material, Material)>,
    /// How else to say who is asking.
    pub credential: Credential,
}

/// As whom to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The client certificate and its key.
    pub certificate: Option<(Material, Material)>,
    /// How else to say who is asking.
    pub credential: Credential,
}

/// PEM in a file, or in place.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// A file, by its path; relative ones are relative to the kubeconfig.
    File(Str),
    /// The bytes.
    Inline(Vec<u8>),
}

/// What goes into the `Authorization` header.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    #[default]
    None,
    /// A bearer token.
    Token(Str),
    /// A bearer token in a file that may change.
    TokenFile(Str),
    /// A name and a password.
    Basic(Str, Str),
}

/// Why a kubeconfig cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It says nothing.
    #[error(
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
    )]
    Empty,
    /// The current context is not there.
    #[error("context {} does not exist", quote(.0))]
    NoContext(Str),
    /// The context's cluster is not there.
    #[error("cluster {} does not exist", quote(.0))]
    NoCluster(Str),
    /// The context's user is not there.
    #[error("auth info {} does not exist", quote(.0))]
    NoUser(Str),
    /// The cluster has no address.
    #[error("invalid configuration: no server found for cluster {}", quote(.0))]
    NoServer(Str),
    /// Base64 that is not.
    #[error("illegal base64 data in {0}")]
    Base64(&'static str),
    /// A certificate without a key, or the other way round.
    #[error("invalid configuration: client-certificate and client-key must be specified together")]
    HalfCertificate,
    /// Credentials that a program would have to be run for.
    #[error("user {}: {} is not supported: the server runs no other program to get credentials", quote(.0), .1)]
    Program(Str, &'static str),
}

impl Connection {
    /// Reads the current context of a kubeconfig.
    pub fn parse(text: &[u8]) -> Result<Self, KubeconfigError> {
        let config =
            yaml::document(text).map_err(|error| KubeconfigError::Unreadable(error.to_string()))?.value;
        if config.as_map().is_none_or(value::Map::is_empty) {
            return Err(KubeconfigError::Empty);
        }
        let current = Str::from(config.str_at(&["current-context"]).unwrap_or_default());
        if current.is_empty() {
            return Err(KubeconfigError::Empty);
        }
        let context =
            entry(&config, "contexts", "context", &current).ok_or(KubeconfigError::NoContext(current))?;
        let named = |field: &str| Str::from(context.str_at(&[field]).unwrap_or_default());
        let (cluster_name, user_name) = (named("cluster"), named("user"));
        let cluster = entry(&config, "clusters", "cluster", &cluster_name)
            .ok_or_else(|| KubeconfigError::NoCluster(cluster_name.clone()))?;
        let nobody = Value::Map(value::Map::new());
        let user = match entry(&config, "users", "user", &user_name) {
            Some(user) => user,
            None if user_name.is_empty() => &nobody,
            None => return Err(KubeconfigError::NoUser(user_name)),
        };

        let text = |object: &Value, field: &str| Str::from(object.str_at(&[field]).unwrap_or_default());
        let server = text(cluster, "server");
        if server.is_empty() {
            return Err(KubeconfigError::NoServer(cluster_name));
        }
        let User { certificate, credential } = User::read(user, &user_name)?;
        Ok(Connection {
            server,
            certificate_authority: material(cluster, "certificate-authority", "certificate-authority-data")?,
            server_name: text(cluster, "tls-server-name"),
            insecure: cluster.bool_at(&["insecure-skip-tls-verify"]).unwrap_or(false),
            proxy_url: text(cluster, "proxy-url"),
            certificate,
            credential,
        })
    }
}

impl User {
    /// Reads one entry of `users`.
    fn read(user: &Value, name: &str) -> Result<Self, KubeconfigError> {
        let text = |object: &Value, field: &str| Str::from(object.str_at(&[field]).unwrap_or_default());
        for program in ["exec", "auth-provider"] {
            if user.at(&[program]).is_some_and(|p| !p.is_null()) {
                return Err(KubeconfigError::Program(name.into(), program));
            }
        }
        let certificate = match (
            material(user, "client-certificate", "client-certificate-data")?,
            material(user, "client-key", "client-key-data")?,
        ) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(KubeconfigError::HalfCertificate),
        };
        // A token file that is named wins over a token, as it may be newer; both win over a password.
        let (token, file, name) = (text(user, "token"), text(user, "tokenFile"), text(user, "username"));
        let credential = if !file.is_empty() {
            Credential::TokenFile(file)
        } else if !token.is_empty() {
            Credential::Token(token)
        } else if !name.is_empty() {
            Credential::Basic(name, text(user, "password"))
        } else {
            Credential::None
        };
        Ok(User { certificate, credential })
    }
}

/// The last entry of a list that has the name, as Kubernetes' reader keeps it.
fn entry<'a>(config: &'a Value, list: &str, inner: &str, name: &str) -> Option<&'a Value> {
    let items = config.list_at(&[list]);
    items.iter().rev().find(|item| item.str_at(&["name"]) == Some(name))?.at(&[inner])
}

/// Data in place wins over a file.
fn material(object: &Value, file: &str, data: &'static str) -> Result<Option<Material>, KubeconfigError> {
    if let Some(text) = object.str_at(&[data]).filter(|text| !text.is_empty()) {
        let text: String = text.split_ascii_whitespace().collect();
        let bytes = STANDARD.decode(text).map_err(|_| KubeconfigError::Base64(data))?;
        return Ok(Some(Material::Inline(bytes)));
    }
    let path = object.str_at(&[file]).filter(|path| !path.is_empty());
    Ok(path.map(|path| Material::File(path.into())))
}

/// Without what is inside: it may be a key.
impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Material::File(path) => write!(f, "File({path:?})"),
            Material::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
        }
    }
}

/// Without the secrets.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credential::None => f.write_str("None"),
            Credential::Token(_) => f.write_str("Token"),
            Credential::TokenFile(path) => write!(f, "TokenFile({path:?})"),
            Credential::Basic(name, _) => write!(f, "Basic({name:?})"),
        }
    }
}

#[cfg(test)]
mod tests;
