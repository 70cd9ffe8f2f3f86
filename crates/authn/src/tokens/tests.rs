//! Tests of issuing, requesting and verifying service account tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::attestation::AttestationDialect;
use api::time::Timestamp;
use api::{GroupResource, Status};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use expect_test::expect;
use value::{Str, Value};

use super::verify::LookupFuture;
use super::*;
use crate::{Authenticator, Evidence, HeaderLines, User};

mod webhooks;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// An in-memory store of bound objects that counts lookups.
#[derive(Default)]
struct FakeObjects {
    objects: Mutex<HashMap<String, Arc<Value>>>,
    asked: Mutex<usize>,
}

impl FakeObjects {
    fn put(&self, kind: BoundKind, namespace: &str, name: &str, object: &str) {
        let object = value::json::parse(object.as_bytes()).unwrap();
        self.objects.lock().unwrap().insert(format!("{kind:?}/{namespace}/{name}"), Arc::new(object));
    }

    fn remove(&self, kind: BoundKind, namespace: &str, name: &str) {
        self.objects.lock().unwrap().remove(&format!("{kind:?}/{namespace}/{name}"));
    }
}

impl BoundObjects for FakeObjects {
    fn get<'a>(&'a self, kind: BoundKind, namespace: &'a str, name: &'a str) -> LookupFuture<'a> {
        *self.asked.lock().unwrap() += 1;
        let found = self.objects.lock().unwrap().get(&format!("{kind:?}/{namespace}/{name}")).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn has_api_service(&self, group: &str) -> bool {
        self.objects.lock().unwrap().contains_key(&format!("APIService/{group}"))
    }
}

/// Grants `attest` to the listed triples only.
struct Attests(&'static [(&'static str, &'static str, &'static str)]);

impl Attester for Attests {
    fn attest<'a>(
        &'a self,
        account: &'a User,
        dialect: AttestationDialect,
        group: &'a str,
    ) -> AttestFuture<'a> {
        let (_, resource) = dialect.resource();
        let asked = (account.name.as_str(), resource, dialect.name_of(group));
        let answer = if self.0.contains(&asked) {
            Ok(())
        } else {
            Err(Status::forbidden(&GroupResource::new("", resource), asked.2, "may not attest"))
        };
        Box::pin(std::future::ready(answer))
    }
}

fn store() -> Arc<FakeObjects> {
    let store = FakeObjects::default();
    store.put(
        BoundKind::ServiceAccount,
        "ns",
        "robot",
        r#"{"metadata":{"name":"robot","namespace":"ns","uid":"sa-uid"}}"#,
    );
    store.put(
        BoundKind::Pod,
        "ns",
        "web",
        r#"{"metadata":{"name":"web","namespace":"ns","uid":"pod-uid"},"spec":{"serviceAccountName":"robot","nodeName":"n1"}}"#,
    );
    store.put(BoundKind::Node, "", "n1", r#"{"metadata":{"name":"n1","uid":"node-uid"}}"#);
    Arc::new(store)
}

fn issuer() -> Issuer {
    Issuer::new("https://issuer", SigningKey::generate().unwrap().0)
}

fn verifier(issuer: &Issuer, store: &Arc<FakeObjects>) -> TokenVerifier {
    TokenVerifier::new(
        vec!["https://issuer".into()],
        vec![issuer.public_key().clone()],
        vec!["api".into()],
        store.clone(),
    )
}

fn claims() -> TokenClaims {
    TokenClaims {
        namespace: "ns".into(),
        service_account: ObjectReference { name: "robot".into(), uid: "sa-uid".into() },
        audiences: vec!["api".into(), "other".into()],
        id: "some-id".into(),
        issued_at: Some(NOW),
        not_before: Some(NOW),
        expires_at: Some(NOW + 600),
        ..TokenClaims::default()
    }
}

#[test]
fn service_account_token_has_the_claims_of_kubernetes() {
    let issuer = issuer();
    let token = issuer.issue(&claims()).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let payload = String::from_utf8(URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    expect![[r#"{"aud":["api","other"],"exp":1800000600,"iat":1800000000,"iss":"https://issuer","jti":"some-id","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"robot","uid":"sa-uid"}},"nbf":1800000000,"sub":"system:serviceaccount:ns:robot"}"#]]
        .assert_eq(&payload);
    let header = String::from_utf8(URL_SAFE_NO_PAD.decode(parts[0]).unwrap()).unwrap();
    assert_eq!(header, format!(r#"{{"alg":"ES256","kid":"{}"}}"#, issuer.public_key().id()));
}

#[test]
fn valid_token_authenticates_its_service_account() {
    let (issuer, store) = (issuer(), store());
    let verified = run(verifier(&issuer, &store).verify(&issuer.issue(&claims()).unwrap(), None, at(NOW)));
    let verified = verified.unwrap().unwrap();
    assert_eq!(verified.user.name, "system:serviceaccount:ns:robot");
    assert_eq!(verified.user.uid, "sa-uid");
    assert_eq!(verified.user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns"]);
    assert_eq!(verified.user.extra["authentication.kubernetes.io/credential-id"], ["JTI=some-id"]);
    assert_eq!(verified.audiences, ["api"]);
}

fn outcome(claims: &TokenClaims, change: impl FnOnce(&FakeObjects), now: i64) -> String {
    let (issuer, store) = (issuer(), store());
    change(&store);
    match run(verifier(&issuer, &store).verify(&issuer.issue(claims).unwrap(), None, at(now))) {
        Ok(Some(verified)) => format!("good {:?}", verified.user.extra),
        Ok(None) => "not mine".to_owned(),
        Err(error) => error,
    }
}

#[test]
fn token_times_are_checked_with_one_minute_of_leeway() {
    let check = |now, expected: expect_test::Expect| expected.assert_eq(&outcome(&claims(), |_| {}, now));
    check(NOW - 61, expect!["service account token is not valid yet"]);
    check(NOW - 60, expect![[r#"good {"authentication.kubernetes.io/credential-id": ["JTI=some-id"]}"#]]);
    check(NOW + 660, expect![[r#"good {"authentication.kubernetes.io/credential-id": ["JTI=some-id"]}"#]]);
    check(NOW + 661, expect!["service account token has expired"]);
    let future = TokenClaims { not_before: None, issued_at: Some(NOW + 100), ..claims() };
    expect!["service account token is issued in the future"].assert_eq(&outcome(&future, |_| {}, NOW));
}

#[test]
fn token_is_invalid_after_its_service_account_is_deleted_or_recreated() {
    let put = |object: &'static str| {
        move |store: &FakeObjects| store.put(BoundKind::ServiceAccount, "ns", "robot", object)
    };
    expect![[r#"serviceaccounts "robot" not found"#]].assert_eq(&outcome(
        &claims(),
        |s| s.remove(BoundKind::ServiceAccount, "ns", "robot"),
        NOW,
    ));
    expect!["service account UID (new) does not match claim (sa-uid)"].assert_eq(&outcome(
        &claims(),
        put(r#"{"metadata":{"uid":"new"}}"#),
        NOW,
    ));
    expect!["service account ns/robot has been deleted"].assert_eq(&outcome(
        &claims(),
        put(r#"{"metadata":{"uid":"sa-uid","deletionTimestamp":"2027-01-15T07:58:59Z"}}"#),
        NOW,
    ));
    expect![[r#"good {"authentication.kubernetes.io/credential-id": ["JTI=some-id"]}"#]].assert_eq(&outcome(
        &claims(),
        put(r#"{"metadata":{"uid":"sa-uid","deletionTimestamp":"2027-01-15T07:59:59Z"}}"#),
        NOW,
    ));
}

#[test]
fn token_is_invalid_after_its_bound_object_is_deleted_or_recreated() {
    let reference = |name: &str, uid: &str| ObjectReference { name: name.into(), uid: uid.into() };
    let pod = TokenClaims {
        bound: Some(BoundObject::Pod {
            pod: reference("web", "pod-uid"),
            node: Some(reference("n1", "node-uid")),
        }),
        ..claims()
    };
    expect![[r#"good {"authentication.kubernetes.io/credential-id": ["JTI=some-id"], "authentication.kubernetes.io/node-name": ["n1"], "authentication.kubernetes.io/node-uid": ["node-uid"], "authentication.kubernetes.io/pod-name": ["web"], "authentication.kubernetes.io/pod-uid": ["pod-uid"]}"#]]
        .assert_eq(&outcome(&pod, |_| {}, NOW));
    expect!["service account token has been invalidated"].assert_eq(&outcome(
        &pod,
        |s| s.remove(BoundKind::Pod, "ns", "web"),
        NOW,
    ));
    let replaced = |s: &FakeObjects| s.put(BoundKind::Pod, "ns", "web", r#"{"metadata":{"uid":"other"}}"#);
    expect!["pod UID (other) does not match service account pod ref claim (pod-uid)"]
        .assert_eq(&outcome(&pod, replaced, NOW));
    let node = TokenClaims { bound: Some(BoundObject::Node(reference("n1", "node-uid"))), ..claims() };
    assert!(outcome(&node, |_| {}, NOW).starts_with("good"));
    expect!["service account token has been invalidated"].assert_eq(&outcome(
        &node,
        |s| s.remove(BoundKind::Node, "", "n1"),
        NOW,
    ));
    let secret = TokenClaims { bound: Some(BoundObject::Secret(reference("s", "u"))), ..claims() };
    expect!["service account token has been invalidated"].assert_eq(&outcome(&secret, |_| {}, NOW));
}

#[test]
fn token_for_other_audiences_is_rejected() {
    let (issuer, store) = (issuer(), store());
    let other = TokenClaims { audiences: vec!["other".into()], ..claims() };
    let token = issuer.issue(&other).unwrap();
    let verifier = verifier(&issuer, &store);
    assert_eq!(
        run(verifier.verify(&token, None, at(NOW))).unwrap_err(),
        r#"token audiences ["other"] is invalid for the target audiences ["api"]"#
    );
    let wanted: Vec<Str> = vec!["other".into(), "third".into()];
    assert_eq!(run(verifier.verify(&token, Some(&wanted), at(NOW))).unwrap().unwrap().audiences, ["other"]);
    // The result has the order of the requested audiences.
    let both = issuer.issue(&TokenClaims { audiences: vec!["a".into(), "b".into()], ..claims() }).unwrap();
    let wanted: Vec<Str> = vec!["b".into(), "x".into(), "a".into()];
    assert_eq!(run(verifier.verify(&both, Some(&wanted), at(NOW))).unwrap().unwrap().audiences, ["b", "a"]);
    let none = issuer.issue(&TokenClaims { audiences: vec![], ..claims() }).unwrap();
    let found = run(verifier.verify(&none, None, at(NOW))).unwrap().unwrap();
    assert_eq!(found.audiences, ["api"]);
    assert_eq!(found.annotations[0].0, "authentication.k8s.io/legacy-token");
}

#[test]
fn modified_tokens_are_rejected_and_foreign_ones_are_not_recognized() {
    let (issuer, store) = (issuer(), store());
    let verifier = verifier(&issuer, &store);
    let token = issuer.issue(&claims()).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let verify = |token: &str| run(verifier.verify(token, None, at(NOW))).map(|v| v.is_some());

    let mut payload = value::json::parse(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    payload.set_at(&["sub"], "system:serviceaccount:kube-system:root");
    let payload = URL_SAFE_NO_PAD.encode(value::write::to_vec(&payload));
    assert!(verify(&format!("{}.{payload}.{}", parts[0], parts[2])).is_err());

    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"HS256"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"ES256","crit":["x"]}"#,
        r#"{"alg":"ES256","kid":"unknown"}"#,
    ] {
        let header = URL_SAFE_NO_PAD.encode(header);
        assert!(verify(&format!("{header}.{}.{}", parts[1], parts[2])).is_err());
        assert!(verify(&format!("{header}.{}.", parts[1])).is_err());
    }
    // Tokens of other issuers and strings that are not JWTs are not recognized, which is no error.
    let other = Issuer::new("https://other", SigningKey::generate().unwrap().0);
    assert_eq!(verify(&other.issue(&claims()).unwrap()), Ok(false));
    for text in ["", ".", "..", "a.b.c", "x", "{\"a\":1}", "a.b.c.d"] {
        assert_eq!(verify(text), Ok(false), "{text}");
    }
    // A token with the right issuer, signed by another key.
    let thief = Issuer::new("https://issuer", SigningKey::generate().unwrap().0);
    assert_eq!(verify(&thief.issue(&claims()).unwrap()).unwrap_err(), "invalid signature, no keys found");
}

#[test]
fn token_with_claims_of_the_wrong_type_is_rejected() {
    let (issuer, store) = (issuer(), store());
    let verifier = verifier(&issuer, &store);
    for payload in [
        r#"{"iss":"https://issuer","exp":"never"}"#,
        r#"{"iss":"https://issuer","aud":{}}"#,
        r#"{"iss":"https://issuer","kubernetes.io":{"namespace":1}}"#,
        r#"{"iss":"https://issuer","kubernetes.io":{"secret":{},"node":{}}}"#,
        r#"{"iss":"https://issuer","kubernetes.io":{"mutatingwebhookconfiguration":{}}}"#,
    ] {
        let token = issuer.sign(&value::json::parse(payload.as_bytes()).unwrap()).unwrap();
        assert!(run(verifier.verify(&token, None, at(NOW))).is_err(), "{payload}");
    }
}

#[test]
fn stale_token_is_recorded_in_an_audit_annotation() {
    let (issuer, store) = (issuer(), store());
    let stale = TokenClaims { warn_after: Some(NOW + 10), ..claims() };
    let token = issuer.issue(&stale).unwrap();
    let verified = run(verifier(&issuer, &store).verify(&token, None, at(NOW + 25))).unwrap().unwrap();
    assert_eq!(
        verified.annotations,
        [(
            "authentication.k8s.io/stale-token",
            "subject: system:serviceaccount:ns:robot, seconds after warning threshold: 15".to_owned()
        )]
    );
}

#[test]
fn legacy_token_is_valid_only_while_its_secret_contains_it() {
    let (issuer, store) =
        (Issuer::new("kubernetes/serviceaccount", SigningKey::generate().unwrap().0), store());
    let payload = value::json::parse(
        br#"{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:ns:robot","kubernetes.io/serviceaccount/namespace":"ns","kubernetes.io/serviceaccount/secret.name":"s","kubernetes.io/serviceaccount/service-account.name":"robot","kubernetes.io/serviceaccount/service-account.uid":"sa-uid"}"#,
    )
    .unwrap();
    let token = issuer.sign(&payload).unwrap();
    let verifier = verifier(&issuer, &store);
    let verify = || run(verifier.verify(&token, None, at(NOW))).map(|v| v.unwrap());
    assert_eq!(verify().unwrap_err(), "Token has been invalidated");
    let secret = |token: &str, labels: &str| {
        let data = STANDARD.encode(token);
        store.put(
            BoundKind::Secret,
            "ns",
            "s",
            &format!(r#"{{"metadata":{{"labels":{{{labels}}}}},"data":{{"token":"{data}"}}}}"#),
        );
    };
    secret("other", "");
    assert_eq!(verify().unwrap_err(), "Token does not match server's copy");
    secret(&token, "");
    let found = verify().unwrap();
    assert_eq!(found.user.name, "system:serviceaccount:ns:robot");
    assert_eq!(found.secret, Some(("ns".into(), "s".into())));
    secret(&token, r#""kubernetes.io/legacy-token-invalid-since":"2026-01-01""#);
    assert!(verify().unwrap_err().contains("has been marked invalid"));
    assert!(run(verifier.clone().without_lookup().verify(&token, None, at(NOW))).unwrap().is_some());
}

#[test]
fn verified_token_is_cached_for_ten_seconds() {
    let (issuer, store) = (issuer(), store());
    let authenticator =
        Authenticator { service_accounts: Some(verifier(&issuer, &store)), ..Authenticator::default() };
    let header = format!("Bearer {}", issuer.issue(&claims()).unwrap());
    let attempt = |now| {
        let lines = [("authorization", header.as_str())];
        let evidence = Evidence {
            certificate: None,
            proxy_certificate: None,
            headers: &HeaderLines(&lines),
            path: "/",
            now: at(now),
        };
        run(authenticator.authenticate(&evidence)).result
    };
    assert_eq!(attempt(NOW).unwrap().unwrap().name(), "system:serviceaccount:ns:robot");
    store.remove(BoundKind::ServiceAccount, "ns", "robot");
    assert!(attempt(NOW + 9).is_ok());
    assert_eq!(*store.asked.lock().unwrap(), 1);
    assert!(attempt(NOW + 10).is_err());
}

#[test]
fn signing_keys_of_every_algorithm_sign_verify_and_are_published() {
    for (kind, algorithm) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "ES256"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "ES384"),
        (&rcgen::PKCS_ECDSA_P521_SHA512, "ES512"),
        (&rcgen::PKCS_RSA_SHA256, "RS256"),
    ] {
        let pair = rcgen::KeyPair::generate_for(kind).unwrap();
        let key = SigningKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
        let public = TokenVerificationKey::all_from_pem(pair.public_key_pem().as_bytes()).unwrap();
        assert_eq!(public, [key.public().clone()]);
        assert_eq!(key.public().algorithm(), algorithm);
        let from_private = TokenVerificationKey::all_from_pem(pair.serialize_pem().as_bytes()).unwrap();
        assert_eq!(from_private, public);
        let signature = key.sign(b"hello").unwrap();
        assert!(public[0].verifies(algorithm, b"hello", &signature));
        assert!(!public[0].verifies(algorithm, b"hallo", &signature));
        let keys = String::from_utf8(discovery::key_set(&public)).unwrap();
        assert!(keys.contains(&format!(r#""alg":"{algorithm}""#)), "{keys}");
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }
    assert_eq!(TokenVerificationKey::all_from_pem(b"nothing").unwrap_err(), TokenKeyError::NoPublicKey);
    assert_eq!(SigningKey::from_pem(b"nothing").unwrap_err(), TokenKeyError::NoPrivateKey);
}

#[test]
fn openid_provider_document_equals_that_of_kubernetes() {
    let issuer = issuer();
    let keys = [issuer.public_key().clone()];
    let document = discovery::configuration("https://issuer", "", "1.2.3.4:6443", &keys).unwrap();
    expect![[r#"{"issuer":"https://issuer","jwks_uri":"https://1.2.3.4:6443/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}"#]]
        .assert_eq(&String::from_utf8(document).unwrap());
    for bad in ["", "http://issuer", "https://issuer?x", "https://issuer#x"] {
        assert!(discovery::configuration(bad, "", "a", &keys).is_err(), "{bad}");
    }
    assert!(discovery::configuration("https://issuer", "http://keys", "a", &keys).is_err());
    assert!(discovery::configuration("https://issuer", "https://keys", "a", &[]).is_err());
}

fn requested(spec: &str, rules: &RequestRules) -> Result<(TokenClaims, Value, Vec<Str>), String> {
    let store = store();
    let account = store.objects.lock().unwrap()["ServiceAccount/ns/robot"].clone();
    let object = value::json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
    let now = Timestamp::from_seconds(NOW);
    let request = TokenRequest::new(object, &account, rules, now).map_err(|s| s.message().to_owned())?;
    let grant = run(request.grant(rules, &*store, &Attests(&[]), "the-id"));
    let grant = grant.map_err(|refusal| refusal.status.message().to_owned())?;
    assert_eq!(
        grant.annotations,
        [("authentication.kubernetes.io/issued-credential-id", "JTI=the-id".to_owned())]
    );
    Ok((grant.claims.clone(), grant.clone().answer("TOKEN"), grant.warnings))
}

fn rules() -> RequestRules {
    RequestRules { audiences: vec!["api".into()], max_seconds: 0, extend: true, webhooks: false }
}

#[test]
fn token_request_defaults_to_one_hour_and_the_api_server_audience() {
    let (claims, answer, _) = requested("{}", &rules()).unwrap();
    assert_eq!(claims.audiences, ["api"]);
    assert_eq!(claims.expires_at, Some(NOW + 3600));
    expect![[r#"{"metadata":{"creationTimestamp":"2027-01-15T08:00:00Z","name":"robot","namespace":"ns","uid":"sa-uid"},"spec":{"audiences":["api"],"expirationSeconds":3600},"status":{"expirationTimestamp":"2027-01-15T09:00:00Z","token":"TOKEN"}}"#]]
        .assert_eq(&value::write::to_string(&answer));
}

#[test]
fn pod_token_is_extended_only_for_the_api_server_audience_and_3607_seconds() {
    let bound = r#""boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"web","uid":"pod-uid"}"#;
    let (claims, answer, _) =
        requested(&format!(r#"{{"expirationSeconds":3607,{bound}}}"#), &rules()).unwrap();
    assert_eq!(claims.expires_at, Some(NOW + 365 * 24 * 3600));
    assert_eq!(claims.warn_after, Some(NOW + 3607));
    assert_eq!(answer.str_at(&["status", "expirationTimestamp"]), Some("2027-01-15T09:00:07Z"));
    let Some(BoundObject::Pod { pod, node: Some(node) }) = claims.bound else { panic!() };
    assert_eq!((pod.uid.as_str(), node.uid.as_str()), ("pod-uid", "node-uid"));
    let (claims, ..) =
        requested(&format!(r#"{{"expirationSeconds":3607,"audiences":["vault"],{bound}}}"#), &rules())
            .unwrap();
    assert_eq!((claims.expires_at, claims.warn_after), (Some(NOW + 3607), None));
    let (claims, ..) = requested(r#"{"expirationSeconds":3607}"#, &rules()).unwrap();
    assert_eq!(claims.warn_after, None);
}

#[test]
fn token_request_lifetime_is_limited_and_invalid_requests_are_rejected() {
    let limited = RequestRules { max_seconds: 1000, ..rules() };
    let (claims, _, warnings) = requested(r#"{"expirationSeconds":5000}"#, &limited).unwrap();
    assert_eq!(claims.expires_at, Some(NOW + 1000));
    assert_eq!(warnings, ["requested expiration of 5000 seconds shortened to 1000 seconds"]);
    let refused = |spec: &str, expected: expect_test::Expect| {
        expected.assert_eq(&requested(spec, &rules()).unwrap_err());
    };
    refused(
        r#"{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"gone"}}"#,
        expect![[r#"pods "gone" not found"#]],
    );
    refused(r#"{"boundObjectRef":{"apiVersion":"v1","kind":"Pod"}}"#, expect!["Name parameter required."]);
    // An invalid apiVersion counts as empty, as in Kubernetes, and the pod is found.
    assert!(
        requested(r#"{"boundObjectRef":{"apiVersion":"a/b/c","kind":"Pod","name":"web"}}"#, &rules()).is_ok()
    );
    refused(
        r#"{"boundObjectRef":{"apiVersion":"v1","kind":"ConfigMap","name":"x"}}"#,
        expect!["cannot bind token to object of type /v1, Kind=ConfigMap"],
    );
    refused(
        r#"{"boundObjectRef":{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","name":"x"}}"#,
        expect![
            "cannot bind token to object of type admissionregistration.k8s.io/v1, Kind=ValidatingWebhookConfiguration (feature gate APIServerWebhookAuthenticationToken is disabled)"
        ],
    );
    refused(
        r#"{"boundObjectRef":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"old"}}"#,
        expect![[
            r#"Operation cannot be fulfilled on Node "n1": the UID in the bound object reference (old) does not match the UID in record. The object might have been deleted and then recreated"#
        ]],
    );
}
