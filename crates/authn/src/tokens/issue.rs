//! [`Issuer`]: signs service account tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use value::{Str, Value, write};

use crate::tokens::claims::TokenClaims;
use crate::tokens::keys::{SigningKey, TokenKeyError};

#[derive(Debug)]
pub struct Issuer {
    name: Str,
    key: SigningKey,
}

impl Issuer {
    /// `name` is the `--service-account-issuer`.
    pub fn new(name: impl Into<Str>, key: SigningKey) -> Self {
        Issuer { name: name.into(), key }
    }

    /// Uses the first private key of a PEM file.
    pub fn from_pem(name: impl Into<Str>, pem: &[u8]) -> Result<Self, TokenKeyError> {
        SigningKey::from_pem(pem).map(|key| Self::new(name, key))
    }

    pub fn name(&self) -> &Str {
        &self.name
    }

    pub fn public_key(&self) -> &super::TokenVerificationKey {
        self.key.public()
    }

    pub fn issue(&self, claims: &TokenClaims) -> Result<String, TokenKeyError> {
        self.sign(&claims.to_value(&self.name))
    }

    pub(super) fn sign(&self, payload: &Value) -> Result<String, TokenKeyError> {
        let public = self.key.public();
        let header =
            Value::map([("alg", Value::from(public.algorithm())), ("kid", Value::from(public.id().clone()))]);
        let mut token = URL_SAFE_NO_PAD.encode(write::to_vec(&header));
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(write::to_vec(payload), &mut token);
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }
}
