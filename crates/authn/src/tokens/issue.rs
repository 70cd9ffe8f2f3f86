//! [`Issuer`]: claims → a signed token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use value::{Str, Value, write};

use crate::tokens::claims::Claims;
use crate::tokens::keys::{KeyError, SigningKey};

/// Signs tokens in the name of an issuer.
#[derive(Debug)]
pub struct Issuer {
    name: Str,
    key: SigningKey,
}

impl Issuer {
    /// An issuer under a name (`--service-account-issuer`) with its key.
    pub fn new(name: impl Into<Str>, key: SigningKey) -> Self {
        Issuer { name: name.into(), key }
    }

    /// An issuer that signs with the private key in a PEM file.
    pub fn from_pem(name: impl Into<Str>, pem: &[u8]) -> Result<Self, KeyError> {
        SigningKey::from_pem(pem).map(|key| Self::new(name, key))
    }

    /// The issuer's name.
    pub fn name(&self) -> &Str {
        &self.name
    }

    /// The key that verifies its tokens.
    pub fn public_key(&self) -> &super::PublicKey {
        self.key.public()
    }

    /// A signed token.
    pub fn issue(&self, claims: &Claims) -> Result<String, KeyError> {
        self.sign(&claims.to_value(&self.name))
    }

    /// A token with this payload.
    pub(super) fn sign(&self, payload: &Value) -> Result<String, KeyError> {
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
