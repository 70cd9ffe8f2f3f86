//! Public keys, parsed as by Go's `crypto/x509`.

use crate::Error;
use crate::der::{DerElement, DerReader, OBJECT_IDENTIFIER, SEQUENCE};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const X25519: &[u8] = &[0x2b, 0x65, 0x6e];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01];
const NULL: &[u8] = &[0x05, 0x00];

/// An elliptic curve that Go supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// NIST P-224 (secp224r1), 112-bit security.
    P224,
    /// NIST P-256 (secp256r1), 128-bit security.
    P256,
    /// NIST P-384 (secp384r1), 192-bit security.
    P384,
    /// NIST P-521 (secp521r1), 256-bit security.
    P521,
}

impl Curve {
    fn from_oid(oid: &[u8]) -> Option<Self> {
        match oid {
            [0x2b, 0x81, 0x04, 0x00, 0x21] => Some(Curve::P224),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07] => Some(Curve::P256),
            [0x2b, 0x81, 0x04, 0x00, 0x22] => Some(Curve::P384),
            [0x2b, 0x81, 0x04, 0x00, 0x23] => Some(Curve::P521),
            _ => None,
        }
    }

    /// The name of the curve in Go.
    pub fn name(self) -> &'static str {
        match self {
            Curve::P224 => "P-224",
            Curve::P256 => "P-256",
            Curve::P384 => "P-384",
            Curve::P521 => "P-521",
        }
    }

    /// Length of an uncompressed point in bytes.
    fn point(self) -> usize {
        match self {
            Curve::P224 => 57,
            Curve::P256 => 65,
            Curve::P384 => 97,
            Curve::P521 => 133,
        }
    }
}

/// A public key. Equality compares the keys, not their encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// An RSA key; modulus and exponent without leading zeros.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    /// An ECDSA key; the point is uncompressed.
    Ecdsa { curve: Curve, point: Vec<u8> },
    /// The 32 bytes of an Ed25519 key.
    Ed25519(Vec<u8>),
    /// A key type that Go parses and Kubernetes does not use: DSA and X25519.
    Other,
}

impl PublicKey {
    /// Parses a SubjectPublicKeyInfo (PKIX) structure.
    pub fn from_spki(der: &[u8]) -> Result<Self, Error> {
        let mut reader = DerReader(der);
        let info = reader.expect(SEQUENCE)?;
        if !reader.is_empty() {
            return Err(Error::Key("trailing data after ASN.1 of public-key"));
        }
        Self::read(info.inside())?.ok_or(Error::Key("unknown public key algorithm"))
    }

    /// Parses the contents of a SubjectPublicKeyInfo; `None` if the algorithm is unknown.
    pub(crate) fn read(mut info: DerReader<'_>) -> Result<Option<Self>, Error> {
        let mut algorithm = info.expect(SEQUENCE)?.inside();
        let oid = algorithm.expect(OBJECT_IDENTIFIER)?.content;
        let parameters = if algorithm.is_empty() { None } else { Some(algorithm.any()?) };
        let key = info.any()?.bits()?;
        Ok(Some(match oid {
            RSA => {
                if parameters.is_none_or(|parameters| parameters.raw != NULL) {
                    return Err(Error::Key("RSA key missing NULL parameters"));
                }
                let mut numbers = DerReader(key)
                    .expect(SEQUENCE)
                    .map_err(|_| Error::Key("invalid RSA public key"))?
                    .inside();
                let mut number =
                    |why| numbers.any().ok().and_then(DerElement::positive).ok_or(Error::Key(why));
                let modulus = number("invalid RSA modulus")?.to_vec();
                let exponent = number("invalid RSA public exponent")?.to_vec();
                PublicKey::Rsa { modulus, exponent }
            }
            ECDSA => {
                let curve = parameters
                    .filter(|parameters| parameters.tag == OBJECT_IDENTIFIER)
                    .ok_or(Error::Key("invalid ECDSA parameters"))?;
                let curve = Curve::from_oid(curve.content).ok_or(Error::Key("unsupported elliptic curve"))?;
                if key.len() != curve.point() || key.first() != Some(&4) {
                    return Err(Error::Key("failed to unmarshal elliptic curve point"));
                }
                PublicKey::Ecdsa { curve, point: key.to_vec() }
            }
            ED25519 => {
                if parameters.is_some() {
                    return Err(Error::Key("Ed25519 key encoded with illegal parameters"));
                }
                if key.len() != 32 {
                    return Err(Error::Key("wrong Ed25519 public key size"));
                }
                PublicKey::Ed25519(key.to_vec())
            }
            X25519 | DSA => PublicKey::Other,
            _ => return Ok(None),
        }))
    }

    /// Size of an RSA modulus in bits, rounded up to whole bytes as by Go's `Size`; `None` for other keys.
    pub fn rsa_bits(&self) -> Option<usize> {
        match self {
            PublicKey::Rsa { modulus, .. } => Some(modulus.len() * 8),
            _ => None,
        }
    }

    /// Name of the key type in Go.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            PublicKey::Rsa { .. } => "*rsa.PublicKey",
            PublicKey::Ecdsa { .. } => "*ecdsa.PublicKey",
            PublicKey::Ed25519(_) => "ed25519.PublicKey",
            PublicKey::Other => "*dsa.PublicKey",
        }
    }
}
