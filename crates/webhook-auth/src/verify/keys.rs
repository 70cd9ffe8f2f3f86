//! [`KeySet`]: the keys that an issuer publishes.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::signature::{self, ParsedPublicKey, RsaPublicKeyComponents};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::json;

/// Maximum size of a key set or provider document, in bytes.
pub(crate) const MAX_DOCUMENT: usize = 256 * 1024;

/// Maximum number of keys in a key set.
const MAX_KEYS: usize = 128;

/// The signature algorithms of API servers. Algorithms with shared secrets and `none` are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// RSA with 2048 to 8192 bits, PKCS #1 v1.5, SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
}

impl Algorithm {
    /// All algorithms that tokens may be signed with.
    pub const ALL: [Algorithm; 4] = [Algorithm::Rs256, Algorithm::Es256, Algorithm::Es384, Algorithm::Es512];

    /// The name in a JWT header or JWK.
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Es512 => "ES512",
        }
    }

    /// Finds an algorithm by its name, which is case-sensitive.
    pub fn named(name: &str) -> Option<Self> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// The key set is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The document exceeds 256 KiB.
    #[error("the key set is too long")]
    Oversize,
    /// The document cannot be decoded.
    #[error("the key set is malformed")]
    Malformed,
    /// The set has more than 128 keys.
    #[error("the key set has too many keys")]
    TooMany,
    /// The set has no key that can verify tokens.
    #[error("the key set has no key that can verify a token")]
    NoKeys,
    /// Two different keys have the same id and algorithm, so the signer of a token is ambiguous.
    #[error("two keys of the key set have the same id")]
    Ambiguous,
}

/// A key with the one algorithm that it is for.
#[derive(Clone)]
struct PublishedKey {
    id: String,
    algorithm: Algorithm,
    public: ParsedPublicKey,
}

/// The keys that an issuer publishes.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: Vec<PublishedKey>,
}

/// The result of checking a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckedJwk {
    Good,
    UnknownKey,
    OtherAlgorithm,
    Bad,
}

impl KeySet {
    /// Decodes a JSON Web Key Set (RFC 7517). Keys without id and keys for other uses or algorithms are ignored, as section 5
    /// of the RFC recommends.
    pub fn from_jwks(document: &[u8]) -> Result<Self, KeyError> {
        if document.len() > MAX_DOCUMENT {
            return Err(KeyError::Oversize);
        }
        let set: Jwks = json::read(document).map_err(|_| KeyError::Malformed)?;
        if set.keys.len() > MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        let mut keys: Vec<PublishedKey> = Vec::new();
        for key in set.keys.into_iter().filter_map(|jwk| usable(&jwk)) {
            match keys.iter().find(|known| known.id == key.id && known.algorithm == key.algorithm) {
                None => keys.push(key),
                Some(known) if known.public.as_ref() == key.public.as_ref() => {}
                Some(_) => return Err(KeyError::Ambiguous),
            }
        }
        if keys.is_empty() { Err(KeyError::NoKeys) } else { Ok(KeySet { keys }) }
    }

    /// The ids and algorithms of the keys.
    pub fn ids(&self) -> impl Iterator<Item = (&str, Algorithm)> {
        self.keys.iter().map(|key| (key.id.as_str(), key.algorithm))
    }

    /// Whether the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Checks a signature with the key of this id. `algorithm` must be the key's own.
    pub(super) fn check(
        &self,
        id: &str,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> CheckedJwk {
        let mut named = self.keys.iter().filter(|key| key.id == id).peekable();
        if named.peek().is_none() {
            return CheckedJwk::UnknownKey;
        }
        match named.find(|key| key.algorithm == algorithm) {
            None => CheckedJwk::OtherAlgorithm,
            Some(key) if key.public.verify_sig(message, signature).is_ok() => CheckedJwk::Good,
            Some(_) => CheckedJwk::Bad,
        }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// A key set that can be replaced while verifiers use it.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<RwLock<Arc<KeySet>>>);

impl Keys {
    /// Starts with these keys.
    pub fn new(keys: KeySet) -> Self {
        Keys(Arc::new(RwLock::new(Arc::new(keys))))
    }

    /// A snapshot of the current keys.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all keys at once. Snapshots from [`Keys::current`] do not change.
    pub fn replace(&self, keys: KeySet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

/// The JSON fields of a key. Keys of unknown types may have fields of any type, so each field is decoded when
/// it is used.
#[derive(Deserialize)]
struct Jwk(serde_json::Map<String, serde_json::Value>);

impl Jwk {
    fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    fn bytes(&self, field: &str) -> Option<Vec<u8>> {
        URL_SAFE_NO_PAD.decode(self.text(field)?).ok()
    }
}

fn usable(jwk: &Jwk) -> Option<PublishedKey> {
    let id = jwk.text("kid").filter(|id| !id.is_empty())?.to_owned();
    if jwk.0.contains_key("use") && jwk.text("use") != Some("sig") {
        return None;
    }
    if let Some(operations) = jwk.0.get("key_ops")
        && !operations.as_array()?.iter().any(|operation| operation == "verify")
    {
        return None;
    }
    let algorithm = match (jwk.text("kty")?, jwk.text("crv")) {
        ("RSA", _) => Algorithm::Rs256,
        ("EC", Some("P-256")) => Algorithm::Es256,
        ("EC", Some("P-384")) => Algorithm::Es384,
        ("EC", Some("P-521")) => Algorithm::Es512,
        _ => return None,
    };
    // A key is used only for its declared purpose.
    if jwk.0.contains_key("alg") && jwk.text("alg") != Some(algorithm.as_str()) {
        return None;
    }
    let curve = |verification, size| {
        let (x, y) = (jwk.bytes("x")?, jwk.bytes("y")?);
        let point = [&[4], x.as_slice(), y.as_slice()].concat();
        (x.len() == size && y.len() == size).then(|| ParsedPublicKey::new(verification, point).ok())?
    };
    let public = match algorithm {
        Algorithm::Es256 => curve(&signature::ECDSA_P256_SHA256_FIXED, 32)?,
        Algorithm::Es384 => curve(&signature::ECDSA_P384_SHA384_FIXED, 48)?,
        Algorithm::Es512 => curve(&signature::ECDSA_P521_SHA512_FIXED, 66)?,
        Algorithm::Rs256 => {
            let (n, e) = (significant(jwk.bytes("n")?), significant(jwk.bytes("e")?));
            // Verification rejects keys outside of these sizes, so they are ignored here.
            if !(256..=1024).contains(&n.len()) || e.len() > 8 {
                return None;
            }
            let components = RsaPublicKeyComponents { n, e };
            components.to_parsed_public_key(&signature::RSA_PKCS1_2048_8192_SHA256).ok()?
        }
    };
    Some(PublishedKey { id, algorithm, public })
}

/// Strips the leading zero bytes of a big-endian number.
fn significant(mut bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    bytes
}
