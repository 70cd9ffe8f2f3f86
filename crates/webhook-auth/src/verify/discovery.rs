//! [`Provider`]: the OpenID provider document with the URL of the keys.

use serde::Deserialize;

use super::json;
use super::keys::MAX_DOCUMENT;
use super::rejection::excerpt;

/// The path of the provider document, relative to the issuer.
pub const PROVIDER_PATH: &str = "/.well-known/openid-configuration";
/// The path of the key set on a Kubernetes API server.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// The `Accept` header for the key set. An API server responds with 406 to `application/json`.
pub const JWKS_TYPE: &str = "application/jwk-set+json";

/// The provider document is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The document exceeds 256 KiB.
    #[error("the provider document is too long")]
    Oversize,
    /// The document cannot be decoded.
    #[error("the provider document is malformed")]
    Malformed,
    /// The document names another issuer. If the right API server responded, expect the issuer that was
    /// found.
    #[error("the issuer is {found:?}, but {expected:?} is expected")]
    Issuer {
        /// The issuer in the document.
        found: String,
        /// The issuer that the webhook expects.
        expected: String,
    },
    /// The URL of the keys is not `https`.
    #[error("the provider document names no https address of keys")]
    Address,
}

/// The fields of a provider document that are used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Provider {
    issuer: String,
    jwks_uri: String,
}

impl Provider {
    /// Decodes the document, which must name exactly `issuer`.
    pub fn read(document: &[u8], issuer: &str) -> Result<Self, ProviderError> {
        if document.len() > MAX_DOCUMENT {
            return Err(ProviderError::Oversize);
        }
        let provider: Provider = json::read(document).map_err(|_| ProviderError::Malformed)?;
        if provider.issuer != issuer {
            let (found, expected) = (excerpt(&provider.issuer).to_owned(), issuer.to_owned());
            return Err(ProviderError::Issuer { found, expected });
        }
        if !provider.jwks_uri.starts_with("https://") {
            return Err(ProviderError::Address);
        }
        Ok(provider)
    }

    /// The issuer in the document.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The URL of the key set.
    pub fn jwks_uri(&self) -> &str {
        &self.jwks_uri
    }
}
