//! Decoding of JSON Web Key Sets.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use webhook_auth::verify::{Algorithm, KeyError};
use webhook_auth::{KeySet, Keys, Reason, Verifier};

use super::pods;
use crate::issuer::{Key, NOW, at, claims, expected, key_set, unusable_fields, verifier};

#[test]
fn keys_can_be_replaced_while_a_verifier_is_in_use() {
    let (old, new) = (Key::ec("old"), Key::rsa("new"));
    let keys = Keys::new(key_set(&[&old]));
    let verifier = Verifier::new(expected(), keys.clone()).unwrap();
    let check = |key: &Key| {
        let verified = verifier.verify(&key.token(&claims("*")), at(NOW), &pods());
        verified.map(|_| ()).map_err(|rejection| rejection.reason())
    };
    assert_eq!((check(&old), check(&new)), (Ok(()), Err(Reason::UnknownKey)));
    keys.replace(key_set(&[&old, &new]));
    assert_eq!((check(&old), check(&new)), (Ok(()), Ok(())));
    keys.replace(key_set(&[&new]));
    assert_eq!((check(&old), check(&new)), (Err(Reason::UnknownKey), Ok(())));
    keys.replace(KeySet::default());
    assert_eq!(check(&new), Err(Reason::UnknownKey));
}

#[test]
fn a_key_set_keeps_the_keys_that_can_verify_tokens() {
    let key = Key::ec("k");
    let ids =
        |document: &Value| KeySet::from_jwks(document.to_string().as_bytes()).map(|set| set.ids().count());
    let with = |field: &str, value: Value| {
        let mut jwk = key.jwk();
        jwk[field] = value;
        ids(&json!({"keys": [jwk]}))
    };
    let without = |field: &str| {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().remove(field).unwrap();
        ids(&json!({"keys": [jwk]}))
    };
    assert_eq!(without("use"), Ok(1));
    assert_eq!(without("alg"), Ok(1));
    assert_eq!(with("key_ops", json!(["verify"])), Ok(1));
    let others = [("kty", json!("OKP")), ("y", json!(URL_SAFE_NO_PAD.encode([7; 32])))];
    for (field, value) in unusable_fields().into_iter().chain(others) {
        assert_eq!(with(field, value.clone()), Err(KeyError::NoKeys), "{field} {value}");
    }
    for field in ["kid", "kty", "crv", "x", "y"] {
        assert_eq!(without(field), Err(KeyError::NoKeys), "{field}");
    }
    // Unusable keys are ignored if another key is usable.
    let secret = json!({"kty": "oct", "kid": "s", "k": "AAAA"});
    assert_eq!(ids(&json!({"keys": [secret, key.jwk()]})), Ok(1));
    let mut small = Key::rsa("r").jwk();
    assert_eq!(ids(&json!({"keys": [small]})), Ok(1));
    small["n"] = json!(URL_SAFE_NO_PAD.encode([0xc1; 128]));
    assert_eq!(ids(&json!({"keys": [small]})), Err(KeyError::NoKeys));

    // Several keys may have the same id only if they are equal or have different algorithms.
    assert_eq!(ids(&json!({"keys": [key.jwk(), key.jwk()]})), Ok(1));
    assert_eq!(ids(&json!({"keys": [key.jwk(), Key::ec("k").jwk()]})), Err(KeyError::Ambiguous));
    assert_eq!(ids(&json!({"keys": [key.jwk(), Key::rsa("k").jwk()]})), Ok(2));

    assert_eq!(ids(&json!({"keys": vec![key.jwk(); 129]})), Err(KeyError::TooMany));
    for odd in [json!({}), json!({"keys": 1}), json!([]), json!({"keys": [1]})] {
        assert_eq!(ids(&odd), Err(KeyError::Malformed));
    }
    assert_eq!(ids(&json!({"keys": []})), Err(KeyError::NoKeys));
    let long = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(300_000));
    assert_eq!(KeySet::from_jwks(long.as_bytes()).unwrap_err(), KeyError::Oversize);
    let twice = r#"{"keys":[],"keys":[]}"#;
    assert_eq!(KeySet::from_jwks(twice.as_bytes()).unwrap_err(), KeyError::Malformed);
    let names: Vec<_> = Algorithm::ALL.iter().map(|a| Algorithm::named(a.as_str())).collect();
    assert_eq!(names, Algorithm::ALL.map(Some));
}

#[test]
fn two_types_of_keys_with_one_id_are_distinguished() {
    let (ec, rsa) = (Key::ec("k"), Key::rsa("k"));
    let verifier = verifier(&[&ec, &rsa]);
    for key in [&ec, &rsa] {
        assert!(verifier.verify(&key.token(&claims("*")), at(NOW), &pods()).is_ok());
    }
    let crossed = ec.token_with(&json!({"alg": "RS256", "kid": "k"}), &claims("*"));
    assert_eq!(verifier.verify(&crossed, at(NOW), &pods()).unwrap_err().reason(), Reason::Signature);
}
