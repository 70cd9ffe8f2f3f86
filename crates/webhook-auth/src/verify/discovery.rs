//! [`Provider`]: where an issuer says its keys are.

use serde::Deserialize;

use super::json;
use super::keys::MAX_DOCUMENT;
use super::rejection::excerpt;

/// The path of the provider document, below the issuer.
pub const PROVIDER_PATH: &str = "/.well-known/openid-configuration";
/// The path of the key set on a Kubernetes API server.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// What the key set is asked for as. An API server answers 406 to `application/json`.
pub const JWKS_TYPE: &str = "application/jwk-set+json";

/// Why a provider document is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The document is too long.
    #[error("the provider document is too long")]
    Oversize,
    /// It is no provider document.
    #[error("the provider document is malformed")]
    Malformed,
    /// It is another issuer's. Expect the one that was found if the API server that answered is the right one.
    #[error("the issuer is {found:?}, but {expected:?} is expected")]
    Issuer {
        /// The issuer that the document names.
        found: String,
        /// The issuer that is expected.
        expected: String,
    },
    /// The keys are not at an `https` address.
    #[error("the provider document names no https address of keys")]
    Address,
}

/// The part of an OpenID provider document that matters here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Provider {
    issuer: String,
    jwks_uri: String,
}

impl Provider {
    /// Reads the document of `issuer`, which must name itself exactly so.
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

    /// The issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Where its keys are.
    pub fn jwks_uri(&self) -> &str {
        &self.jwks_uri
    }
}
