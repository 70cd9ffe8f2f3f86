use value::Value;
use value::go::base64;

use super::{needed_update, signature};
use crate::fake::parse;

const CONTENT: &str = "apiVersion: v1\n";
/// Computed with Python's `hmac` for [`CONTENT`] and the token `abcdef.0123456789abcdef`.
const SIGNATURE: &str =
    "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE";

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let mut secret = parse(r#"{"type": "bootstrap.kubernetes.io/token"}"#);
    secret.set_at(&["metadata", "name"], name);
    for (key, text) in data {
        secret.set_at(&["data", key], base64::STD.encode(text));
    }
    secret
}

/// A token that may sign, with one entry changed.
fn token(changed: &str, text: &str) -> Value {
    let mut secret = secret(
        "bootstrap-token-abcdef",
        &[("token-id", "abcdef"), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", "true")],
    );
    if !changed.is_empty() {
        secret.set_at(&["data", changed], base64::STD.encode(text));
    }
    secret
}

fn cluster_info(signatures: &[(&str, &str)]) -> Value {
    let mut map = parse(r#"{"metadata": {"name": "cluster-info"}, "data": {"other": "text"}}"#);
    map.set_at(&["data", "kubeconfig"], CONTENT);
    for (id, signature) in signatures {
        map.set_at(&["data", &format!("jws-kubeconfig-{id}")], *signature);
    }
    map
}

#[test]
fn a_signature_is_a_detached_jws_with_the_id_as_key_id() {
    assert_eq!(signature(CONTENT, "abcdef", b"0123456789abcdef"), SIGNATURE);
}

#[test]
fn cluster_info_is_signed_with_every_token_that_may_sign() {
    let signed = needed_update(&cluster_info(&[]), &[token("", "")], 0).unwrap();
    assert_eq!(signed, cluster_info(&[("abcdef", SIGNATURE)]));
    assert_eq!(needed_update(&signed, &[token("", "")], 0), None);
}

#[test]
fn signatures_of_changed_and_deleted_tokens_are_replaced_and_removed() {
    let stored = cluster_info(&[("abcdef", "old"), ("ghijkl", "of a deleted token")]);
    let signed = needed_update(&stored, &[token("", "")], 0).unwrap();
    assert_eq!(signed, cluster_info(&[("abcdef", SIGNATURE)]));
    assert_eq!(needed_update(&signed, &[], 0), Some(cluster_info(&[])));
}

#[test]
fn tokens_that_may_not_sign_sign_nothing() {
    let unsigned = cluster_info(&[]);
    for (key, text) in [
        ("usage-bootstrap-signing", "false"),
        ("token-id", "ghijkl"),
        ("token-secret", ""),
        ("expiration", "1970-01-01T00:00:01Z"),
    ] {
        assert_eq!(needed_update(&unsigned, &[token(key, text)], 1_000_000), None, "{key}");
    }
    let mut renamed = token("", "");
    renamed.set_at(&["metadata", "name"], "bootstrap-token-other");
    assert_eq!(needed_update(&unsigned, &[renamed], 0), None);
    let mut opaque = token("", "");
    opaque.set_at(&["type"], "Opaque");
    assert_eq!(needed_update(&unsigned, &[opaque], 0), None);
    assert!(needed_update(&unsigned, &[token("expiration", "1970-01-01T00:00:01Z")], 0).is_some());
}

#[test]
fn a_config_map_without_kubeconfig_is_not_signed() {
    assert_eq!(needed_update(&parse(r#"{"data": {"other": "text"}}"#), &[token("", "")], 0), None);
    assert_eq!(needed_update(&parse("{}"), &[token("", "")], 0), None);
}
