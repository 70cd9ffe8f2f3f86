//! Parses the kubeconfig of a webhook into a [`KubeconfigConnection`].
//!
//! It uses only the current context with its cluster and user. Credentials that require running a program are
//! rejected.

mod users;

use std::fmt;

use api::field::{aggregate, quote};
use value::go::url::Url;
use value::{Str, Value, go, yaml};

pub use users::KubeconfigUsers;

/// Address and credentials of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigConnection {
    pub server: Str,
    /// `None` trusts the system's CAs.
    pub certificate_authority: Option<PemSource>,
    /// The name to verify in the server's certificate, if it differs from the URL's.
    pub server_name: Str,
    /// Skips TLS verification (`insecure-skip-tls-verify`).
    pub insecure: bool,
    pub proxy_url: Str,
    /// Client certificate and key.
    pub certificate: Option<(PemSource, PemSource)>,
    pub credential: KubeconfigCredential,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigUser {
    /// Client certificate and key.
    pub certificate: Option<(PemSource, PemSource)>,
    pub credential: KubeconfigCredential,
}

/// PEM, inline or in a file.
#[derive(Clone, PartialEq, Eq)]
pub enum PemSource {
    /// Relative to the kubeconfig.
    File(Str),
    Inline(Vec<u8>),
}

/// The content of the `Authorization` header.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum KubeconfigCredential {
    #[default]
    None,
    Token(Str),
    /// A file with a bearer token, which may change.
    TokenFile(Str),
    /// User name and password.
    Basic(Str, Str),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    #[error("{0}")]
    Unreadable(String),
    /// The file is readable, but describes no usable connection.
    #[error("invalid configuration: {0}")]
    Invalid(String),
    /// User, feature and reason.
    #[error("user {}: {} is not supported: {}", quote(.0), .1, .2)]
    Unsupported(Str, &'static str, &'static str),
}

/// Resolves a path relative to the kubeconfig and checks whether the file can be opened.
pub type FileLookup<'a> = &'a dyn Fn(&str) -> (String, Result<(), String>);

const EMPTY: &str = "no configuration has been provided, try setting KUBERNETES_MASTER environment variable";
/// The location of Go's scheme for this kind, which is part of its error messages.
const SCHEME: &str = "k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50";
/// How Go prints the type with which it reads an object's kind.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

impl KubeconfigConnection {
    /// Parses the current context. Reports all errors, in kube-apiserver's words.
    pub fn parse(text: &[u8], files: FileLookup<'_>) -> Result<Self, KubeconfigError> {
        let config = yaml::document(text).map_err(|error| KubeconfigError::Unreadable(error.message))?.value;
        let config = TypedKubeconfig::new(config).map_err(KubeconfigError::Unreadable)?;
        let (mut errors, nothing) = (Vec::new(), Value::Map(value::Map::new()));
        let current = config.text(&["current-context"]);
        let context = config.entry("contexts", "context", current);
        if context.is_none() && !current.is_empty() {
            errors.push(format!("context was not found for specified context: {current}"));
        }
        let context = context.unwrap_or(&nothing);
        let named = |field: &str| Str::from(context.str_at(&[field]).unwrap_or_default());
        let (cluster_name, user_name) = (named("cluster"), named("user"));
        let user = config.entry("users", "user", &user_name).unwrap_or(&nothing);
        let cluster = config.entry("clusters", "cluster", &cluster_name);

        check_user(&user_name, user, files, &mut errors);
        match cluster {
            // An empty cluster counts as missing. If there are no other errors, the whole configuration
            // counts as missing.
            None if errors.is_empty() => errors.push(EMPTY.to_owned()),
            None => errors.push("cluster has no server defined".to_owned()),
            Some(cluster) => check_cluster(&cluster_name, cluster, files, &mut errors),
        }
        if !errors.is_empty() {
            return Err(KubeconfigError::Invalid(aggregate(&errors)));
        }
        let cluster = cluster.unwrap_or(&nothing);
        let text = |object: &Value, field: &str| Str::from(object.str_at(&[field]).unwrap_or_default());
        let KubeconfigUser { certificate, credential } = KubeconfigUser::read(user, &user_name, files)?;
        Ok(KubeconfigConnection {
            server: text(cluster, "server"),
            certificate_authority: material(cluster, "certificate-authority", "certificate-authority-data"),
            server_name: text(cluster, "tls-server-name"),
            insecure: cluster.bool_at(&["insecure-skip-tls-verify"]).unwrap_or(false),
            proxy_url: text(cluster, "proxy-url"),
            certificate,
            credential,
        })
    }
}

impl KubeconfigUser {
    /// Reads an entry of `users`.
    fn read(user: &Value, name: &str, files: FileLookup<'_>) -> Result<Self, KubeconfigError> {
        for program in ["exec", "auth-provider"] {
            if user.at(&[program]).is_some_and(|p| !p.is_null()) {
                let why = "the server runs no other program to get credentials";
                return Err(KubeconfigError::Unsupported(name.into(), program, why));
            }
        }
        let text = |object: &Value, field: &str| Str::from(object.str_at(&[field]).unwrap_or_default());
        let given = |field: &&str| {
            user.at(&[*field]).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
        };
        if ["as", "as-uid", "as-groups", "as-user-extra"].iter().any(given) {
            let why = "the server asks as itself";
            return Err(KubeconfigError::Unsupported(name.into(), "impersonation", why));
        }
        // A key without a certificate is ignored; a certificate without a key is an error.
        let (certificate, key) = (
            material(user, "client-certificate", "client-certificate-data"),
            material(user, "client-key", "client-key-data"),
        );
        if certificate.is_some() && key.is_none() {
            return Err(KubeconfigError::Invalid(needs_key(name)));
        }
        let certificate = certificate.zip(key);
        // A token file takes precedence over a token, as it can be newer; both take precedence over a
        // password.
        let (token, file, login) = (text(user, "token"), text(user, "tokenFile"), text(user, "username"));
        // If there is also a token, the token file may be missing.
        let credential = if !file.is_empty() && (token.is_empty() || files(&file).1.is_ok()) {
            KubeconfigCredential::TokenFile(file)
        } else if !token.is_empty() {
            KubeconfigCredential::Token(token)
        } else if !login.is_empty() {
            KubeconfigCredential::Basic(login, text(user, "password"))
        } else {
            KubeconfigCredential::None
        };
        Ok(KubeconfigUser { certificate, credential })
    }
}

fn needs_key(name: &str) -> String {
    format!(
        "client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
    )
}

fn has(object: &Value, field: &str) -> bool {
    object.str_at(&[field]).is_some_and(|text| !text.is_empty())
}

fn check_user(name: &str, user: &Value, files: FileLookup<'_>, errors: &mut Vec<String>) {
    if has(user, "client-certificate") || has(user, "client-certificate-data") {
        if has(user, "client-certificate") && has(user, "client-certificate-data") {
            errors.push(format!(
                "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
            ));
        }
        if has(user, "client-key") && has(user, "client-key-data") {
            errors.push(format!(
                "client-key-data and client-key are both specified for {name}; client-key-data will override"
            ));
        }
        if !has(user, "client-key") && !has(user, "client-key-data") {
            errors.push(needs_key(name));
        }
        for (field, shown) in [("client-certificate", "client-cert"), ("client-key", "client-key")] {
            check_file(user, field, shown, name, files, errors);
        }
    }
    if let Some(exec) = user.at(&["exec"]).filter(|exec| !exec.is_null()) {
        for (field, shown) in
            [("command", "command"), ("apiVersion", "apiVersion"), ("interactiveMode", "interactiveMode")]
        {
            if !has(exec, field) {
                errors
                    .push(format!("{shown} must be specified for {name} to use exec authentication plugin"));
            }
        }
    }
    if has(user, "token") && (has(user, "username") || has(user, "password")) {
        errors.push(format!(
            "more than one authentication method found for {name}; found [token basicAuth], only one is allowed"
        ));
    }
    let as_more = ["as-uid", "as-groups", "as-user-extra"].iter().any(|field| {
        has(user, field) || user.at(&[field]).is_some_and(|v| matches!(v, Value::List(_) | Value::Map(_)))
    });
    if as_more && !has(user, "as") {
        errors.push(format!("requesting uid, groups or user-extra for {name} without impersonating a user"));
    }
}

fn check_cluster(name: &str, cluster: &Value, files: FileLookup<'_>, errors: &mut Vec<String>) {
    if !has(cluster, "server") {
        errors.push(format!("no server found for cluster {}", quote(name)));
    }
    if let Some(proxy) = cluster.str_at(&["proxy-url"]).filter(|proxy| !proxy.is_empty()) {
        let problem = match Url::parse(proxy) {
            Err(_) => Some(format!("could not parse: {proxy}")),
            Ok(url) if matches!(url.scheme.as_str(), "http" | "https" | "socks5") => None,
            Ok(url) => {
                Some(format!("unsupported scheme {}, must be http, https, or socks5", quote(&url.scheme)))
            }
        };
        errors.extend(problem.map(|problem| {
            format!("invalid 'proxy-url' {} for cluster {}: {problem}", quote(proxy), quote(name))
        }));
    }
    if has(cluster, "certificate-authority") && has(cluster, "certificate-authority-data") {
        errors.push(format!(
            "certificate-authority-data and certificate-authority are both specified for {name}. certificate-authority-data will override."
        ));
    }
    check_file(cluster, "certificate-authority", "certificate-authority", name, files, errors);
}

fn check_file(
    object: &Value,
    field: &str,
    shown: &str,
    name: &str,
    files: FileLookup<'_>,
    errors: &mut Vec<String>,
) {
    if let Some(path) = object.str_at(&[field]).filter(|path| !path.is_empty())
        && let (path, Err(why)) = files(path)
    {
        errors.push(format!("unable to read {shown} {path} for {name} due to {why}"));
    }
}

/// A kubeconfig whose fields have the right types.
struct TypedKubeconfig(Value);

/// The fields that are read, with their Go structs: `(list, inner object, struct, strings, bools, base64)`.
type FieldTable = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);
const LISTS: [FieldTable; 3] = [
    (
        "clusters",
        "cluster",
        "Cluster",
        &["server", "tls-server-name", "certificate-authority", "proxy-url"],
        &["insecure-skip-tls-verify", "disable-compression"],
        &["certificate-authority-data"],
    ),
    (
        "users",
        "user",
        "AuthInfo",
        &["client-certificate", "client-key", "token", "tokenFile", "as", "as-uid", "username", "password"],
        &[],
        &["client-certificate-data", "client-key-data"],
    ),
    ("contexts", "context", "Context", &["cluster", "user", "namespace"], &[], &[]),
];

impl TypedKubeconfig {
    fn new(config: Value) -> Result<Self, String> {
        match &config {
            Value::Null => return Ok(TypedKubeconfig(Value::Map(value::Map::new()))),
            Value::Map(_) => {}
            other => {
                let kind = other.json_type();
                return Err(format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type {META}"
                ));
            }
        }
        let meta = |field: &str, default: &'static str| {
            Str::from(config.str_at(&[field]).filter(|text| !text.is_empty()).unwrap_or(default))
        };
        let (version, kind) = (meta("apiVersion", "v1"), meta("kind", "Config"));
        if (version.as_str(), kind.as_str()) != ("v1", "Config") {
            return Err(format!(
                "no kind {} is registered for version {} in scheme {}",
                quote(&kind),
                quote(&version),
                quote(SCHEME)
            ));
        }
        for table in LISTS {
            check_list(&config, table)?;
        }
        check_text(config.get("current-context"), "Config", "current-context")?;
        Ok(TypedKubeconfig(config))
    }

    fn text(&self, path: &[&str]) -> &str {
        self.0.str_at(path).unwrap_or_default()
    }

    /// The entry of a list with this name.
    fn entry(&self, list: &str, inner: &str, name: &str) -> Option<&Value> {
        let items = self.0.list_at(&[list]);
        let item = items.iter().find(|item| item.str_at(&["name"]).unwrap_or_default() == name)?;
        item.at(&[inner]).filter(|object| object.as_map().is_some())
    }

    fn entries(&self, list: &str) -> &[Value] {
        self.0.list_at(&[list])
    }
}

/// Checks the types of the fields that are read, and that names are unique.
fn check_list(config: &Value, (list, inner, owner, texts, bools, data): FieldTable) -> Result<(), String> {
    let items = match config.get(list) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::List(items)) => items,
        Some(other) => {
            let item = match list {
                "clusters" => "NamedCluster",
                "users" => "NamedAuthInfo",
                _ => "NamedContext",
            };
            return Err(unmarshal_error(other, "Config", list, &format!("[]v1.{item}")));
        }
    };
    for (i, item) in items.iter().enumerate() {
        let name = item.str_at(&["name"]).unwrap_or_default();
        if items.iter().take(i).any(|other| other.str_at(&["name"]).unwrap_or_default() == name) {
            return Err(format!(
                "error converting *[]Named{owner} into *map[string]*api.{owner}: duplicate name {} in list",
                quote(name)
            ));
        }
        check_text(item.get("name"), &format!("Named{owner}"), &format!("{list}.name"))?;
        let Some(object) = item.get(inner) else { continue };
        for field in texts {
            check_text(object.get(field), owner, &format!("{list}.{inner}.{field}"))?;
        }
        for field in bools {
            match object.get(field) {
                None | Some(Value::Null | Value::Bool(_)) => {}
                Some(other) => {
                    return Err(unmarshal_error(other, owner, &format!("{list}.{inner}.{field}"), "bool"));
                }
            }
        }
        for field in data {
            match object.get(field) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => {
                    go::base64::STD.decode(text).map_err(|error| error.to_string())?;
                }
                Some(other) => {
                    return Err(unmarshal_error(other, owner, &format!("{list}.{inner}.{field}"), "[]uint8"));
                }
            }
        }
    }
    Ok(())
}

fn check_text(value: Option<&Value>, owner: &str, path: &str) -> Result<(), String> {
    match value {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(unmarshal_error(other, owner, path, "string")),
    }
}

/// The error of Go's decoder for a value of another type.
fn unmarshal_error(value: &Value, owner: &str, path: &str, expected: &str) -> String {
    let kind = value.json_type();
    format!("json: cannot unmarshal {kind} into Go struct field {owner}.{path} of type {expected}")
}

/// Inline data takes precedence over a file.
fn material(object: &Value, file: &str, data: &str) -> Option<PemSource> {
    if let Some(bytes) = object
        .str_at(&[data])
        .filter(|text| !text.is_empty())
        .and_then(|text| go::base64::STD.decode(text).ok())
    {
        return Some(PemSource::Inline(bytes));
    }
    let path = object.str_at(&[file]).filter(|path| !path.is_empty());
    path.map(|path| PemSource::File(path.into()))
}

/// Omits the content, which may be a private key.
impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PemSource::File(path) => write!(f, "File({path:?})"),
            PemSource::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
        }
    }
}

/// Omits the token and the password.
impl fmt::Debug for KubeconfigCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KubeconfigCredential::None => f.write_str("None"),
            KubeconfigCredential::Token(_) => f.write_str("Token"),
            KubeconfigCredential::TokenFile(path) => write!(f, "TokenFile({path:?})"),
            KubeconfigCredential::Basic(name, _) => write!(f, "Basic({name:?})"),
        }
    }
}

#[cfg(test)]
mod tests;
