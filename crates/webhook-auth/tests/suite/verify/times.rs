//! Issuer and validity period of a token.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;
use webhook_auth::{Expected, Keys, Reason, Verifier};

use super::{check_changed, pods};
use crate::issuer::{ISSUER, Key, NOW, at, changed, claims, expected, key_set, verifier};

#[test]
fn a_token_of_another_issuer_is_refused() {
    assert_eq!(check_changed(|c| c["iss"] = json!("https://elsewhere.example")), Err(Reason::Issuer));
    assert_eq!(check_changed(|c| c["iss"] = json!(format!("{ISSUER}/"))), Err(Reason::Issuer));
    assert_eq!(check_changed(|c| drop(c.as_object_mut().unwrap().remove("iss"))), Err(Reason::Issuer));
    assert_eq!(check_changed(|c| c["iss"] = json!([ISSUER])), Err(Reason::Malformed));
    let key = Key::ec("k");
    // The detail names the issuer that was found, because a wrong expectation is a common mistake.
    let token = key.token(&changed("*", |c| c["iss"] = json!("https://elsewhere.example")));
    let rejection = verifier(&[&key]).authenticate(&token, at(NOW)).unwrap_err();
    assert_eq!(
        rejection.detail(),
        format!("the token's issuer is \"https://elsewhere.example\", but [\"{ISSUER}\"] is expected")
    );
    // During a change of the issuer, the old and the new one are accepted.
    let issuers = vec!["https://new.example".to_owned(), ISSUER.to_owned()];
    let verifier = Verifier::new(Expected { issuers, ..expected() }, Keys::new(key_set(&[&key]))).unwrap();
    let new = changed("*", |c| c["iss"] = json!("https://new.example"));
    for claims in [claims("*"), new] {
        assert!(verifier.verify(&key.token(&claims), at(NOW), &pods()).is_ok());
    }
}

#[test]
fn token_is_valid_from_nbf_to_exp_with_tolerance_for_clock_skew() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let token = key.token(&claims("*"));
    let check = |time: i64| {
        let verified = verifier.verify(&token, at(time), &pods());
        verified.map(|_| ()).map_err(|rejection| rejection.reason())
    };
    assert_eq!(check(NOW), Ok(()));
    assert_eq!(check(NOW + 600), Ok(()));
    assert_eq!(check(NOW + 659), Ok(()));
    assert_eq!(check(NOW + 660), Err(Reason::Expired));
    assert_eq!(check(NOW - 60), Ok(()));
    assert_eq!(check(NOW - 61), Err(Reason::NotYetValid));
    assert_eq!(check(0), Err(Reason::NotYetValid));
    let before_1970 = verifier.verify(&token, UNIX_EPOCH - Duration::from_secs(1), &pods());
    assert_eq!(before_1970.unwrap_err().reason(), Reason::NotYetValid);

    let exact = Expected { skew: Duration::ZERO, ..expected() };
    let exact = Verifier::new(exact, Keys::new(key_set(&[&key]))).unwrap();
    assert!(exact.verify(&token, at(NOW + 599), &pods()).is_ok());
    assert_eq!(exact.verify(&token, at(NOW + 600), &pods()).unwrap_err().reason(), Reason::Expired);
    assert_eq!(exact.verify(&token, at(NOW - 1), &pods()).unwrap_err().reason(), Reason::NotYetValid);
}

#[test]
fn token_without_exp_or_with_a_too_long_lifetime_is_rejected() {
    let drop_claim =
        |claim: &'static str| check_changed(move |c| drop(c.as_object_mut().unwrap().remove(claim)));
    assert_eq!(drop_claim("exp"), Err(Reason::Expired));
    assert_eq!(drop_claim("iat"), Err(Reason::Lifetime));
    assert_eq!(drop_claim("nbf"), Ok(()));
    assert_eq!(check_changed(|c| c["exp"] = json!(NOW + 601)), Err(Reason::Lifetime));
    assert_eq!(check_changed(|c| c["exp"] = json!(i64::MAX)), Err(Reason::Malformed));
    assert_eq!(check_changed(|c| c["exp"] = json!(-1)), Err(Reason::Expired));
    assert_eq!(check_changed(|c| c["exp"] = json!(null)), Err(Reason::Expired));
    assert_eq!(check_changed(|c| c["iat"] = json!(NOW + 61)), Err(Reason::Lifetime));
    assert_eq!(check_changed(|c| c["nbf"] = json!(NOW + 61)), Err(Reason::NotYetValid));
    // Fractions of a second are truncated; values of other types are rejected.
    assert_eq!(check_changed(|c| c["exp"] = json!(600.9 + 1.8e9)), Ok(()));
    for odd in [json!("1800000600"), json!([1]), json!(true), json!(1e300), json!({})] {
        for claim in ["exp", "iat", "nbf"] {
            assert_eq!(check_changed(|c| c[claim] = odd.clone()), Err(Reason::Malformed), "{claim} {odd}");
        }
    }
}
