//! The OpenID provider document and the key set, with which relying parties verify tokens.

use value::{Value, write};

use crate::tokens::keys::TokenVerificationKey;

/// The path of the provider document.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// The path of the key set.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// The `max-age` of both documents, in seconds.
pub const MAX_AGE: u32 = 3600;

/// The documents cannot be published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    #[error("empty issuer URL")]
    NoIssuer,
    #[error("issuer URL must use https scheme, got: {0}")]
    Scheme(String),
    #[error("issuer URL may not include a query, got: {0}")]
    Query(String),
    #[error("issuer URL may not include a fragment, got: {0}")]
    Fragment(String),
    /// The key set's URL is not `https`.
    #[error("jwksURI requires https scheme, parsed as: {0}")]
    KeysScheme(String),
    #[error("no keys provided for validating keyset")]
    NoKeys,
}

/// The provider document. `jwks_uri` is the key set's URL; if empty, it is at its default path on
/// `external_address`.
pub fn configuration(
    issuer: &str,
    jwks_uri: &str,
    external_address: &str,
    keys: &[TokenVerificationKey],
) -> Result<Vec<u8>, DiscoveryError> {
    if issuer.is_empty() {
        return Err(DiscoveryError::NoIssuer);
    }
    let https = |url: &str| url.get(..8).is_some_and(|head| head.eq_ignore_ascii_case("https://"));
    if !https(issuer) {
        return Err(DiscoveryError::Scheme(issuer.to_owned()));
    }
    if let Some(at) = issuer.find(['?', '#']) {
        let error = if issuer.get(at..).is_some_and(|rest| rest.starts_with('?')) {
            DiscoveryError::Query
        } else {
            DiscoveryError::Fragment
        };
        return Err(error(issuer.to_owned()));
    }
    let jwks_uri = match jwks_uri {
        "" => format!("https://{external_address}{JWKS_PATH}"),
        uri if https(uri) => uri.to_owned(),
        uri => return Err(DiscoveryError::KeysScheme(uri.to_owned())),
    };
    if keys.is_empty() {
        return Err(DiscoveryError::NoKeys);
    }
    let mut algorithms: Vec<&str> = keys.iter().map(TokenVerificationKey::algorithm).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    // The fields are in kube-apiserver's order, because relying parties may compare bytes.
    let text = |text: &str| write::to_string(&Value::from(text));
    let list = write::to_string(&Value::list(algorithms));
    Ok(format!(
        r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":{list}}}"#,
        text(issuer),
        text(&jwks_uri)
    )
    .into_bytes())
}

pub fn key_set(keys: &[TokenVerificationKey]) -> Vec<u8> {
    write::to_vec(&Value::map([(
        "keys",
        Value::List(keys.iter().map(TokenVerificationKey::to_jwk).collect()),
    )]))
}
