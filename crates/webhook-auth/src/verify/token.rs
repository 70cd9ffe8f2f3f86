//! Decodes a token before it is verified.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::claims::Payload;
use super::json;
use super::keys::Algorithm;
use super::rejection::{Reason, Rejection};

/// Longer tokens are rejected. Those of an API server have about 1,000 bytes.
pub const MAX_TOKEN: usize = 16 * 1024;

pub(super) struct DecodedToken<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key: String,
    pub(super) payload: Payload,
    pub(super) signature: Vec<u8>,
    /// The signed part: header and payload.
    pub(super) signed: &'a str,
}

/// The header fields that are checked. Keys in a header (`jwk`, `jku`, `x5c`, …) are ignored: a token must
/// not choose its own verification key.
#[derive(Deserialize)]
struct Header {
    alg: Option<Value>,
    kid: Option<Value>,
    typ: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
    #[serde(default, deserialize_with = "present")]
    b64: bool,
    #[serde(default, deserialize_with = "present")]
    zip: bool,
}

/// Whether a field is present, even with the value `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> DecodedToken<'a> {
    pub(super) fn of(token: &'a str) -> Result<Self, Rejection> {
        if token.len() > MAX_TOKEN {
            return Err(Rejection::new(Reason::Oversize, format!("{} bytes", token.len())));
        }
        let malformed = |what: &str| Rejection::new(Reason::Malformed, what);
        let three = || {
            let (signed, signature) = token.rsplit_once('.')?;
            let (header, payload) = signed.split_once('.')?;
            (!payload.contains('.')).then_some((signed, header, payload, signature))
        };
        let (signed, header, payload, signature) = three().ok_or_else(|| malformed("not of three parts"))?;
        let decoded = |part: &str, what| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed(what));
        let header = decoded(header, "the header is not base64url")?;
        let payload = decoded(payload, "the claims are not base64url")?;
        let signature = decoded(signature, "the signature is not base64url")?;
        let header: Header =
            json::read(&header).map_err(|_| malformed("the header is no JSON object, or not a plain one"))?;
        let (algorithm, key) = header.algorithm_and_key()?;
        let payload: Payload = json::read(&payload)
            .map_err(|_| malformed("the claims are no JSON object, or not plain ones"))?;
        Ok(DecodedToken { algorithm, key, payload, signature, signed })
    }
}

impl Header {
    fn algorithm_and_key(self) -> Result<(Algorithm, String), Rejection> {
        if self.crit || self.b64 || self.zip {
            return Err(Rejection::new(Reason::Header, "an extension that is not understood"));
        }
        let plain = match &self.typ {
            None => true,
            Some(Value::String(kind)) => kind.eq_ignore_ascii_case("JWT"),
            Some(_) => false,
        };
        if !plain {
            return Err(Rejection::new(Reason::Header, "another type of token"));
        }
        let algorithm = match &self.alg {
            Some(Value::String(name)) => Algorithm::named(name),
            _ => None,
        };
        let algorithm = algorithm
            .ok_or_else(|| Rejection::new(Reason::Algorithm, "an algorithm that is not on the list"))?;
        match self.kid {
            Some(Value::String(key)) if !key.is_empty() => Ok((algorithm, key)),
            _ => Err(Rejection::new(Reason::UnknownKey, "no key is named")),
        }
    }
}
