//! Verifies signatures of requests and proofs of possession.

use aws_lc_rs::signature::{
    self as algorithms, RsaParameters, RsaPssSaltLength, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};

use crate::der::{DerReader, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, context};
use crate::{Curve, Error, PublicKey};

const MGF1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08];
const NULL: &[u8] = &[0x05, 0x00];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureAlgorithm {
    Md5WithRsa,
    Rsa(Hash),
    /// RSA-PSS with a salt as long as the hash.
    RsaPss(Hash),
    Ecdsa(Hash),
    Ed25519,
    Unknown,
}

impl SignatureAlgorithm {
    /// Parses the contents of an AlgorithmIdentifier.
    pub(crate) fn read(mut identifier: DerReader<'_>) -> Result<Self, Error> {
        let oid = identifier.expect(OBJECT_IDENTIFIER)?.content;
        let parameters = if identifier.is_empty() { None } else { Some(identifier.any()?) };
        Ok(match oid {
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, which] => match which {
                0x04 => SignatureAlgorithm::Md5WithRsa,
                0x05 => SignatureAlgorithm::Rsa(Hash::Sha1),
                0x0a => parameters
                    .and_then(|parameters| pss_hash(parameters.inside()).ok().flatten())
                    .map_or(SignatureAlgorithm::Unknown, SignatureAlgorithm::RsaPss),
                0x0b => SignatureAlgorithm::Rsa(Hash::Sha256),
                0x0c => SignatureAlgorithm::Rsa(Hash::Sha384),
                0x0d => SignatureAlgorithm::Rsa(Hash::Sha512),
                _ => SignatureAlgorithm::Unknown,
            },
            [0x2b, 0x0e, 0x03, 0x02, 0x1d] => SignatureAlgorithm::Rsa(Hash::Sha1),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] => SignatureAlgorithm::Ecdsa(Hash::Sha1),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, which] => match which {
                0x02 => SignatureAlgorithm::Ecdsa(Hash::Sha256),
                0x03 => SignatureAlgorithm::Ecdsa(Hash::Sha384),
                0x04 => SignatureAlgorithm::Ecdsa(Hash::Sha512),
                _ => SignatureAlgorithm::Unknown,
            },
            [0x2b, 0x65, 0x70] if parameters.is_none() => SignatureAlgorithm::Ed25519,
            _ => SignatureAlgorithm::Unknown,
        })
    }

    /// Go's name of the key type that makes such signatures.
    fn key_kind(self) -> Option<&'static str> {
        match self {
            SignatureAlgorithm::Md5WithRsa | SignatureAlgorithm::Rsa(_) | SignatureAlgorithm::RsaPss(_) => {
                Some("RSA")
            }
            SignatureAlgorithm::Ecdsa(_) => Some("ECDSA"),
            SignatureAlgorithm::Ed25519 => Some("Ed25519"),
            SignatureAlgorithm::Unknown => None,
        }
    }
}

/// The hash in RSA-PSS parameters, if both hashes are equal and the salt has its length.
fn pss_hash(mut parameters: DerReader<'_>) -> Result<Option<Hash>, Error> {
    /// The object identifier of a hash, and whether its parameters are absent or NULL.
    fn hash_of(mut identifier: DerReader<'_>) -> Result<(&[u8], bool), Error> {
        let oid = identifier.expect(OBJECT_IDENTIFIER)?.content;
        Ok((oid, identifier.is_empty() || identifier.any()?.raw == NULL))
    }
    let (hash, is_plain) = hash_of(parameters.expect(context(0))?.inside().expect(SEQUENCE)?.inside())?;
    let mut mask = parameters.expect(context(1))?.inside().expect(SEQUENCE)?.inside();
    let is_mgf1 = mask.expect(OBJECT_IDENTIFIER)?.content == MGF1;
    let (mask_hash, mask_is_plain) = hash_of(mask.expect(SEQUENCE)?.inside())?;
    let salt = parameters.expect(context(2))?.inside().expect(INTEGER)?.content;
    let has_usual_trailer =
        parameters.is_empty() || parameters.expect(context(3))?.inside().expect(INTEGER)?.content == [1];
    if !(is_plain && is_mgf1 && mask_is_plain && mask_hash == hash && has_usual_trailer) {
        return Ok(None);
    }
    Ok(match (hash, salt) {
        ([0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01], [32]) => Some(Hash::Sha256),
        ([0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02], [48]) => Some(Hash::Sha384),
        ([0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03], [64]) => Some(Hash::Sha512),
        _ => None,
    })
}

/// Verifies the signature of a certificate request. SHA-1 is accepted, as in Go: another request with the same hash
/// gains nothing.
pub(crate) fn check(
    key: Option<&PublicKey>,
    algorithm: SignatureAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> Result<(), Error> {
    let kind = algorithm.key_kind().ok_or(Error::UnknownAlgorithm)?;
    if algorithm == SignatureAlgorithm::Md5WithRsa {
        return Err(Error::InsecureAlgorithm("MD5-RSA"));
    }
    let key = key.filter(|key| **key != PublicKey::Other).ok_or(Error::UnknownAlgorithm)?;
    match (key, algorithm) {
        (PublicKey::Rsa { modulus, exponent }, SignatureAlgorithm::Rsa(hash)) => {
            rsa(pkcs1(hash), modulus, exponent, message, signature)
        }
        (PublicKey::Rsa { modulus, exponent }, SignatureAlgorithm::RsaPss(hash)) => {
            rsa(pss(hash)?, modulus, exponent, message, signature)
        }
        (PublicKey::Ecdsa { curve, point }, SignatureAlgorithm::Ecdsa(hash)) => {
            let failure = Error::Signature("x509: ECDSA verification failure");
            by(ecdsa(*curve, hash)?, point, message, signature).ok_or(failure)
        }
        (PublicKey::Ed25519(point), SignatureAlgorithm::Ed25519) => {
            let failure = Error::Signature("x509: Ed25519 verification failure");
            by(&algorithms::ED25519, point, message, signature).ok_or(failure)
        }
        _ => Err(Error::OtherKey(kind, key.go_type())),
    }
}

impl PublicKey {
    /// Verifies a proof of possession: `signature` of `message` by this key's default algorithm, which is Ed25519,
    /// ECDSA with SHA-256, or RSA-PSS with SHA-256. The PSS salt has the length of the hash or the maximal length,
    /// which Go's signer uses by default.
    pub fn verifies_possession(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            PublicKey::Rsa { modulus, exponent } => {
                [RsaPssSaltLength::Max, RsaPssSaltLength::Digest].into_iter().any(|salt| {
                    let algorithm = algorithms::RSA_PSS_2048_8192_SHA256.with_pss_salt_length(salt);
                    rsa(&algorithm, modulus, exponent, message, signature).is_ok()
                })
            }
            PublicKey::Ecdsa { curve, point } => ecdsa(*curve, Hash::Sha256)
                .is_ok_and(|algorithm| by(algorithm, point, message, signature).is_some()),
            PublicKey::Ed25519(point) => by(&algorithms::ED25519, point, message, signature).is_some(),
            PublicKey::Other => false,
        }
    }
}

fn by(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).ok()
}

fn rsa(
    algorithm: &RsaParameters,
    modulus: &[u8],
    exponent: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), Error> {
    RsaPublicKeyComponents { n: modulus, e: exponent }
        .verify(algorithm, message, signature)
        .map_err(|_| Error::Signature("crypto/rsa: verification error"))
}

/// Go accepts RSA keys of at least 1024 bits.
fn pkcs1(hash: Hash) -> &'static RsaParameters {
    match hash {
        Hash::Sha1 => &algorithms::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => &algorithms::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        Hash::Sha384 => &algorithms::RSA_PKCS1_2048_8192_SHA384,
        Hash::Sha512 => &algorithms::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    }
}

fn pss(hash: Hash) -> Result<&'static RsaParameters, Error> {
    match hash {
        Hash::Sha1 => Err(Error::UnknownAlgorithm),
        Hash::Sha256 => Ok(&algorithms::RSA_PSS_2048_8192_SHA256),
        Hash::Sha384 => Ok(&algorithms::RSA_PSS_2048_8192_SHA384),
        Hash::Sha512 => Ok(&algorithms::RSA_PSS_2048_8192_SHA512),
    }
}

fn ecdsa(curve: Curve, hash: Hash) -> Result<&'static dyn VerificationAlgorithm, Error> {
    Ok(match (curve, hash) {
        (Curve::P256, Hash::Sha1) => &algorithms::ECDSA_P256_SHA1_ASN1,
        (Curve::P256, Hash::Sha256) => &algorithms::ECDSA_P256_SHA256_ASN1,
        (Curve::P256, Hash::Sha384) => &algorithms::ECDSA_P256_SHA384_ASN1,
        (Curve::P256, Hash::Sha512) => &algorithms::ECDSA_P256_SHA512_ASN1,
        (Curve::P384, Hash::Sha256) => &algorithms::ECDSA_P384_SHA256_ASN1,
        (Curve::P384, Hash::Sha384) => &algorithms::ECDSA_P384_SHA384_ASN1,
        (Curve::P384, Hash::Sha512) => &algorithms::ECDSA_P384_SHA512_ASN1,
        (Curve::P521, Hash::Sha1) => &algorithms::ECDSA_P521_SHA1_ASN1,
        (Curve::P521, Hash::Sha256) => &algorithms::ECDSA_P521_SHA256_ASN1,
        (Curve::P521, Hash::Sha384) => &algorithms::ECDSA_P521_SHA384_ASN1,
        (Curve::P521, Hash::Sha512) => &algorithms::ECDSA_P521_SHA512_ASN1,
        // The library does not support these; Kubernetes accepts them.
        (Curve::P224, _) | (Curve::P384, Hash::Sha1) => return Err(Error::UnknownAlgorithm),
    })
}
