//! The core: every rule, with what it accepts and what it rejects.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use webhook_auth::verify::{
    Algorithm, Dialect, ExpectedError, Groups, KeyError, MAX_SKEW, MAX_TOKEN, Provider, ProviderError,
    ReviewError, ServiceReference,
};
use webhook_auth::{
    AdmissionRequest, ClientConfig, ConfigurationKind, Expected, KeySet, Keys, Reason, Verifier,
};

use crate::issuer::{
    AUDIENCE, ISSUER, Key, NOW, UID, at, changed, claims, expected, hmac_token, jwks, key_set, verifier,
};

fn pods() -> AdmissionRequest {
    AdmissionRequest::about("", "v1", "pods", "Pod")
}

fn turtles() -> AdmissionRequest {
    AdmissionRequest::about("ninja.turtles.ai", "v1", "ninjaturtles", "NinjaTurtle")
}

/// What becomes of claims that a good key signed, for a request about a group.
fn judge(claims: &Value, request: &AdmissionRequest) -> Result<(), Reason> {
    let key = Key::ec("k");
    let verified = verifier(&[&key]).verify(&key.token(claims), at(NOW), request);
    verified.map(|_| ()).map_err(|rejection| rejection.reason())
}

/// What becomes of them for a request they are for.
fn judged(change: impl FnOnce(&mut Value)) -> Result<(), Reason> {
    judge(&changed("apps", change), &AdmissionRequest::about("apps", "v1", "deployments", "Deployment"))
}

#[test]
fn a_token_of_each_algorithm_says_who_is_calling() {
    for key in [Key::rsa("r"), Key::ec("e"), Key::p384("f"), Key::p521("g")] {
        let verifier = verifier(&[&key]);
        let verified = verifier.verify(&key.token(&claims("*")), at(NOW + 5), &pods()).unwrap();
        let identity = verified.identity();
        assert_eq!(identity.subject(), "system:serviceaccount:kube-system:webhook-auth");
        assert_eq!(
            (identity.namespace(), identity.service_account().name.as_str()),
            ("kube-system", "webhook-auth")
        );
        assert_eq!((identity.issuer(), identity.audience()), (ISSUER, AUDIENCE));
        assert_eq!(identity.id(), Some("b5f9f7a4-1c1c-4d3f-a0b2-2f2f2f2f2f2f"));
        let configuration = identity.configuration();
        assert_eq!(configuration.kind, ConfigurationKind::Validating);
        assert_eq!((configuration.name.as_str(), configuration.uid.as_str()), ("guard", UID));
        assert_eq!(identity.groups(), &Groups::Every);
        assert_eq!(identity.expires(), at(NOW + 600));
    }
}

#[test]
fn a_token_for_one_group_is_good_for_that_group_only() {
    let named = "ninja.turtles.ai";
    assert_eq!(judge(&claims(named), &turtles()), Ok(()));
    assert_eq!(judge(&claims(named), &pods()), Err(Reason::Group));
    let similar = AdmissionRequest::about("turtles.ai", "v1", "ninjaturtles", "NinjaTurtle");
    assert_eq!(judge(&claims(named), &similar), Err(Reason::Group));
    let shouted = AdmissionRequest::about("Ninja.Turtles.ai", "v1", "ninjaturtles", "NinjaTurtle");
    assert_eq!(judge(&claims(named), &shouted), Err(Reason::Group));
    let star = AdmissionRequest::about("*", "v1", "pods", "Pod");
    assert_eq!(judge(&claims(named), &star), Err(Reason::Group));
    // And one for all is good for all.
    for request in [pods(), turtles(), star] {
        assert_eq!(judge(&claims("*"), &request), Ok(()));
    }
}

#[test]
fn the_core_group_is_a_group_like_any_other() {
    assert_eq!(judge(&claims(""), &pods()), Ok(()));
    assert_eq!(judge(&claims(""), &turtles()), Err(Reason::Group));
    // Kubernetes 1.37 has no way to attest it, so a claim that does is none of its.
    let only_ours =
        changed("", |c| drop(c["kubernetes.io"].as_object_mut().unwrap().remove("attestationClaims")));
    assert_eq!(judge(&only_ours, &pods()), Err(Reason::NoGroup));
    let only_kep = changed("", |c| drop(c["kubernetes.io"].as_object_mut().unwrap().remove("attestations")));
    assert_eq!(judge(&only_kep, &pods()), Ok(()));
}

#[test]
fn a_kind_of_another_group_is_not_asked_about_under_a_resource_of_ones_own() {
    let mut request = turtles();
    request.kind = pods().kind;
    assert_eq!(judge(&claims("ninja.turtles.ai"), &request), Err(Reason::Group));
    assert_eq!(judge(&claims("*"), &request), Ok(()));
    // Subresources have kinds of other groups: a `Scale` is of `autoscaling`.
    request.sub_resource = Some("scale".to_owned());
    assert_eq!(judge(&claims("ninja.turtles.ai"), &request), Err(Reason::Group));
    request.kind.group = "autoscaling".to_owned();
    request.kind.kind = "Scale".to_owned();
    assert_eq!(judge(&claims("ninja.turtles.ai"), &request), Ok(()));
    request.resource.group = "apps".to_owned();
    assert_eq!(judge(&claims("ninja.turtles.ai"), &request), Err(Reason::Group));
}

#[test]
fn either_dialect_is_understood_and_both_must_agree() {
    let without = |fields: [&str; 2]| {
        changed("apps", |claims| {
            for field in fields {
                claims["kubernetes.io"].as_object_mut().unwrap().remove(field).unwrap();
            }
        })
    };
    let request = AdmissionRequest::about("apps", "v1", "deployments", "Deployment");
    assert_eq!(judge(&without(["attestations", "validatingwebhookconfiguration"]), &request), Ok(()));
    assert_eq!(judge(&without(["attestationClaims", "validatingWebhookConfiguration"]), &request), Ok(()));
    let none = without(["attestationClaims", "attestations"]);
    assert_eq!(judge(&none, &request), Err(Reason::NoGroup));
    let none = without(["validatingwebhookconfiguration", "validatingWebhookConfiguration"]);
    assert_eq!(judge(&none, &request), Err(Reason::NotBound));

    let group = Dialect::Attestations.group_key();
    let disagreement = Err(Reason::Disagreement);
    assert_eq!(judged(|c| c["kubernetes.io"]["attestations"][group] = json!(["*"])), disagreement);
    assert_eq!(judged(|c| c["kubernetes.io"]["attestations"][group] = json!([""])), disagreement);
    let group = Dialect::AttestationClaims.group_key();
    assert_eq!(judged(|c| c["kubernetes.io"]["attestationClaims"][group] = json!(["*"])), disagreement);
    let other = json!({"name": "guard", "uid": "another"});
    assert_eq!(judged(|c| c["kubernetes.io"]["validatingWebhookConfiguration"] = other), disagreement);
    let other = json!({"name": "another", "uid": UID});
    assert_eq!(judged(|c| c["kubernetes.io"]["validatingwebhookconfiguration"] = other), disagreement);
}

#[test]
fn exactly_one_group_is_attested() {
    for dialect in [Dialect::Attestations, Dialect::AttestationClaims] {
        let set = |value: Value| judged(|c| c["kubernetes.io"][dialect.field()][dialect.group_key()] = value);
        assert_eq!(set(json!(["apps"])), Ok(()));
        assert_eq!(set(json!([])), Err(Reason::NoGroup));
        assert_eq!(set(json!(["apps", "apps"])), Err(Reason::NoGroup));
        assert_eq!(set(json!(["apps", "*"])), Err(Reason::NoGroup));
        assert_eq!(set(json!("apps")), Err(Reason::Malformed));
        assert_eq!(set(json!([1])), Err(Reason::Malformed));
        assert_eq!(judged(|c| c["kubernetes.io"][dialect.field()] = json!({})), Err(Reason::NoGroup));
        let other = json!({"somethingElse": ["apps"]});
        assert_eq!(judged(|c| c["kubernetes.io"][dialect.field()] = other), Err(Reason::NoGroup));
        let more = json!({dialect.group_key(): ["apps"], "somethingElse": ["x", "y"]});
        assert_eq!(judged(|c| c["kubernetes.io"][dialect.field()] = more), Ok(()));
    }
}

#[test]
fn a_token_is_bound_to_one_configuration_of_the_right_kind() {
    let mutating = |c: &mut Value, also: bool| {
        let kubernetes = c["kubernetes.io"].as_object_mut().unwrap();
        for dialect in [Dialect::Attestations, Dialect::AttestationClaims] {
            let bound = kubernetes.get(ConfigurationKind::Validating.claim(dialect)).unwrap().clone();
            kubernetes.insert(ConfigurationKind::Mutating.claim(dialect).to_owned(), bound);
            if !also {
                kubernetes.remove(ConfigurationKind::Validating.claim(dialect));
            }
        }
    };
    assert_eq!(judged(|c| mutating(c, false)), Err(Reason::WrongKind));
    assert_eq!(judged(|c| mutating(c, true)), Err(Reason::BoundTwice));
    let one_in_each = |c: &mut Value| {
        let kubernetes = c["kubernetes.io"].as_object_mut().unwrap();
        let bound = kubernetes.remove("validatingWebhookConfiguration").unwrap();
        kubernetes.insert("mutatingWebhookConfiguration".to_owned(), bound);
    };
    assert_eq!(judged(one_in_each), Err(Reason::BoundTwice));
    for other in ["pod", "secret", "node"] {
        assert_eq!(
            judged(|c| c["kubernetes.io"][other] = json!({"name": "x", "uid": "y"})),
            Err(Reason::BoundTwice)
        );
    }
    for nameless in [json!({"uid": UID}), json!({"name": "guard"}), json!({"name": "", "uid": ""}), json!({})]
    {
        let unbound = judged(|c| {
            c["kubernetes.io"]["validatingwebhookconfiguration"] = nameless.clone();
            c["kubernetes.io"]["validatingWebhookConfiguration"] = nameless;
        });
        assert_eq!(unbound, Err(Reason::NotBound));
    }

    // And the other way round.
    let key = Key::ec("k");
    let expected = Expected { kind: ConfigurationKind::Mutating, ..expected() };
    let verifier = Verifier::new(expected, Keys::new(key_set(&[&key]))).unwrap();
    let token = |also| key.token(&changed("*", |c| mutating(c, also)));
    assert!(verifier.verify(&token(false), at(NOW), &pods()).is_ok());
    assert_eq!(verifier.verify(&token(true), at(NOW), &pods()).unwrap_err().reason(), Reason::BoundTwice);
    let validating = key.token(&claims("*"));
    assert_eq!(verifier.verify(&validating, at(NOW), &pods()).unwrap_err().reason(), Reason::WrongKind);
}

#[test]
fn name_uid_and_subject_are_held_to_what_is_expected() {
    let key = Key::ec("k");
    let token = key.token(&claims("*"));
    let with = |change: &dyn Fn(&mut Expected)| {
        let mut expected = expected();
        change(&mut expected);
        let verifier = Verifier::new(expected, Keys::new(key_set(&[&key]))).unwrap();
        verifier.authenticate(&token, at(NOW)).map(|_| ()).map_err(|rejection| rejection.reason())
    };
    assert_eq!(with(&|e| e.name = Some("guard".to_owned())), Ok(()));
    assert_eq!(with(&|e| e.name = Some("another".to_owned())), Err(Reason::WrongConfiguration));
    assert_eq!(with(&|e| e.uid = Some(UID.to_owned())), Ok(()));
    assert_eq!(with(&|e| e.uid = Some("that of one made anew".to_owned())), Err(Reason::WrongConfiguration));
    let own = "system:serviceaccount:kube-system:webhook-auth".to_owned();
    assert_eq!(with(&|e| e.subjects = vec!["system:serviceaccount:a:b".to_owned(), own.clone()]), Ok(()));
    let other = "system:serviceaccount:turtles:turtles-webhook-auth".to_owned();
    assert_eq!(with(&|e| e.subjects = vec![other.clone()]), Err(Reason::OtherSubject));
}

#[test]
fn a_token_for_another_webhook_is_refused() {
    assert_eq!(judged(|c| c["aud"] = json!(AUDIENCE)), Ok(()));
    for other in [
        json!(["https://guard.default.svc:443/admission/other"]),
        json!(["https://guard.default.svc:443/admission/review/"]),
        json!(["https://guard.default.svc/admission/review"]),
        json!(["https://GUARD.default.svc:443/admission/review"]),
        json!([AUDIENCE, "https://other.default.svc:443/"]),
        json!([AUDIENCE, AUDIENCE]),
        json!([]),
        json!(""),
        json!(null),
    ] {
        assert_eq!(judged(|c| c["aud"] = other.clone()), Err(Reason::Audience), "{other}");
    }
    assert_eq!(judged(|c| drop(c.as_object_mut().unwrap().remove("aud"))), Err(Reason::Audience));
    assert_eq!(judged(|c| c["aud"] = json!({"a": AUDIENCE})), Err(Reason::Malformed));
}

#[test]
fn a_token_of_another_issuer_is_refused() {
    assert_eq!(judged(|c| c["iss"] = json!("https://elsewhere.example")), Err(Reason::Issuer));
    assert_eq!(judged(|c| c["iss"] = json!(format!("{ISSUER}/"))), Err(Reason::Issuer));
    assert_eq!(judged(|c| drop(c.as_object_mut().unwrap().remove("iss"))), Err(Reason::Issuer));
    assert_eq!(judged(|c| c["iss"] = json!([ISSUER])), Err(Reason::Malformed));
    // While an issuer changes, both are good.
    let key = Key::ec("k");
    let issuers = vec!["https://new.example".to_owned(), ISSUER.to_owned()];
    let verifier = Verifier::new(Expected { issuers, ..expected() }, Keys::new(key_set(&[&key]))).unwrap();
    let new = changed("*", |c| c["iss"] = json!("https://new.example"));
    for claims in [claims("*"), new] {
        assert!(verifier.verify(&key.token(&claims), at(NOW), &pods()).is_ok());
    }
}

#[test]
fn a_token_is_good_between_its_times_and_clocks_may_differ_a_little() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let token = key.token(&claims("*"));
    let judge = |time: i64| {
        let verified = verifier.verify(&token, at(time), &pods());
        verified.map(|_| ()).map_err(|rejection| rejection.reason())
    };
    assert_eq!(judge(NOW), Ok(()));
    assert_eq!(judge(NOW + 600), Ok(()));
    assert_eq!(judge(NOW + 659), Ok(()));
    assert_eq!(judge(NOW + 660), Err(Reason::Expired));
    assert_eq!(judge(NOW - 60), Ok(()));
    assert_eq!(judge(NOW - 61), Err(Reason::NotYetValid));
    assert_eq!(judge(0), Err(Reason::NotYetValid));
    let before_1970 = verifier.verify(&token, UNIX_EPOCH - Duration::from_secs(1), &pods());
    assert_eq!(before_1970.unwrap_err().reason(), Reason::NotYetValid);

    let exact = Expected { skew: Duration::ZERO, ..expected() };
    let exact = Verifier::new(exact, Keys::new(key_set(&[&key]))).unwrap();
    assert!(exact.verify(&token, at(NOW + 599), &pods()).is_ok());
    assert_eq!(exact.verify(&token, at(NOW + 600), &pods()).unwrap_err().reason(), Reason::Expired);
    assert_eq!(exact.verify(&token, at(NOW - 1), &pods()).unwrap_err().reason(), Reason::NotYetValid);
}

#[test]
fn a_token_without_an_end_or_with_a_late_one_is_refused() {
    let drop_claim = |claim: &'static str| judged(move |c| drop(c.as_object_mut().unwrap().remove(claim)));
    assert_eq!(drop_claim("exp"), Err(Reason::Expired));
    assert_eq!(drop_claim("iat"), Err(Reason::Lifetime));
    assert_eq!(drop_claim("nbf"), Ok(()));
    assert_eq!(judged(|c| c["exp"] = json!(NOW + 601)), Err(Reason::Lifetime));
    assert_eq!(judged(|c| c["exp"] = json!(i64::MAX)), Err(Reason::Malformed));
    assert_eq!(judged(|c| c["exp"] = json!(-1)), Err(Reason::Expired));
    assert_eq!(judged(|c| c["exp"] = json!(null)), Err(Reason::Expired));
    assert_eq!(judged(|c| c["iat"] = json!(NOW + 61)), Err(Reason::Lifetime));
    assert_eq!(judged(|c| c["nbf"] = json!(NOW + 61)), Err(Reason::NotYetValid));
    // Fractions of a second are cut off; other shapes are no dates.
    assert_eq!(judged(|c| c["exp"] = json!(600.9 + 1.8e9)), Ok(()));
    for odd in [json!("1800000600"), json!([1]), json!(true), json!(1e300), json!({})] {
        for claim in ["exp", "iat", "nbf"] {
            assert_eq!(judged(|c| c[claim] = odd.clone()), Err(Reason::Malformed), "{claim} {odd}");
        }
    }
}

#[test]
fn the_subject_is_the_service_account_that_the_token_names() {
    for (subject, namespace, name) in [
        ("system:serviceaccount:kube-system:other", "kube-system", "webhook-auth"),
        ("system:serviceaccount:other:webhook-auth", "kube-system", "webhook-auth"),
        ("webhook-auth", "kube-system", "webhook-auth"),
        ("", "kube-system", "webhook-auth"),
        ("system:serviceaccount::", "", ""),
        ("system:serviceaccount:kube-system:", "kube-system", ""),
    ] {
        let judged = judged(|c| {
            c["sub"] = json!(subject);
            c["kubernetes.io"]["namespace"] = json!(namespace);
            c["kubernetes.io"]["serviceaccount"]["name"] = json!(name);
        });
        assert_eq!(judged, Err(Reason::Subject), "{subject}");
    }
    assert_eq!(judged(|c| drop(c.as_object_mut().unwrap().remove("kubernetes.io"))), Err(Reason::Subject));
    assert_eq!(
        judged(|c| drop(c["kubernetes.io"].as_object_mut().unwrap().remove("serviceaccount"))),
        Err(Reason::Subject)
    );
}

#[test]
fn the_header_chooses_neither_algorithm_nor_key() {
    let (ec, rsa) = (Key::ec("ec"), Key::rsa("rsa"));
    let stranger = Key::ec("ec");
    let verifier = verifier(&[&ec, &rsa]);
    let judge = |token: &str| verifier.verify(token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason());
    let claims = claims("*");
    assert_eq!(judge(&ec.token(&claims)), Ok(()));
    assert_eq!(judge(&rsa.token(&claims)), Ok(()));

    // `none`, in every spelling, with and without a signature.
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let token = ec.token_with(&json!({"alg": none, "kid": "ec"}), &claims);
        assert_eq!(judge(&token), Err(Reason::Algorithm));
        let (signed, _) = token.rsplit_once('.').unwrap();
        assert_eq!(judge(&format!("{signed}.")), Err(Reason::Algorithm));
    }
    // A public key is no shared secret.
    let public = rsa.jwk()["n"].as_str().unwrap().to_owned();
    for secret in [public.as_bytes(), &URL_SAFE_NO_PAD.decode(&public).unwrap(), &jwks(&[&rsa])] {
        assert_eq!(judge(&hmac_token("rsa", secret, &claims)), Err(Reason::Algorithm));
    }
    // Algorithms that are not on the list, and one that is but is another key's.
    for other in ["HS384", "HS512", "PS256", "RS512", "EdDSA", "es256", "RS256 "] {
        let token = rsa.token_with(&json!({"alg": other, "kid": "rsa"}), &claims);
        assert_eq!(judge(&token), Err(Reason::Algorithm), "{other}");
    }
    assert_eq!(
        judge(&rsa.token_with(&json!({"alg": "ES256", "kid": "rsa"}), &claims)),
        Err(Reason::Algorithm)
    );
    assert_eq!(judge(&ec.token_with(&json!({"alg": "RS256", "kid": "ec"}), &claims)), Err(Reason::Algorithm));
    assert_eq!(judge(&ec.token_with(&json!({"alg": "ES384", "kid": "ec"}), &claims)), Err(Reason::Algorithm));
    assert_eq!(judge(&ec.token_with(&json!({"kid": "ec"}), &claims)), Err(Reason::Algorithm));
    assert_eq!(
        judge(&ec.token_with(&json!({"alg": ["ES256"], "kid": "ec"}), &claims)),
        Err(Reason::Algorithm)
    );
    // One key's signature under another's name.
    assert_eq!(
        judge(&ec.token_with(&json!({"alg": "RS256", "kid": "rsa"}), &claims)),
        Err(Reason::Signature)
    );
    assert_eq!(judge(&stranger.token(&claims)), Err(Reason::Signature));
    // A key that comes with the token is not looked at.
    let own = json!({"alg": "ES256", "kid": "ec", "jwk": stranger.jwk(), "jku": "https://evil.example", "x5u": "https://evil.example"});
    assert_eq!(judge(&stranger.token_with(&own, &claims)), Err(Reason::Signature));
    assert_eq!(judge(&ec.token_with(&own, &claims)), Ok(()));
    // Unknown keys, and tokens that name none.
    for header in [
        json!({"alg": "ES256", "kid": "other"}),
        json!({"alg": "ES256"}),
        json!({"alg": "ES256", "kid": ""}),
        json!({"alg": "ES256", "kid": 1}),
    ] {
        assert_eq!(judge(&ec.token_with(&header, &claims)), Err(Reason::UnknownKey));
    }
}

#[test]
fn what_must_be_understood_and_is_not_makes_a_token_void() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let judge = |more: Value| {
        let mut header = json!({"alg": "ES256", "kid": "k"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let token = key.token_with(&header, &claims("*"));
        verifier.verify(&token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason())
    };
    for fine in [json!({}), json!({"typ": "JWT"}), json!({"typ": "jwt"}), json!({"cty": "x", "unknown": 1})] {
        assert_eq!(judge(fine), Ok(()));
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
        assert_eq!(judge(odd.clone()), Err(Reason::Header), "{odd}");
    }
}

#[test]
fn what_two_readers_could_read_differently_is_not_read() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let judge = |header: &str, claims: &str| {
        let token = key.sign_text(header, claims);
        verifier.verify(&token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason())
    };
    let header = r#"{"alg":"ES256","kid":"k"}"#;
    let claims = claims("*").to_string();
    assert_eq!(judge(header, &claims), Ok(()));
    assert_eq!(judge(&format!(" {header}\n"), &claims), Ok(()));
    for twice in [
        r#""exp":1,"#,
        r#""aud":"x","#,
        r#""kubernetes.io":{},"#,
        r#""a":1,"a":1,"#,
        r#""a":{"b":1,"b":2},"#,
        r#""a":[{"b":1,"\u0062":2}],"#,
    ] {
        let claims = claims.replacen('{', &format!("{{{twice}"), 1);
        assert_eq!(judge(header, &claims), Err(Reason::Malformed), "{twice}");
    }
    let inner = claims.replacen(r#""namespace":"#, r#""namespace":"other","namespace":"#, 1);
    assert_eq!(judge(header, &inner), Err(Reason::Malformed));
    for twice in [r#"{"alg":"none","alg":"ES256","kid":"k"}"#, r#"{"alg":"ES256","kid":"k","kid":"k"}"#] {
        assert_eq!(judge(twice, &claims), Err(Reason::Malformed));
    }
    for odd in ["[]", "1", "null", "\"x\"", "{", "", "{}{}", "{\"a\":1}x"] {
        assert_eq!(judge(header, odd), Err(Reason::Malformed), "{odd}");
        assert_eq!(judge(odd, &claims), Err(Reason::Malformed), "{odd}");
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep = claims.replacen('{', &format!("{{\"a\":{deep},"), 1);
    assert!(judge(header, &deep).is_err());
}

#[test]
fn what_is_no_token_is_refused_however_long_it_is() {
    let key = Key::ec("k");
    let verifier = verifier(&[&key]);
    let judge = |token: &str| verifier.verify(token, at(NOW), &pods()).map(|_| ()).map_err(|r| r.reason());
    let good = key.token(&claims("*"));
    assert_eq!(judge(&good), Ok(()));
    for odd in ["", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d.e", " ", "ö.ö.ö", &good.replace('.', ":")] {
        assert_eq!(judge(odd), Err(Reason::Malformed), "{odd}");
    }
    for odd in [
        format!(" {good}"),
        format!("{good} "),
        format!("{good}="),
        format!("{good}.x"),
        good.replace('.', "=."),
        format!("{good}\n"),
    ] {
        assert_eq!(judge(&odd), Err(Reason::Malformed));
    }
    let mut parts = good.split('.');
    let (header, payload) = (parts.next().unwrap(), parts.next().unwrap());
    assert_eq!(judge(&format!("{header}.{payload}.")), Err(Reason::Signature));
    assert_eq!(judge(&format!("{header}.{payload}.AAAA")), Err(Reason::Signature));
    // One bit of the claims, or of the signature.
    let other = key.token(&claims("apps"));
    let crossed = format!("{header}.{payload}.{}", other.rsplit_once('.').unwrap().1);
    assert_eq!(judge(&crossed), Err(Reason::Signature));

    // As long as may be, and a byte more.
    let padded = |size: usize| {
        let claims = changed("*", |c| c["padding"] = json!("x".repeat(size)));
        key.token(&claims)
    };
    let fits = (0..2_000).map(|i| padded(11_000 + i)).take_while(|t| t.len() <= MAX_TOKEN).last();
    assert!(fits.is_some_and(|token| judge(&token) == Ok(())));
    assert_eq!(judge(&padded(12_400)), Err(Reason::Oversize));
    assert_eq!(judge(&"x".repeat(MAX_TOKEN + 1)), Err(Reason::Oversize));
}

#[test]
fn keys_change_while_a_verifier_is_used() {
    let (old, new) = (Key::ec("old"), Key::rsa("new"));
    let keys = Keys::new(key_set(&[&old]));
    let verifier = Verifier::new(expected(), keys.clone()).unwrap();
    let judge = |key: &Key| {
        let verified = verifier.verify(&key.token(&claims("*")), at(NOW), &pods());
        verified.map(|_| ()).map_err(|rejection| rejection.reason())
    };
    assert_eq!((judge(&old), judge(&new)), (Ok(()), Err(Reason::UnknownKey)));
    keys.replace(key_set(&[&old, &new]));
    assert_eq!((judge(&old), judge(&new)), (Ok(()), Ok(())));
    keys.replace(key_set(&[&new]));
    assert_eq!((judge(&old), judge(&new)), (Err(Reason::UnknownKey), Ok(())));
    keys.replace(KeySet::default());
    assert_eq!(judge(&new), Err(Reason::UnknownKey));
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
    for (field, value) in [
        ("use", json!("enc")),
        ("use", json!(1)),
        ("alg", json!("ES384")),
        ("alg", json!("HS256")),
        ("key_ops", json!(["sign"])),
        ("key_ops", json!("verify")),
        ("kty", json!("oct")),
        ("kty", json!("OKP")),
        ("crv", json!("P-384")),
        ("crv", json!("secp256k1")),
        ("kid", json!("")),
        ("kid", json!(1)),
        ("x", json!("AAAA")),
        ("x", json!("!")),
        ("y", json!(URL_SAFE_NO_PAD.encode([7; 32]))),
    ] {
        assert_eq!(with(field, value.clone()), Err(KeyError::NoKeys), "{field} {value}");
    }
    for field in ["kid", "kty", "crv", "x", "y"] {
        assert_eq!(without(field), Err(KeyError::NoKeys), "{field}");
    }
    // What cannot be used does not stand in the way of what can.
    let secret = json!({"kty": "oct", "kid": "s", "k": "AAAA"});
    assert_eq!(ids(&json!({"keys": [secret, key.jwk()]})), Ok(1));
    let mut small = Key::rsa("r").jwk();
    assert_eq!(ids(&json!({"keys": [small]})), Ok(1));
    small["n"] = json!(URL_SAFE_NO_PAD.encode([0xc1; 128]));
    assert_eq!(ids(&json!({"keys": [small]})), Err(KeyError::NoKeys));

    // One name for two keys.
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
fn two_kinds_of_keys_of_one_name_are_told_apart() {
    let (ec, rsa) = (Key::ec("k"), Key::rsa("k"));
    let verifier = verifier(&[&ec, &rsa]);
    for key in [&ec, &rsa] {
        assert!(verifier.verify(&key.token(&claims("*")), at(NOW), &pods()).is_ok());
    }
    let crossed = ec.token_with(&json!({"alg": "RS256", "kid": "k"}), &claims("*"));
    assert_eq!(verifier.verify(&crossed, at(NOW), &pods()).unwrap_err().reason(), Reason::Signature);
}

#[test]
fn a_verifier_that_would_let_in_anybody_is_not_made() {
    let made = |change: &dyn Fn(&mut Expected)| {
        let mut expected = expected();
        change(&mut expected);
        Verifier::new(expected, Keys::default()).map(|_| ())
    };
    assert_eq!(made(&|_| {}), Ok(()));
    assert_eq!(made(&|e| e.issuers.clear()), Err(ExpectedError::Issuer));
    assert_eq!(made(&|e| e.issuers.push(String::new())), Err(ExpectedError::Issuer));
    assert_eq!(made(&|e| e.audiences.clear()), Err(ExpectedError::Audience));
    assert_eq!(made(&|e| e.audiences = vec![String::new()]), Err(ExpectedError::Audience));
    assert_eq!(made(&|e| e.name = Some(String::new())), Err(ExpectedError::Empty));
    assert_eq!(made(&|e| e.uid = Some(String::new())), Err(ExpectedError::Empty));
    assert_eq!(made(&|e| e.subjects = vec![String::new()]), Err(ExpectedError::Empty));
    assert_eq!(made(&|e| e.skew = MAX_SKEW), Ok(()));
    assert_eq!(made(&|e| e.skew = MAX_SKEW + Duration::from_secs(1)), Err(ExpectedError::Skew));
}

#[test]
fn the_audience_is_made_of_the_client_configuration() {
    let service = |path: Option<&str>, port| ClientConfig {
        url: None,
        service: Some(ServiceReference {
            namespace: "default".to_owned(),
            name: "guard".to_owned(),
            path: path.map(str::to_owned),
            port,
        }),
    };
    let audience = |config: &ClientConfig| config.audience().unwrap();
    assert_eq!(audience(&ClientConfig::service("default", "guard")), "https://guard.default.svc:443/");
    assert_eq!(audience(&service(Some("/a/b"), None)), "https://guard.default.svc:443/a/b");
    assert_eq!(audience(&service(Some("a"), Some(8443))), "https://guard.default.svc:8443/a");
    assert_eq!(audience(&service(Some(""), None)), "https://guard.default.svc:443/");
    assert_eq!(audience(&service(Some("/a/"), None)), "https://guard.default.svc:443/a/");
    assert_eq!(audience(&ClientConfig::url("https://x.example/y?z")), "https://x.example/y?z");
    assert_eq!(ClientConfig::default().audience(), None);
    let both = ClientConfig { url: Some("https://x".to_owned()), ..ClientConfig::service("a", "b") };
    assert_eq!(both.audience(), None);
    let read: ClientConfig = serde_json::from_value(
        json!({"service": {"namespace": "a", "name": "b", "port": 1}, "caBundle": "x"}),
    )
    .unwrap();
    assert_eq!(audience(&read), "https://b.a.svc:1/");
}

#[test]
fn a_provider_document_is_that_of_the_issuer() {
    let read = |document: Value| Provider::read(document.to_string().as_bytes(), ISSUER);
    let keys = "https://10.0.0.1:6443/openid/v1/jwks";
    let provider = read(json!({"issuer": ISSUER, "jwks_uri": keys, "more": 1})).unwrap();
    assert_eq!((provider.issuer(), provider.jwks_uri()), (ISSUER, keys));
    assert_eq!(read(json!({"issuer": "https://x", "jwks_uri": keys})), Err(ProviderError::Issuer));
    assert_eq!(read(json!({"issuer": ISSUER, "jwks_uri": "http://x"})), Err(ProviderError::Address));
    assert_eq!(read(json!({"issuer": ISSUER})), Err(ProviderError::Malformed));
    assert_eq!(read(json!([])), Err(ProviderError::Malformed));
    let twice = format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"https://a","jwks_uri":"https://b"}}"#);
    assert_eq!(Provider::read(twice.as_bytes(), ISSUER), Err(ProviderError::Malformed));
    let long = " ".repeat(300_000);
    assert_eq!(Provider::read(long.as_bytes(), ISSUER), Err(ProviderError::Oversize));
}

#[test]
fn the_request_of_a_review_is_read_as_the_webhook_reads_it() {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "subResource": "scale", "object": {"x": 1},
        },
    });
    let read = |review: &Value| AdmissionRequest::from_review(review.to_string().as_bytes());
    let request = read(&review).unwrap();
    assert_eq!((request.uid.as_str(), request.resource.group.as_str()), ("u", "apps"));
    assert_eq!((request.kind.kind.as_str(), request.sub_resource.as_deref()), ("Scale", Some("scale")));
    let with = |pointer: &str, value: Value| {
        let mut review = review.clone();
        *review.pointer_mut(pointer).unwrap() = value;
        read(&review).map(|_| ())
    };
    assert_eq!(with("/apiVersion", json!("admission.k8s.io/v1beta1")), Ok(()));
    assert_eq!(with("/apiVersion", json!("admission.k8s.io/v2")), Err(ReviewError::Version));
    assert_eq!(with("/kind", json!("Pod")), Err(ReviewError::Malformed));
    assert_eq!(with("/request", json!(null)), Err(ReviewError::Malformed));
    assert_eq!(with("/request/resource", json!("pods")), Err(ReviewError::Malformed));
    assert_eq!(with("/request/resource/group", json!(null)), Err(ReviewError::Malformed));
    // A group that comes twice, or a request that does.
    for (once, twice) in [
        (r#""resource":{"#, r#""resource":{"group":"","version":"v1","resource":"secrets"},"resource":{"#),
        (r#""request":{"#, r#""request":{},"request":{"#),
        (r#""resource":{"group":"apps""#, r#""resource":{"group":"apps","group":"""#),
    ] {
        let text = review.to_string();
        assert!(text.contains(once), "{text}");
        let text = text.replacen(once, twice, 1);
        assert_eq!(AdmissionRequest::from_review(text.as_bytes()), Err(ReviewError::Malformed));
    }
    // The core group is often left out.
    let pods = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"resource":{"version":"v1","resource":"pods"}}}"#;
    assert_eq!(AdmissionRequest::from_review(pods.as_bytes()).unwrap().resource.group, "");
}

#[test]
fn every_reason_has_a_name_of_its_own_and_a_status() {
    let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Reason::ALL.len());
    assert_eq!(Reason::Group.status(), 403);
    assert_eq!(Reason::Missing.status(), 401);
    assert_eq!(Reason::KeysUnavailable.status(), 503);
}
