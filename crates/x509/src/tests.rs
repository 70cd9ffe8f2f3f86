//! Cases in which another parser could read a different block, subject or key than Go.

use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SignatureAlgorithm};

use crate::{CertificateRequest, CertificateSubject, Error, PublicKey, directory_string, pem};

/// Label, contents and remaining text of the first block.
fn first(text: &str) -> Option<(String, Vec<u8>, String)> {
    let (block, rest) = pem::decode(text.as_bytes())?;
    Some((block.label, block.bytes, String::from_utf8_lossy(rest).into_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what `first` gives")]
fn found(label: &str, bytes: &[u8], rest: &str) -> Option<(String, Vec<u8>, String)> {
    Some((label.to_owned(), bytes.to_vec(), rest.to_owned()))
}

#[test]
fn written_block_has_lines_of_64_characters_and_is_found_again() {
    assert_eq!(pem::encode("A", b"A"), A);
    assert_eq!(pem::encode("A", b""), "-----BEGIN A-----\n-----END A-----\n");
    let bytes = [7; 49];
    let text = pem::encode("TWO LINES", &bytes);
    let lines: Vec<usize> = text.lines().map(str::len).collect();
    assert_eq!(lines, [25, 64, 4, 23]);
    assert_eq!(first(&text), found("TWO LINES", &bytes, ""));
}

const A: &str = "-----BEGIN A-----\nQQ==\n-----END A-----\n";
const B: &str = "-----BEGIN B-----\nQg==\n-----END B-----\n";

#[test]
fn first_pem_block_is_found_between_other_text() {
    assert_eq!(first(A), found("A", b"A", ""));
    assert_eq!(first(&format!("words\n{A}{B}")), found("A", b"A", B));
    assert_eq!(first("-----BEGIN A-----\r\nQQ==\r\n-----END A----- \t\r\nrest"), found("A", b"A", "rest"));
    assert_eq!(first("-----BEGIN A-----\n Q\tQ\n=\n=\n-----END A-----"), found("A", b"A", ""));
    assert_eq!(first("-----BEGIN A-----\n-----END A-----\n"), found("A", b"", ""));
    // The unused bits of the last base64 character are ignored.
    assert_eq!(first("-----BEGIN A-----\nQR==\n-----END A-----\n"), found("A", b"A", ""));
    let labels: Vec<String> = pem::blocks(format!("{A}{B}{A}").as_bytes()).map(|block| block.label).collect();
    assert_eq!(labels, ["A", "B", "A"]);
}

#[test]
fn a_malformed_pem_block_is_skipped() {
    for malformed in [
        "-----BEGIN A-----\nQQ==\n -----END A-----\n",
        "-----BEGIN A-----\nQQ==\n-----END A----- x\n",
        "-----BEGIN A-----\nQQ==\n-----END a-----\n",
        "-----BEGIN A-----\nQQ==\n-----END A----\n",
        "-----BEGIN A-----\nQQ=\n-----END A-----\n",
        "-----BEGIN A-----\nQ!==\n-----END A-----\n",
        "-----BEGIN A----\nQQ==\n-----END A-----\n",
        " -----BEGIN A-----\nQQ==\n-----END A-----\n",
        "-----BEGIN A-----\nQQ==\n",
        "-----BEGIN A-----\nQQ==-----END A-----\n",
    ] {
        assert_eq!(first(malformed), None, "{malformed}");
        assert_eq!(first(&format!("{malformed}{B}")), found("B", b"B", ""), "{malformed}");
    }
    for nothing in ["", "-----BEGIN A-----", "-----END A-----\n", "words"] {
        assert_eq!(first(nothing), None, "{nothing}");
    }
}

#[test]
fn pem_headers_are_detected_and_cannot_hide_the_end_line() {
    let (block, rest) = pem::decode(b"-----BEGIN A-----\nk: v\n\nQQ==\n-----END A-----\n").unwrap();
    assert!(block.has_headers && rest.is_empty());
    assert_eq!(block.bytes, b"A");
    assert!(!pem::decode(A.as_bytes()).unwrap().0.has_headers);
    assert_eq!(first(&format!("-----BEGIN A-----\nk: v\n-----END A-----:\n{B}")), None);
}

#[test]
fn every_string_type_of_a_name_is_read() {
    let read = |tag, bytes: &[u8]| directory_string(tag, bytes);
    let text = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(read(0x0c, "ä".as_bytes()), text("ä"));
    assert_eq!(read(0x12, b"1 2"), text("1 2"));
    assert_eq!(read(0x13, b"system:masters*&"), text("system:masters*&"));
    assert_eq!(read(0x14, b"\xe4a"), text("äa"));
    assert_eq!(read(0x16, b"a@b"), text("a@b"));
    assert_eq!(read(0x1e, b"\0a\x20\xac"), text("a€"));
    // One trailing zero character is dropped.
    assert_eq!(read(0x1e, b"\0a\0\0"), text("a"));
    assert_eq!(read(0x1e, b"\0a\0\0\0\0"), text("a\0"));
    // Not string types: UniversalString, OCTET STRING, and a string type's number in another class or form.
    for tag in [0x1c, 0x04, 0x8c, 0x2c] {
        assert_eq!(read(tag, b"a"), Ok(None));
    }
    let refused: [(u8, &[u8]); 7] = [
        (0x0c, b"\xff"),
        (0x12, b"a"),
        (0x13, b"a@b"),
        (0x16, b"\xe4"),
        (0x1e, b"\0a\0"),
        (0x1e, b"\xd8\0\xdc\0"),
        (0x1e, b"\xff\xff"),
    ];
    for (tag, bytes) in refused {
        assert!(matches!(read(tag, bytes), Err(Error::Text(_))), "{tag} {bytes:?}");
    }
}

/// Creates a certificate request with this name and key algorithm.
fn request(name: &[(DnType, DnValue)], algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in name {
        params.distinguished_name.push(kind.clone(), value.clone());
    }
    let key = KeyPair::generate_for(algorithm).unwrap();
    params.serialize_request(&key).unwrap().der().to_vec()
}

fn utf8(text: &str) -> DnValue {
    DnValue::Utf8String(text.to_owned())
}

#[test]
fn a_subject_is_read_in_every_string_type() {
    let bmp = DnValue::BmpString("system:masters".try_into().unwrap());
    for value in [utf8("system:masters"), bmp] {
        let der = request(
            &[(DnType::OrganizationName, value), (DnType::CommonName, utf8("alice"))],
            &rcgen::PKCS_ECDSA_P256_SHA256,
        );
        let subject = CertificateSubject {
            common_name: "alice".to_owned(),
            organizations: vec!["system:masters".to_owned()],
        };
        assert_eq!(CertificateRequest::from_der(&der).unwrap().subject, subject);
    }
}

#[test]
fn non_text_subjects_and_trailing_bytes_are_refused() {
    let der = request(&[(DnType::OrganizationName, utf8("abcd"))], &rcgen::PKCS_ECDSA_P256_SHA256);
    let at = der.windows(4).position(|window| window == b"abcd").unwrap();
    let with_tag = |tag: u8| {
        let mut der = der.clone();
        der[at - 2] = tag;
        CertificateRequest::from_der(&der).map(|request| request.subject.organizations)
    };
    assert_eq!(with_tag(0x13), Ok(vec!["abcd".to_owned()]));
    assert_eq!(with_tag(0x1c), Err(Error::NameNotText));
    assert_eq!(with_tag(0x04), Err(Error::NameNotText));
    let mut longer = der.clone();
    longer.push(0);
    assert_eq!(CertificateRequest::from_der(&longer).unwrap_err(), Error::TrailingData);
    assert_eq!(CertificateRequest::from_der(&der[..der.len() - 1]).unwrap_err(), Error::MalformedRequest);
    assert_eq!(CertificateRequest::from_pem(A.as_bytes()).unwrap_err(), Error::NotARequest);
}

#[test]
fn a_request_is_signed_by_its_own_key() {
    let kinds = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "x509: ECDSA verification failure"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "x509: ECDSA verification failure"),
        (&rcgen::PKCS_ECDSA_P521_SHA512, "x509: ECDSA verification failure"),
        (&rcgen::PKCS_ED25519, "x509: Ed25519 verification failure"),
        (&rcgen::PKCS_RSA_SHA256, "crypto/rsa: verification error"),
    ];
    for (algorithm, failure) in kinds {
        let der = request(&[(DnType::CommonName, utf8("alice"))], algorithm);
        assert_eq!(CertificateRequest::from_der(&der).unwrap().check_signature(), Ok(()));
        let at = der.windows(5).position(|window| window == b"alice").unwrap();
        let mut other = der.clone();
        other[at..at + 5].copy_from_slice(b"admin");
        let request = CertificateRequest::from_der(&other).unwrap();
        assert_eq!(request.subject.common_name, "admin");
        assert_eq!(request.check_signature().unwrap_err().to_string(), failure);
    }
}

#[test]
fn proof_of_possession_uses_the_algorithm_of_the_key_type() {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair, RsaPssSaltLength,
    };
    let random = SystemRandom::new();
    let check = |key: &PublicKey, signature: &[u8]| {
        assert!(key.verifies_possession(b"uid", signature));
        assert!(!key.verifies_possession(b"other", signature));
    };

    let pair = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let point = pair.public_key().as_ref().to_vec();
    let key = PublicKey::Ecdsa { curve: crate::Curve::P256, point };
    check(&key, pair.sign(&random, b"uid").unwrap().as_ref());

    let pair = Ed25519KeyPair::generate().unwrap();
    check(&PublicKey::Ed25519(pair.public_key().as_ref().to_vec()), pair.sign(b"uid").as_ref());

    let pair = RsaKeyPair::generate(KeySize::Rsa3072).unwrap();
    let numbers = pair.public_key();
    let key = PublicKey::Rsa {
        modulus: numbers.modulus().big_endian_without_leading_zero().to_vec(),
        exponent: numbers.exponent().big_endian_without_leading_zero().to_vec(),
    };
    for salt in [RsaPssSaltLength::Max, RsaPssSaltLength::Digest] {
        let mut signature = vec![0; pair.public_modulus_len()];
        let padding = signature::RSA_PSS_SHA256.with_pss_salt_length(salt);
        let padding: &'static signature::RsaSignatureEncoding = Box::leak(Box::new(padding));
        pair.sign(padding, &random, b"uid", &mut signature).unwrap();
        check(&key, &signature);
    }
}
