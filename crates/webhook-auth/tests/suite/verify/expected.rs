//! Validation of a verifier's expectations, and decoding of provider documents and reviews.

use std::time::Duration;

use serde_json::{Value, json};
use webhook_auth::verify::{ExpectedError, MAX_SKEW, Provider, ProviderError, ReviewError, ServiceReference};
use webhook_auth::{AdmissionRequest, ClientConfig, Expected, Keys, Reason, Verifier};

use crate::issuer::{ISSUER, expected};

#[test]
fn verifier_requires_an_issuer_an_audience_and_a_bounded_clock_skew() {
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
fn audience_is_derived_from_the_client_config() {
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
fn provider_document_must_name_the_expected_issuer() {
    let read = |document: Value| Provider::read(document.to_string().as_bytes(), ISSUER);
    let keys = "https://10.0.0.1:6443/openid/v1/jwks";
    let provider = read(json!({"issuer": ISSUER, "jwks_uri": keys, "more": 1})).unwrap();
    assert_eq!((provider.issuer(), provider.jwks_uri()), (ISSUER, keys));
    let other = read(json!({"issuer": "https://x", "jwks_uri": keys})).unwrap_err();
    assert_eq!(other.to_string(), format!("the issuer is \"https://x\", but \"{ISSUER}\" is expected"));
    let long = read(json!({"issuer": "x".repeat(10_000), "jwks_uri": keys})).unwrap_err();
    assert!(long.to_string().len() < 400);
    assert_eq!(read(json!({"issuer": ISSUER, "jwks_uri": "http://x"})), Err(ProviderError::Address));
    assert_eq!(read(json!({"issuer": ISSUER})), Err(ProviderError::Malformed));
    assert_eq!(read(json!([])), Err(ProviderError::Malformed));
    let twice = format!(r#"{{"issuer":"{ISSUER}","jwks_uri":"https://a","jwks_uri":"https://b"}}"#);
    assert_eq!(Provider::read(twice.as_bytes(), ISSUER), Err(ProviderError::Malformed));
    let long = " ".repeat(300_000);
    assert_eq!(Provider::read(long.as_bytes(), ISSUER), Err(ProviderError::Oversize));
}

#[test]
fn admission_review_with_duplicate_or_malformed_fields_is_rejected() {
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
    // A duplicate `resource` or `request` is rejected.
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
    // An absent group is the core group.
    let pods = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"resource":{"version":"v1","resource":"pods"}}}"#;
    assert_eq!(AdmissionRequest::from_review(pods.as_bytes()).unwrap().resource.group, "");
}

#[test]
fn rejection_reasons_have_unique_names_and_an_http_status() {
    let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Reason::ALL.len());
    assert_eq!(Reason::Group.status(), 403);
    assert_eq!(Reason::Missing.status(), 401);
    assert_eq!(Reason::KeysUnavailable.status(), 503);
}
