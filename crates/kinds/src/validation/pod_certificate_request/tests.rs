//! Tests of request keys and of issued certificate chains.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData, SanType, date_time_ymd,
};
use value::{Value, json};

use super::super::ValidationContext;
use super::{POD_CERTIFICATE_REQUEST, is_mail_address};

/// Equals 2026-01-01T00:00:00Z, in seconds since 1970.
const NOW: i64 = 1_767_225_600;

fn object(spec: &str, status: &str) -> Value {
    let text = format!(
        r#"{{"metadata": {{"name": "r", "namespace": "n"}}, "spec": {{"signerName": "a.b/c", "podName": "p", "podUID": "uid",
            "serviceAccountName": "s", "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "u",
            "maxExpirationSeconds": 172800{spec}}}, "status": {{{status}}}}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

fn texts(errors: &api::FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn created(spec: &str) -> Vec<String> {
    texts(&(POD_CERTIFICATE_REQUEST.create)(&object(spec, ""), &ValidationContext::default()))
}

fn possession(key: &[u8], proof: &[u8]) -> String {
    let (key, proof) = (STANDARD.encode(key), STANDARD.encode(proof));
    format!(r#", "pkixPublicKey": "{key}", "proofOfPossession": "{proof}""#)
}

#[test]
fn possession_of_a_public_key_is_proven_by_a_signature_of_the_pods_uid() {
    let random = SystemRandom::new();
    let mut proofs: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::new();

    let pair = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let sign = |text: &[u8]| pair.sign(&random, text).unwrap().as_ref().to_vec();
    proofs.push((pair.public_key().as_der().unwrap().as_ref().to_vec(), sign(b"uid"), sign(b"other")));

    let pair = Ed25519KeyPair::generate().unwrap();
    let sign = |text: &[u8]| pair.sign(text).as_ref().to_vec();
    proofs.push((pair.public_key().as_der().unwrap().as_ref().to_vec(), sign(b"uid"), sign(b"other")));

    let pair = RsaKeyPair::generate(KeySize::Rsa3072).unwrap();
    let sign = |text: &[u8]| {
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&signature::RSA_PSS_SHA256, &random, text, &mut signature).unwrap();
        signature
    };
    proofs.push((pair.public_key().as_der().unwrap().as_ref().to_vec(), sign(b"uid"), sign(b"other")));

    for (key, good, bad) in &proofs {
        assert_eq!(created(&possession(key, good)), Vec::<String>::new());
        assert_eq!(
            created(&possession(key, bad)),
            ["spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature"]
        );
    }

    let weak = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let weak = weak.public_key().as_der().unwrap();
    assert_eq!(
        created(&possession(weak.as_ref(), b"x")),
        [
            "spec.pkixPublicKey: Invalid value: \"2048-bit modulus\": RSA keys must have modulus size 3072 or 4096"
        ]
    );
    assert_eq!(
        created(&possession(b"abc", b"x")),
        ["spec.pkixPublicKey: Invalid value: \"YWJj\": must be a valid PKIX-serialized public key"]
    );
    // X25519 keys cannot sign.
    let mut x25519 = STANDARD.decode("MCowBQYDK2VuAyEA").unwrap();
    x25519.extend([9; 32]);
    let shown = STANDARD.encode(&x25519);
    assert_eq!(
        created(&possession(&x25519, b"x")),
        [format!(
            "spec.pkixPublicKey: Invalid value: \"{shown}\": unknown public key type; supported types are Ed25519, ECDSA, and RSA"
        )]
    );
}

/// Issues a certificate that is valid for two days from [`NOW`].
fn issue(key: &impl PublicKeyData, change: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 1, 3));
    change(&mut params);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    params.signed_by(key, &Issuer::from_params(&authority, &authority_key)).unwrap().pem()
}

/// Validation errors of a status that issues this chain for a request with this key.
fn answered(key: &KeyPair, chain: &str, now: i64) -> Vec<String> {
    let stub = CertificateParams::default().serialize_request(key).unwrap();
    let spec = format!(r#", "stubPKCS10Request": "{}""#, STANDARD.encode(stub.der()));
    let chain = value::write::to_string(&Value::from(chain));
    let status = format!(
        r#""certificateChain": {chain}, "notBefore": "2026-01-01T00:00:00Z", "notAfter": "2026-01-03T00:00:00Z",
            "beginRefreshAt": "2026-01-02T00:00:00Z", "conditions": [{{"type": "Issued", "status": "True", "reason": "R",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}}]"#
    );
    let context = ValidationContext { now, ..ValidationContext::default() };
    let stored = |status: &str| {
        let mut object = object(&spec, status);
        object.set_at(&["metadata", "resourceVersion"], "1");
        object
    };
    let errors = (POD_CERTIFICATE_REQUEST.update_status)(&stored(&status), &stored(""), &context);
    // Most errors quote the chain.
    let quoted = api::field::quote(json::parse(chain.as_bytes()).unwrap().as_str().unwrap_or_default());
    texts(&errors).into_iter().map(|text| text.replace(&quoted, "CHAIN")).collect()
}

#[test]
fn every_certificate_of_a_chain_is_validated() {
    let key = KeyPair::generate().unwrap();
    let good = issue(&key, |_| {});
    let none = Vec::<String>::new();
    assert_eq!(answered(&key, &good, NOW), none);
    assert_eq!(answered(&key, &good, NOW + 299), none);
    assert_eq!(answered(&key, &good, NOW - 299), none);
    let late = "status.notBefore: Invalid value: \"2026-01-01T00:00:00Z\": must be set to within 5 minutes of kube-apiserver's current time";
    assert_eq!(answered(&key, &good, NOW + 300), [late]);
    assert_eq!(answered(&key, &good, NOW - 300), [late]);

    let other = issue(&KeyPair::generate().unwrap(), |_| {});
    assert_eq!(answered(&key, &format!("{good}{other}"), NOW), none);
    assert_eq!(
        answered(&key, &format!("{other}{good}"), NOW),
        [
            "status.certificateChain: Invalid value: CHAIN: leaf certificate was not issued to the requested public key"
        ]
    );
    assert_eq!(
        answered(&key, &format!("{good}-----BEGIN A-----\nQQ==\n-----END A-----\n"), NOW),
        [
            "status.certificateChain: Invalid value: CHAIN: issued certificate chain must consist entirely of CERTFICATE PEM blocks"
        ]
    );
    assert_eq!(
        answered(&key, &format!("{good}-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"), NOW),
        [
            "status.certificateChain: Invalid value: CHAIN: intermediate certificate does not parse as valid X.509"
        ]
    );
}

#[test]
fn names_of_the_leaf_are_validated() {
    let key = KeyPair::generate().unwrap();
    let text = |text: &str| rcgen::string::Ia5String::try_from(text).unwrap();
    let named =
        |names: Vec<SanType>| answered(&key, &issue(&key, |params| params.subject_alt_names = names), NOW);
    assert_eq!(
        named(vec![SanType::DnsName(text("a.b")), SanType::Rfc822Name(text("a.b@c.d"))]),
        Vec::<String>::new()
    );
    assert_eq!(
        named(vec![SanType::DnsName(text("a..b.")), SanType::Rfc822Name(text("a"))]),
        [
            "status.certificateChain: Invalid value: \"a..b.\": leaf certificate's DNSName should not contain '..'",
            "status.certificateChain: Invalid value: \"a..b.\": leaf certificate's DNSName should not start or end with '.'",
            "status.certificateChain: Invalid value: \"a\": leaf certificate should not contain invalid EmailAddress",
        ]
    );
}

#[test]
fn addresses_are_read_as_gos_mail_package_reads_them() {
    for good in ["a@b", "a.b+c@d.e", "<a@b>", "Alice <a@b.c>", "\"a b\"@c", "a@[127.0.0.1]"] {
        assert!(is_mail_address(good), "{good}");
    }
    for bad in ["", "a", "@b", "a@", "a..b@c", "a b@c", "a@b.", "<a@b", "a@b>", "a@[x]", "a@b@c"] {
        assert!(!is_mail_address(bad), "{bad}");
    }
}
