//! An issuer for tests: keys, their JWKs, and tokens with arbitrary headers and claims.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use webhook_auth::{ConfigurationKind, Expected, KeySet, Keys, Verifier};

pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
pub(crate) const AUDIENCE: &str = "https://guard.default.svc:443/admission/review";
pub(crate) const UID: &str = "44e818f2-2ad0-4432-9816-3a649ca9945c";

/// The time of the tests, in seconds since 1970.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap())
}

pub(crate) enum Pair {
    Ec(EcdsaKeyPair, &'static str, &'static str, usize),
    Rsa(Box<RsaKeyPair>),
}

/// A signing key of the issuer.
pub(crate) struct Key {
    pub(crate) id: String,
    pair: Pair,
}

impl Key {
    pub(crate) fn ec(id: &str) -> Self {
        Self::on(id, &signature::ECDSA_P256_SHA256_FIXED_SIGNING, "ES256", "P-256", 32)
    }

    pub(crate) fn p384(id: &str) -> Self {
        Self::on(id, &signature::ECDSA_P384_SHA384_FIXED_SIGNING, "ES384", "P-384", 48)
    }

    pub(crate) fn p521(id: &str) -> Self {
        Self::on(id, &signature::ECDSA_P521_SHA512_FIXED_SIGNING, "ES512", "P-521", 66)
    }

    fn on(
        id: &str,
        signing: &'static EcdsaSigningAlgorithm,
        algorithm: &'static str,
        curve: &'static str,
        size: usize,
    ) -> Self {
        let pair = EcdsaKeyPair::generate(signing).unwrap();
        Key { id: id.to_owned(), pair: Pair::Ec(pair, algorithm, curve, size) }
    }

    pub(crate) fn rsa(id: &str) -> Self {
        Key { id: id.to_owned(), pair: Pair::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())) }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::Ec(_, algorithm, _, _) => algorithm,
            Pair::Rsa(_) => "RS256",
        }
    }

    /// The public part as a JSON Web Key.
    pub(crate) fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Ec(pair, algorithm, curve, size) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(*size);
                json!({"kty": "EC", "crv": curve, "alg": algorithm, "use": "sig", "kid": self.id, "x": encode(x), "y": encode(y)})
            }
            Pair::Rsa(pair) => {
                let public = pair.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
                json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.id, "n": encode(n), "e": encode(e)})
            }
        }
    }

    pub(crate) fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ec(pair, ..) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut out).unwrap();
                out
            }
        }
    }

    /// A token whose header has only `alg` and `kid`.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm(), "kid": self.id}), claims)
    }

    /// A token with this header, signed by this key.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Encodes and signs header and claims verbatim, even if they are not JSON.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.signature(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A token whose HMAC uses the given bytes as shared secret, for algorithm confusion attacks with a public key.
pub(crate) fn hmac_token(id: &str, secret: &[u8], claims: &Value) -> String {
    let header = json!({"alg": "HS256", "kid": id}).to_string();
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

pub(crate) fn jwks(keys: &[&Key]) -> Vec<u8> {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string().into_bytes()
}

pub(crate) fn key_set(keys: &[&Key]) -> KeySet {
    KeySet::from_jwks(&jwks(keys)).unwrap()
}

/// Valid claims in both dialects, for one API group, bound to a validating configuration.
pub(crate) fn claims(group: &str) -> Value {
    json!({
        "aud": [AUDIENCE],
        "exp": NOW + 600,
        "iat": NOW,
        "nbf": NOW,
        "iss": ISSUER,
        "jti": "b5f9f7a4-1c1c-4d3f-a0b2-2f2f2f2f2f2f",
        "kubernetes.io": {
            "namespace": "kube-system",
            "serviceaccount": {"name": "webhook-auth", "uid": "a-uid"},
            "validatingwebhookconfiguration": {"name": "guard", "uid": UID},
            "validatingWebhookConfiguration": {"name": "guard", "uid": UID},
            "attestations": {"admissionReviewAPIGroups": [group]},
            "attestationClaims": {"webhook-authentication.k8s.io/allowedAPIGroup": [group]},
        },
        "sub": "system:serviceaccount:kube-system:webhook-auth",
    })
}

/// [`claims`] after applying `change`.
pub(crate) fn changed(group: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = claims(group);
    change(&mut claims);
    claims
}

pub(crate) fn expected() -> Expected {
    Expected::new(ISSUER, AUDIENCE, ConfigurationKind::Validating)
}

pub(crate) fn verifier(keys: &[&Key]) -> Verifier {
    Verifier::new(expected(), Keys::new(key_set(keys))).unwrap()
}

/// JWK fields with values of which each makes a P-256 key unusable.
pub(crate) fn unusable_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("use", json!("enc")),
        ("use", json!(1)),
        ("alg", json!("ES384")),
        ("alg", json!("HS256")),
        ("key_ops", json!(["sign"])),
        ("key_ops", json!("verify")),
        ("kty", json!("oct")),
        ("crv", json!("P-384")),
        ("crv", json!("secp256k1")),
        ("kid", json!("")),
        ("kid", json!(1)),
        ("x", json!("AAAA")),
        ("x", json!("!")),
    ]
}
