//! The test vectors in `vectors/webhook-auth.json`, shared with the packages for other languages. Its README describes the format.
//!
//! With `UPDATE_VECTORS=1`, the test `tokens_of_the_test_vectors_give_the_expected_results` regenerates the file with new keys.
//! Expected results are written down here, never computed.

mod tokens;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use serde_json::{Value, json};
use tower::{Layer as _, ServiceExt as _};
use webhook_auth::keys::KeyCache;
use webhook_auth::layer::{Authentication, WebhookAuthLayer};
use webhook_auth::verify::{Groups, KeyError, Provider, ProviderError};
use webhook_auth::{
    AdmissionRequest, ClientConfig, ConfigurationKind, Counts, Expected, Identity, KeySet, Keys, Reason,
    Rejection, Verifier,
};

use crate::issuer::{AUDIENCE, ISSUER, Key, NOW, at, claims, unusable_fields};

/// The exact number of cases per section, so that a lost case is noticed.
const CASES: [(&str, usize); 6] =
    [("tokens", 142), ("headers", 12), ("key_sets", 33), ("providers", 9), ("audiences", 9), ("reviews", 12)];

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/webhook-auth.json")
}

fn vectors() -> Value {
    serde_json::from_slice(&fs::read(file()).unwrap()).unwrap()
}

/// Generates all vectors with new keys.
fn generate_vectors() -> Value {
    let keys = tokens::Signers::new();
    json!({
        "now": NOW,
        "expected": {
            "issuers": [ISSUER], "audiences": [AUDIENCE], "kind": "ValidatingWebhookConfiguration",
        },
        "jwks": {"keys": keys.published().map(Key::jwk)},
        "tokens": tokens::cases(&keys),
        "headers": headers(&keys.ec),
        "key_sets": key_sets(&keys),
        "providers": providers(),
        "audiences": audiences(),
        "reviews": reviews(),
    })
}

fn headers(key: &Key) -> Vec<Value> {
    let good = key.token(&claims("*"));
    let case = |name: &str, values: &[String], result: &str| json!({"name": name, "values": values, "result": result});
    vec![
        case("one bearer token", &[format!("Bearer {good}")], "accepted"),
        case("the scheme in lower case", &[format!("bearer {good}")], "accepted"),
        case("the scheme in upper case", &[format!("BEARER {good}")], "accepted"),
        case("more than one space", &[format!("Bearer   {good}")], "accepted"),
        case("no header", &[], "missing"),
        case("an empty header", &[String::new()], "missing"),
        case("only the scheme", &["Bearer".to_owned()], "missing"),
        case("the scheme and a space", &["Bearer ".to_owned()], "missing"),
        case("another scheme", &[format!("Basic {good}")], "missing"),
        case("no scheme", std::slice::from_ref(&good), "missing"),
        case("the header twice", &[format!("Bearer {good}"), format!("Bearer {good}")], "malformed"),
        case("a token that is too long", &[format!("Bearer {}", "x".repeat(20_000))], "oversize"),
    ]
}

fn key_sets(keys: &tokens::Signers) -> Vec<Value> {
    let key = &keys.ec;
    let case = |name: &str, document: String, result: &str, usable: usize| json!({"name": name, "document": document, "result": result, "keys": usable});
    let set = |jwks: &[Value]| json!({"keys": jwks}).to_string();
    let with = |field: &str, value: Value| {
        let mut jwk = key.jwk();
        jwk[field] = value;
        set(&[jwk])
    };
    let without = |field: &str| {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().remove(field).unwrap();
        set(&[jwk])
    };
    let mut cases = vec![
        case("every algorithm", set(&keys.published().map(Key::jwk)), "accepted", 5),
        case("no use", without("use"), "accepted", 1),
        case("no alg", without("alg"), "accepted", 1),
        case("key_ops with verify", with("key_ops", json!(["verify"])), "accepted", 1),
        case(
            "an unknown key beside a good one",
            set(&[json!({"kty": "oct", "kid": "s", "k": "AAAA"}), key.jwk()]),
            "accepted",
            1,
        ),
        case("the same key twice", set(&[key.jwk(), key.jwk()]), "accepted", 1),
        case("two keys with one id", set(&[key.jwk(), Key::ec(&key.id).jwk()]), "ambiguous", 0),
        case(
            "two keys of different types with one id",
            set(&[key.jwk(), Key::rsa(&key.id).jwk()]),
            "accepted",
            2,
        ),
        case("more than 128 keys", set(&vec![key.jwk(); 129]), "too_many", 0),
        case("no keys", set(&[]), "no_keys", 0),
        case("no field keys", "{}".to_owned(), "malformed", 0),
        case("keys that are no list", r#"{"keys":1}"#.to_owned(), "malformed", 0),
        case("a key that is no object", r#"{"keys":[1]}"#.to_owned(), "malformed", 0),
        case("a list", "[]".to_owned(), "malformed", 0),
        case("the field keys twice", r#"{"keys":[],"keys":[]}"#.to_owned(), "malformed", 0),
        case(
            "a short RSA key",
            {
                let mut jwk = keys.rsa.jwk();
                jwk["n"] = json!("wQ".repeat(85));
                set(&[jwk])
            },
            "no_keys",
            0,
        ),
    ];
    let off_the_curve = ("y", key.jwk()["x"].clone());
    for (field, value) in unusable_fields().into_iter().chain([off_the_curve]) {
        let name = format!("{field} is {value}");
        let name = if field == "y" { "a point that is not on the curve".to_owned() } else { name };
        cases.push(case(&name, with(field, value), "no_keys", 0));
    }
    for field in ["kid", "kty", "x"] {
        cases.push(case(&format!("no {field}"), without(field), "no_keys", 0));
    }
    cases
}

fn providers() -> Vec<Value> {
    let case = |name: &str, document: &str, result: &str| json!({"name": name, "issuer": ISSUER, "document": document, "result": result});
    let document = |issuer: &str, keys: &str| json!({"issuer": issuer, "jwks_uri": keys}).to_string();
    let keys = "https://192.0.2.1:6443/openid/v1/jwks";
    vec![
        case("the issuer's own", &document(ISSUER, keys), "accepted"),
        case("another issuer's", &document("https://elsewhere.example", keys), "issuer"),
        case("the issuer with a slash", &document(&format!("{ISSUER}/"), keys), "issuer"),
        case("keys without TLS", &document(ISSUER, "http://192.0.2.1/openid/v1/jwks"), "address"),
        case("no address of keys", &json!({"issuer": ISSUER}).to_string(), "malformed"),
        case("an issuer that is no text", r#"{"issuer":1,"jwks_uri":"https://a"}"#, "malformed"),
        case("a list", "[]", "malformed"),
        case(
            "the issuer twice",
            &format!(r#"{{"issuer":"x","issuer":"{ISSUER}","jwks_uri":"{keys}"}}"#),
            "malformed",
        ),
        case("nothing", "", "malformed"),
    ]
}

fn audiences() -> Vec<Value> {
    let case =
        |client_config: Value, audience: Value| json!({"clientConfig": client_config, "audience": audience});
    let service = |more: Value| {
        let mut service = json!({"namespace": "default", "name": "guard"});
        service.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"service": service})
    };
    vec![
        case(json!({"url": "https://guard.example/validate"}), json!("https://guard.example/validate")),
        case(json!({"url": "https://guard.example:8443/a/?q=1"}), json!("https://guard.example:8443/a/?q=1")),
        case(service(json!({})), json!("https://guard.default.svc:443/")),
        case(service(json!({"path": ""})), json!("https://guard.default.svc:443/")),
        case(service(json!({"path": "/validate"})), json!("https://guard.default.svc:443/validate")),
        case(service(json!({"path": "validate"})), json!("https://guard.default.svc:443/validate")),
        case(service(json!({"port": 8443, "path": "/a/b/"})), json!("https://guard.default.svc:8443/a/b/")),
        case(json!({}), json!(null)),
        case(json!({"url": "https://a", "service": {"namespace": "default", "name": "guard"}}), json!(null)),
    ]
}

fn reviews() -> Vec<Value> {
    let case = |name: &str, body: String, result: &str| json!({"name": name, "body": body, "result": result});
    let review = tokens::review("apps", "apps", "deployments", "Deployment", "");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut review = review.clone();
        change(&mut review);
        review.to_string()
    };
    let text = review.to_string();
    vec![
        case("a review of v1", text.clone(), "accepted"),
        case(
            "a review of v1beta1",
            changed(&|r| r["apiVersion"] = json!("admission.k8s.io/v1beta1")),
            "accepted",
        ),
        case("another version", changed(&|r| r["apiVersion"] = json!("admission.k8s.io/v2")), "version"),
        case("another kind", changed(&|r| r["kind"] = json!("Pod")), "malformed"),
        case("no kind", changed(&|r| drop(r.as_object_mut().unwrap().remove("kind"))), "malformed"),
        case("no request", changed(&|r| drop(r.as_object_mut().unwrap().remove("request"))), "malformed"),
        case(
            "no resource",
            changed(&|r| drop(r["request"].as_object_mut().unwrap().remove("resource"))),
            "malformed",
        ),
        case(
            "a group that is no text",
            changed(&|r| r["request"]["resource"]["group"] = json!(1)),
            "malformed",
        ),
        case(
            "the resource twice",
            text.replacen(
                r#""resource":{"#,
                r#""resource":{"group":"","version":"v1","resource":"pods"},"resource":{"#,
                1,
            ),
            "malformed",
        ),
        case(
            "the group twice",
            text.replacen(r#""group":"apps""#, r#""group":"","group":"apps""#, 1),
            "malformed",
        ),
        case("no JSON", "allowed".to_owned(), "malformed"),
        case("more behind the review", format!("{text}{{}}"), "malformed"),
    ]
}

/// The expectations of a case; those that it does not set come from the top of the file.
fn expected(vectors: &Value, case: &Value) -> Expected {
    let of = |field: &str| case["expected"].get(field).unwrap_or(&vectors["expected"][field]);
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let kind = match of("kind").as_str().unwrap() {
        "MutatingWebhookConfiguration" => ConfigurationKind::Mutating,
        _ => ConfigurationKind::Validating,
    };
    let mut expected = Expected::new("", "", kind);
    expected.issuers = texts(of("issuers"));
    expected.audiences = texts(of("audiences"));
    expected.name = of("name").as_str().map(str::to_owned);
    expected.uid = of("uid").as_str().map(str::to_owned);
    expected.subjects = texts(of("subjects"));
    if let Some(skew) = of("skewSeconds").as_u64() {
        expected.skew = Duration::from_secs(skew);
    }
    expected
}

fn key_set(vectors: &Value) -> KeySet {
    KeySet::from_jwks(vectors["jwks"].to_string().as_bytes()).unwrap()
}

fn outcome<T>(verified: Result<T, Rejection>) -> (String, u16) {
    match verified {
        Ok(_) => ("accepted".to_owned(), 200),
        Err(rejection) => (rejection.reason().as_str().to_owned(), rejection.reason().status()),
    }
}

fn shown(identity: &Identity) -> Value {
    let groups = match identity.groups() {
        Groups::Every => "*",
        Groups::One(group) => group,
    };
    let configuration = identity.configuration();
    json!({
        "subject": identity.subject(), "issuer": identity.issuer(), "audience": identity.audience(), "group": groups,
        "configuration": {"kind": configuration.kind.kind(), "name": configuration.name, "uid": configuration.uid},
    })
}

#[test]
fn tokens_of_the_test_vectors_give_the_expected_results() {
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        let written = format!("{}\n", serde_json::to_string_pretty(&generate_vectors()).unwrap());
        fs::write(file(), written).unwrap();
    }
    let vectors = vectors();
    for (section, cases) in CASES {
        assert_eq!(vectors[section].as_array().unwrap().len(), cases, "{section}");
    }
    for case in vectors["tokens"].as_array().unwrap() {
        let verifier = Verifier::new(expected(&vectors, case), Keys::new(key_set(&vectors))).unwrap();
        let now = case.get("now").unwrap_or(&vectors["now"]).as_i64().unwrap();
        let authenticated = verifier.authenticate(case["token"].as_str().unwrap(), at(now));
        if let (Ok(identity), Some(expected)) = (&authenticated, case.get("identity")) {
            assert_eq!(&shown(identity), expected, "{}", case["name"]);
        }
        let request = case
            .get("review")
            .map(|review| AdmissionRequest::from_review(review.to_string().as_bytes()).unwrap());
        let verified = match request {
            None => authenticated.map(drop),
            Some(request) => authenticated.and_then(|identity| identity.permits(&request)).map(drop),
        };
        let (result, status) = outcome(verified);
        assert_eq!(
            (case["result"].as_str().unwrap(), &case["status"]),
            (result.as_str(), &json!(status)),
            "{}",
            case["name"]
        );
    }
}

#[tokio::test]
async fn headers_of_the_test_vectors_give_the_expected_results() {
    let vectors = vectors();
    for case in vectors["headers"].as_array().unwrap() {
        let counts = Arc::<Counts>::default();
        let layer =
            WebhookAuthLayer::new(expected(&vectors, case), KeyCache::fixed(key_set(&vectors))).unwrap();
        let layer = layer.counts(Arc::clone(&counts)).clock(|| at(NOW));
        let mut request = Request::builder();
        for value in case["values"].as_array().unwrap() {
            request = request.header("authorization", value.as_str().unwrap());
        }
        let service = tower::service_fn(async |request: Request<()>| {
            let about = AdmissionRequest::about("apps", "v1", "deployments", "Deployment");
            Authentication::of(request.extensions()).unwrap().check(&about).unwrap();
            Ok::<_, std::convert::Infallible>(Response::new(()))
        });
        layer.layer(service).oneshot(request.body(()).unwrap()).await.unwrap();
        let rejected = Reason::ALL.into_iter().find(|reason| counts.rejected(*reason) > 0);
        let result = rejected.map_or("accepted", Reason::as_str);
        assert_eq!(case["result"], result, "{}", case["name"]);
        assert_eq!(counts.accepted(), u64::from(result == "accepted"), "{}", case["name"]);
    }
}

#[test]
fn documents_of_the_test_vectors_give_the_expected_results() {
    let vectors = vectors();
    for case in vectors["key_sets"].as_array().unwrap() {
        let read = KeySet::from_jwks(case["document"].as_str().unwrap().as_bytes());
        let usable = read.as_ref().map_or(0, |set| set.ids().count());
        let result = match read {
            Ok(_) => "accepted",
            Err(KeyError::Ambiguous) => "ambiguous",
            Err(KeyError::TooMany) => "too_many",
            Err(KeyError::NoKeys) => "no_keys",
            Err(_) => "malformed",
        };
        assert_eq!((&case["result"], &case["keys"]), (&json!(result), &json!(usable)), "{}", case["name"]);
    }
    for case in vectors["providers"].as_array().unwrap() {
        let document = case["document"].as_str().unwrap().as_bytes();
        let result = match Provider::read(document, case["issuer"].as_str().unwrap()) {
            Ok(_) => "accepted",
            Err(ProviderError::Issuer { .. }) => "issuer",
            Err(ProviderError::Address) => "address",
            Err(_) => "malformed",
        };
        assert_eq!(case["result"], result, "{}", case["name"]);
    }
    for case in vectors["audiences"].as_array().unwrap() {
        let config: ClientConfig = serde_json::from_value(case["clientConfig"].clone()).unwrap();
        assert_eq!(json!(config.audience()), case["audience"], "{case}");
    }
    for case in vectors["reviews"].as_array().unwrap() {
        let result = match AdmissionRequest::from_review(case["body"].as_str().unwrap().as_bytes()) {
            Ok(_) => "accepted",
            Err(webhook_auth::verify::ReviewError::Version) => "version",
            Err(_) => "malformed",
        };
        assert_eq!(case["result"], result, "{}", case["name"]);
    }
}
