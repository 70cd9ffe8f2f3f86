//! The form of a token: its parts, header and signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use webhook_auth::Reason;
use webhook_auth::verify::MAX_TOKEN;

use super::pods;
use crate::issuer::{Key, NOW, at, changed, claims, hmac_token, jwks, verifier};

#[test]
fn the_header_chooses_neither_algorithm_nor_key() {
    let (ec, rsa) = (Key::ec("ec"), Key::rsa("rsa"));
    let stranger = Key::ec("ec");
    let verifier = verifier(&[&ec, &rsa]);
    let check = |token: &str| verifier.verify(token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason());
    let claims = claims("*");
    assert_eq!(check(&ec.token(&claims)), Ok(()));
    assert_eq!(check(&rsa.token(&claims)), Ok(()));

    // `none`, in every spelling, with and without a signature.
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let token = ec.token_with(&json!({"alg": none, "kid": "ec"}), &claims);
        assert_eq!(check(&token), Err(Reason::Algorithm));
        let (signed, _) = token.rsplit_once('.').unwrap();
        assert_eq!(check(&format!("{signed}.")), Err(Reason::Algorithm));
    }
    // An HMAC with the public key as secret is rejected.
    let public = rsa.jwk()["n"].as_str().unwrap().to_owned();
    for secret in [public.as_bytes(), &URL_SAFE_NO_PAD.decode(&public).unwrap(), &jwks(&[&rsa])] {
        assert_eq!(check(&hmac_token("rsa", secret, &claims)), Err(Reason::Algorithm));
    }
    // Unsupported algorithms, and a supported one that is not the key's.
    for other in ["HS384", "HS512", "PS256", "RS512", "EdDSA", "es256", "RS256 "] {
        let token = rsa.token_with(&json!({"alg": other, "kid": "rsa"}), &claims);
        assert_eq!(check(&token), Err(Reason::Algorithm), "{other}");
    }
    assert_eq!(
        check(&rsa.token_with(&json!({"alg": "ES256", "kid": "rsa"}), &claims)),
        Err(Reason::Algorithm)
    );
    assert_eq!(check(&ec.token_with(&json!({"alg": "RS256", "kid": "ec"}), &claims)), Err(Reason::Algorithm));
    assert_eq!(check(&ec.token_with(&json!({"alg": "ES384", "kid": "ec"}), &claims)), Err(Reason::Algorithm));
    assert_eq!(check(&ec.token_with(&json!({"kid": "ec"}), &claims)), Err(Reason::Algorithm));
    assert_eq!(
        check(&ec.token_with(&json!({"alg": ["ES256"], "kid": "ec"}), &claims)),
        Err(Reason::Algorithm)
    );
    // A signature by one key with the id of another.
    assert_eq!(
        check(&ec.token_with(&json!({"alg": "RS256", "kid": "rsa"}), &claims)),
        Err(Reason::Signature)
    );
    assert_eq!(check(&stranger.token(&claims)), Err(Reason::Signature));
    // Keys in the token's header are ignored.
    let own = json!({"alg": "ES256", "kid": "ec", "jwk": stranger.jwk(), "jku": "https://evil.example", "x5u": "https://evil.example"});
    assert_eq!(check(&stranger.token_with(&own, &claims)), Err(Reason::Signature));
    assert_eq!(check(&ec.token_with(&own, &claims)), Ok(()));
    // Key ids that are unknown, missing or of the wrong type.
    for header in [
        json!({"alg": "ES256", "kid": "other"}),
        json!({"alg": "ES256"}),
        json!({"alg": "ES256", "kid": ""}),
        json!({"alg": "ES256", "kid": 1}),
    ] {
        assert_eq!(check(&ec.token_with(&header, &claims)), Err(Reason::UnknownKey));
    }
}

#[test]
fn token_with_an_unsupported_header_parameter_is_rejected() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let check = |more: Value| {
        let mut header = json!({"alg": "ES256", "kid": "k"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let token = key.token_with(&header, &claims("*"));
        verifier.verify(&token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason())
    };
    for fine in [json!({}), json!({"typ": "JWT"}), json!({"typ": "jwt"}), json!({"cty": "x", "unknown": 1})] {
        assert_eq!(check(fine), Ok(()));
    }
    for odd in [
        json!({"crit": ["exp"]}),
        json!({"crit": []}),
        json!({"crit": null}),
        json!({"b64": false}),
        json!({"b64": true}),
        json!({"zip": "DEF"}),
        json!({"typ": "at+jwt"}),
        json!({"typ": "JOSE+JSON"}),
        json!({"typ": 1}),
    ] {
        assert_eq!(check(odd.clone()), Err(Reason::Header), "{odd}");
    }
}

#[test]
fn token_with_repeated_keys_or_invalid_json_is_rejected() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let check = |header: &str, claims: &str| {
        let token = key.sign_text(header, claims);
        verifier.verify(&token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason())
    };
    let header = r#"{"alg":"ES256","kid":"k"}"#;
    let claims = claims("*").to_string();
    assert_eq!(check(header, &claims), Ok(()));
    assert_eq!(check(&format!(" {header}\n"), &claims), Ok(()));
    for twice in [
        r#""exp":1,"#,
        r#""aud":"x","#,
        r#""kubernetes.io":{},"#,
        r#""a":1,"a":1,"#,
        r#""a":{"b":1,"b":2},"#,
        r#""a":[{"b":1,"\u0062":2}],"#,
    ] {
        let claims = claims.replacen('{', &format!("{{{twice}"), 1);
        assert_eq!(check(header, &claims), Err(Reason::Malformed), "{twice}");
    }
    let inner = claims.replacen(r#""namespace":"#, r#""namespace":"other","namespace":"#, 1);
    assert_eq!(check(header, &inner), Err(Reason::Malformed));
    for twice in [r#"{"alg":"none","alg":"ES256","kid":"k"}"#, r#"{"alg":"ES256","kid":"k","kid":"k"}"#] {
        assert_eq!(check(twice, &claims), Err(Reason::Malformed));
    }
    for odd in ["[]", "1", "null", "\"x\"", "{", "", "{}{}", "{\"a\":1}x"] {
        assert_eq!(check(header, odd), Err(Reason::Malformed), "{odd}");
        assert_eq!(check(odd, &claims), Err(Reason::Malformed), "{odd}");
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep = claims.replacen('{', &format!("{{\"a\":{deep},"), 1);
    assert!(check(header, &deep).is_err());
}

#[test]
fn malformed_tokens_are_rejected() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let check = |token: &str| verifier.verify(token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason());
    let good = key.token(&claims("*"));
    assert_eq!(check(&good), Ok(()));
    for odd in ["", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d.e", " ", "ö.ö.ö", &good.replace('.', ":")] {
        assert_eq!(check(odd), Err(Reason::Malformed), "{odd}");
    }
    for odd in [
        format!(" {good}"),
        format!("{good} "),
        format!("{good}="),
        format!("{good}.x"),
        good.replace('.', "=."),
        format!("{good}\n"),
    ] {
        assert_eq!(check(&odd), Err(Reason::Malformed));
    }
    let mut parts = good.split('.');
    let (header, payload) = (parts.next().unwrap(), parts.next().unwrap());
    assert_eq!(check(&format!("{header}.{payload}.")), Err(Reason::Signature));
    assert_eq!(check(&format!("{header}.{payload}.AAAA")), Err(Reason::Signature));
    // The signature of another token.
    let other = key.token(&claims("apps"));
    let crossed = format!("{header}.{payload}.{}", other.rsplit_once('.').unwrap().1);
    assert_eq!(check(&crossed), Err(Reason::Signature));

    // The maximum length and a longer token.
    let padded = |size: usize| {
        let claims = changed("*", |c| c["padding"] = json!("x".repeat(size)));
        key.token(&claims)
    };
    let fits = (0..2_000).map(|i| padded(11_000 + i)).take_while(|t| t.len() <= MAX_TOKEN).last();
    assert!(fits.is_some_and(|token| check(&token) == Ok(())));
    assert_eq!(check(&padded(12_400)), Err(Reason::Oversize));
    assert_eq!(check(&"x".repeat(MAX_TOKEN + 1)), Err(Reason::Oversize));
}
