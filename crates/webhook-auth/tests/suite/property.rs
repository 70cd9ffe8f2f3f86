//! Property tests: arbitrary input never causes a panic, and unsigned content is never accepted.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use webhook_auth::verify::Provider;
use webhook_auth::{AdmissionRequest, KeySet};

use crate::issuer::{ISSUER, Key, NOW, at, claims, verifier};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(vec![ISSUER, "*", "", "ES256", "none", "k", "guard"]).prop_map(Value::from),
    ];
    let key = prop_oneof![
        prop::sample::select(vec![
            "iss",
            "aud",
            "exp",
            "iat",
            "nbf",
            "sub",
            "jti",
            "alg",
            "kid",
            "crit",
            "typ",
            "kubernetes.io",
            "name",
            "uid",
            "namespace",
            "serviceaccount",
            "attestations",
            "attestationClaims",
            "admissionReviewAPIGroups",
            "validatingWebhookConfiguration",
            "mutatingwebhookconfiguration",
            "keys",
            "kty",
            "crv",
            "x",
            "y",
            "n",
            "e",
            "request",
            "resource",
            "group",
            "kind",
            "apiVersion",
            "jwks_uri",
            "issuer",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn pods() -> AdmissionRequest {
    AdmissionRequest::about("", "v1", "pods", "Pod")
}

proptest! {
    // Failing inputs are printed, not written into the source tree; turn them into regular tests.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_rejected_as_a_token(text in ".{0,200}", now in 0..4_000_000_000_i64) {
        let key = Key::ec("k");
        prop_assert!(verifier(&[&key]).verify(&text, at(now), &pods()).is_err());
    }

    #[test]
    fn arbitrary_bytes_in_three_parts_are_rejected_as_a_token(header in any::<Vec<u8>>(), claims in any::<Vec<u8>>(), signature in any::<Vec<u8>>()) {
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let key = Key::ec("k");
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let token = format!("{}.{}.{}", encode(&header), encode(&claims), encode(&signature));
        prop_assert!(verifier(&[&key]).verify(&token, at(NOW), &pods()).is_err());
    }

    #[test]
    fn verifying_signed_claims_of_any_shape_never_panics(header in any_json(), claims in any_json(), now in any::<u32>()) {
        let key = Key::ec("k");
        let verifier = verifier(&[&key]);
        let _ = verifier.verify(&key.token(&claims), at(i64::from(now)), &pods());
        let _ = verifier.verify(&key.token_with(&header, &claims), at(i64::from(now)), &pods());
    }

    #[test]
    fn token_with_one_replaced_claim_is_rejected_unless_equivalent(
        pointer in prop::sample::select(vec![
            "/iss", "/aud", "/exp", "/iat", "/sub", "/kubernetes.io", "/kubernetes.io/namespace",
            "/kubernetes.io/serviceaccount", "/kubernetes.io/attestations", "/kubernetes.io/attestationClaims",
            "/kubernetes.io/validatingWebhookConfiguration", "/kubernetes.io/validatingwebhookconfiguration",
        ]),
        value in any_json(),
    ) {
        let key = Key::ec("k");
        let mut claims = claims("*");
        let before = claims.pointer(pointer).cloned().unwrap_or_default();
        if let Some(at) = claims.pointer_mut(pointer) {
            *at = value.clone();
        }
        let verified = verifier(&[&key]).verify(&key.token(&claims), at(NOW), &pods());
        // `null` counts as absent, and one dialect may be absent. Other times can be valid too.
        let dialect = value.is_null() && (pointer.contains("attestation") || pointer.contains("onfiguration"));
        let time = pointer == "/exp" || pointer == "/iat";
        prop_assert!(verified.is_err() || value == before || dialect || time, "{pointer} {value}");
    }

    #[test]
    fn token_with_one_changed_byte_is_rejected(at_byte in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let key = Key::ec("k");
        let token = key.token(&claims("*"));
        let mut bytes = token.clone().into_bytes();
        let index = at_byte.index(bytes.len());
        bytes[index] = byte;
        let changed = String::from_utf8_lossy(&bytes).into_owned();
        let verified = verifier(&[&key]).verify(&changed, at(NOW), &pods());
        prop_assert!(verified.is_err() || changed == token);
    }

    #[test]
    fn reading_documents_of_any_shape_never_panics(document in any_json(), bytes in any::<Vec<u8>>()) {
        for text in [document.to_string().into_bytes(), bytes] {
            let _ = KeySet::from_jwks(&text);
            let _ = KeySet::from_jwks(json!({"keys": [document]}).to_string().as_bytes());
            let _ = Provider::read(&text, ISSUER);
            let _ = AdmissionRequest::from_review(&text);
        }
    }
}
