//! Subject, bound configuration and audience of a token.

use serde_json::{Value, json};
use webhook_auth::verify::{Dialect, Groups};
use webhook_auth::{ConfigurationKind, Expected, Keys, Reason, Verifier};

use super::{check_changed, pods};
use crate::issuer::{AUDIENCE, ISSUER, Key, NOW, UID, at, changed, claims, expected, key_set, verifier};

#[test]
fn token_of_each_algorithm_identifies_its_service_account_and_configuration() {
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
fn token_must_be_bound_to_exactly_one_configuration_of_the_expected_kind() {
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
    assert_eq!(check_changed(|c| mutating(c, false)), Err(Reason::WrongKind));
    assert_eq!(check_changed(|c| mutating(c, true)), Err(Reason::BoundTwice));
    let one_in_each = |c: &mut Value| {
        let kubernetes = c["kubernetes.io"].as_object_mut().unwrap();
        let bound = kubernetes.remove("validatingWebhookConfiguration").unwrap();
        kubernetes.insert("mutatingWebhookConfiguration".to_owned(), bound);
    };
    assert_eq!(check_changed(one_in_each), Err(Reason::BoundTwice));
    for other in ["pod", "secret", "node"] {
        assert_eq!(
            check_changed(|c| c["kubernetes.io"][other] = json!({"name": "x", "uid": "y"})),
            Err(Reason::BoundTwice)
        );
    }
    for nameless in [json!({"uid": UID}), json!({"name": "guard"}), json!({"name": "", "uid": ""}), json!({})]
    {
        let unbound = check_changed(|c| {
            c["kubernetes.io"]["validatingwebhookconfiguration"] = nameless.clone();
            c["kubernetes.io"]["validatingWebhookConfiguration"] = nameless;
        });
        assert_eq!(unbound, Err(Reason::NotBound));
    }

    // A verifier for mutating configurations rejects tokens of validating ones.
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
fn token_must_have_the_expected_configuration_name_uid_and_subject() {
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
fn token_for_another_audience_is_rejected() {
    assert_eq!(check_changed(|c| c["aud"] = json!(AUDIENCE)), Ok(()));
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
        assert_eq!(check_changed(|c| c["aud"] = other.clone()), Err(Reason::Audience), "{other}");
    }
    assert_eq!(check_changed(|c| drop(c.as_object_mut().unwrap().remove("aud"))), Err(Reason::Audience));
    assert_eq!(check_changed(|c| c["aud"] = json!({"a": AUDIENCE})), Err(Reason::Malformed));
}

#[test]
fn token_subject_must_equal_its_service_account_claim() {
    for (subject, namespace, name) in [
        ("system:serviceaccount:kube-system:other", "kube-system", "webhook-auth"),
        ("system:serviceaccount:other:webhook-auth", "kube-system", "webhook-auth"),
        ("webhook-auth", "kube-system", "webhook-auth"),
        ("", "kube-system", "webhook-auth"),
        ("system:serviceaccount::", "", ""),
        ("system:serviceaccount:kube-system:", "kube-system", ""),
    ] {
        let result = check_changed(|c| {
            c["sub"] = json!(subject);
            c["kubernetes.io"]["namespace"] = json!(namespace);
            c["kubernetes.io"]["serviceaccount"]["name"] = json!(name);
        });
        assert_eq!(result, Err(Reason::Subject), "{subject}");
    }
    assert_eq!(
        check_changed(|c| drop(c.as_object_mut().unwrap().remove("kubernetes.io"))),
        Err(Reason::Subject)
    );
    assert_eq!(
        check_changed(|c| drop(c["kubernetes.io"].as_object_mut().unwrap().remove("serviceaccount"))),
        Err(Reason::Subject)
    );
}
