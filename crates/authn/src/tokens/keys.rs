//! Keys that sign and verify tokens: RSA (RS256) and three NIST curves (ES256, ES384, ES512).

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use value::{Map, Str, Value};
use x509::pem;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key;
use x509_parser::x509::SubjectPublicKeyInfo;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenKeyError {
    #[error("data does not contain any valid RSA or ECDSA public keys")]
    NoPublicKey,
    #[error("data does not contain a valid RSA or ECDSA private key")]
    NoPrivateKey,
    /// The key is neither RSA with at least 2048 bits nor ECDSA on one of the three curves.
    #[error("unknown key type, must be RSA of at least 2048 bits, or ECDSA on P-256, P-384 or P-521")]
    Unsupported,
    /// No randomness is available, or signing failed.
    #[error("signing failed")]
    Signing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SigningAlgorithm {
    Es256,
    Es384,
    Es512,
    Rs256,
}

impl SigningAlgorithm {
    const CURVES: [SigningAlgorithm; 3] =
        [SigningAlgorithm::Es256, SigningAlgorithm::Es384, SigningAlgorithm::Es512];

    fn name(self) -> &'static str {
        match self {
            SigningAlgorithm::Es256 => "ES256",
            SigningAlgorithm::Es384 => "ES384",
            SigningAlgorithm::Es512 => "ES512",
            SigningAlgorithm::Rs256 => "RS256",
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            SigningAlgorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            SigningAlgorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            SigningAlgorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
            SigningAlgorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        }
    }

    fn signing(self) -> Option<&'static EcdsaSigningAlgorithm> {
        match self {
            SigningAlgorithm::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            SigningAlgorithm::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            SigningAlgorithm::Es512 => Some(&signature::ECDSA_P521_SHA512_FIXED_SIGNING),
            SigningAlgorithm::Rs256 => None,
        }
    }

    /// The curve's name in a JWK, and the length of a coordinate in bytes.
    fn curve(self) -> Option<(&'static str, usize)> {
        match self {
            SigningAlgorithm::Es256 => Some(("P-256", 32)),
            SigningAlgorithm::Es384 => Some(("P-384", 48)),
            SigningAlgorithm::Es512 => Some(("P-521", 66)),
            SigningAlgorithm::Rs256 => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenVerificationKey {
    id: Str,
    algorithm: SigningAlgorithm,
    /// As the verification algorithm needs it: an uncompressed point, or modulus and exponent in DER.
    key: Vec<u8>,
    /// The numbers of the JWK: x and y, or n and e.
    numbers: (Vec<u8>, Vec<u8>),
}

impl TokenVerificationKey {
    /// All public keys of a PEM file, including those of private keys and certificates. Other blocks are
    /// skipped.
    pub fn all_from_pem(text: &[u8]) -> Result<Vec<Self>, TokenKeyError> {
        let mut keys = Vec::new();
        for section in pem::blocks(text) {
            match section.label.as_str() {
                "PUBLIC KEY" => keys.push(Self::from_spki(&section.bytes)?),
                "CERTIFICATE" => {
                    let (_, certificate) =
                        X509Certificate::from_der(&section.bytes).map_err(|_| TokenKeyError::Unsupported)?;
                    keys.push(Self::from_spki(certificate.public_key().raw)?);
                }
                label => {
                    if let Some(key) = SigningKey::from_section(label, &section.bytes)? {
                        keys.push(key.public);
                    }
                }
            }
        }
        if keys.is_empty() { Err(TokenKeyError::NoPublicKey) } else { Ok(keys) }
    }

    fn from_spki(der: &[u8]) -> Result<Self, TokenKeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| TokenKeyError::Unsupported)?;
        let raw = info.subject_public_key.data.to_vec();
        let (algorithm, numbers) = match info.parsed().map_err(|_| TokenKeyError::Unsupported)? {
            public_key::PublicKey::RSA(rsa) => {
                let numbers = (significant(rsa.modulus), significant(rsa.exponent));
                if numbers.0.len() < 256 {
                    return Err(TokenKeyError::Unsupported);
                }
                (SigningAlgorithm::Rs256, numbers)
            }
            public_key::PublicKey::EC(point) => {
                // An uncompressed point: 4, x, y. Its length identifies the curve.
                let coordinates = point.data().strip_prefix(&[4]).ok_or(TokenKeyError::Unsupported)?;
                let (x, y) = coordinates.split_at(coordinates.len() / 2);
                let algorithm =
                    SigningAlgorithm::CURVES.into_iter().find(|a| a.curve().is_some_and(|c| c.1 == x.len()));
                (algorithm.ok_or(TokenKeyError::Unsupported)?, (x.to_vec(), y.to_vec()))
            }
            _ => return Err(TokenKeyError::Unsupported),
        };
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, der));
        Ok(TokenVerificationKey { id: id.into(), algorithm, key: raw, numbers })
    }

    /// Derived from the key, so that a key has the same id everywhere.
    pub fn id(&self) -> &Str {
        &self.id
    }

    /// The JWA name: `RS256`, `ES256`, `ES384` or `ES512`.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// Whether `signature` is this key's signature of `message` with this algorithm.
    pub(super) fn verifies(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        algorithm == self.algorithm.name()
            && UnparsedPublicKey::new(self.algorithm.verification(), &self.key)
                .verify(message, signature)
                .is_ok()
    }

    pub(super) fn to_jwk(&self) -> Value {
        let encoded = |bytes: &[u8]| Value::from(URL_SAFE_NO_PAD.encode(bytes));
        let (first, second) = (encoded(&self.numbers.0), encoded(&self.numbers.1));
        let mut out = Map::new();
        out.insert("alg", self.algorithm());
        out.insert("kid", self.id.clone());
        out.insert("use", "sig");
        if let Some((curve, _)) = self.algorithm.curve() {
            out.insert("crv", curve);
            out.insert("kty", "EC");
            out.insert("x", first);
            out.insert("y", second);
        } else {
            out.insert("e", second);
            out.insert("kty", "RSA");
            out.insert("n", first);
        }
        Value::Map(out)
    }
}

/// Strips the leading zero bytes of a big-endian number.
fn significant(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().skip_while(|b| *b == 0).collect()
}

/// The key that signs tokens. The private key cannot be read back; only [`SigningKey::generate`] returns it,
/// as PEM.
pub struct SigningKey {
    public: TokenVerificationKey,
    pair: KeyPair,
}

enum KeyPair {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// The first private key of a PEM file.
    pub fn from_pem(text: &[u8]) -> Result<Self, TokenKeyError> {
        for section in pem::blocks(text) {
            if let Some(key) = Self::from_section(&section.label, &section.bytes)? {
                return Ok(key);
            }
        }
        Err(TokenKeyError::NoPrivateKey)
    }

    /// Generates a P-256 key. Also returns its PEM, to be stored in a file.
    pub fn generate() -> Result<(Self, String), TokenKeyError> {
        let document =
            EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .map_err(|_| TokenKeyError::Signing)?;
        let pem = pem::encode("PRIVATE KEY", document.as_ref());
        Ok((Self::from_pem(pem.as_bytes())?, pem))
    }

    fn from_section(label: &str, der: &[u8]) -> Result<Option<Self>, TokenKeyError> {
        let pair = match label {
            "RSA PRIVATE KEY" => {
                KeyPair::Rsa(RsaKeyPair::from_der(der).map_err(|_| TokenKeyError::Unsupported)?)
            }
            "EC PRIVATE KEY" | "PRIVATE KEY" => {
                let ec = SigningAlgorithm::CURVES
                    .into_iter()
                    .filter_map(SigningAlgorithm::signing)
                    .find_map(|algorithm| EcdsaKeyPair::from_private_key_der(algorithm, der).ok());
                match ec {
                    Some(pair) => KeyPair::Ec(pair),
                    None => {
                        KeyPair::Rsa(RsaKeyPair::from_pkcs8(der).map_err(|_| TokenKeyError::Unsupported)?)
                    }
                }
            }
            _ => return Ok(None),
        };
        let spki: PublicKeyX509Der<'_> = match &pair {
            KeyPair::Ec(pair) => pair.public_key().as_der(),
            KeyPair::Rsa(pair) => pair.public_key().as_der(),
        }
        .map_err(|_| TokenKeyError::Unsupported)?;
        Ok(Some(SigningKey { public: TokenVerificationKey::from_spki(spki.as_ref())?, pair }))
    }

    pub fn public(&self) -> &TokenVerificationKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, TokenKeyError> {
        let random = SystemRandom::new();
        match &self.pair {
            KeyPair::Ec(pair) => {
                pair.sign(&random, message).map(|s| s.as_ref().to_vec()).map_err(|_| TokenKeyError::Signing)
            }
            KeyPair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut out)
                    .map_err(|_| TokenKeyError::Signing)?;
                Ok(out)
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} {})", self.public.algorithm(), self.public.id)
    }
}
