//! Signed tokens: service account tokens of this server, and tokens that webhooks verify.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use authn::tokens::{BoundKind, BoundObjects, LookupFuture, SigningKey, TokenVerificationKey, TokenVerifier};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use fuzz::Corpus;
use value::{Value, json};
use webhook_auth::verify::Provider;
use webhook_auth::{AdmissionRequest, ConfigurationKind, Expected, KeySet, Keys};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "https://guard.default.svc:443/review";
const NOW: u64 = 1_800_000_000;

const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"alg\":\"none\"",
    "\"alg\":\"HS256\"",
    "\"alg\":\"ES256\"",
    "\"kid\":\"\"",
    "\"crit\":[\"x\"],",
    "\"iss\":",
    "\"aud\":",
    "\"aud\":\"*\"",
    "\"exp\":9223372036854775807",
    "\"exp\":-9223372036854775808",
    "\"exp\":1e300",
    "\"warnafter\":-9223372036854775808",
    "\"nbf\":null",
    "\"sub\":\"system:admin\"",
    "\"kubernetes.io\":{}",
    "\"secret\":{\"name\":\"s\",\"uid\":\"u\"},",
    "\"node\":{\"name\":\"n\",\"uid\":\"u\"},",
    "\"kubernetes/serviceaccount\"",
    "\"attestations\":{\"admissionReviewAPIGroups\":[\"*\"]}",
    "eyJhbGciOiJub25lIn0",
    "..",
    "==",
    "-",
    "_",
];

/// One signing key in the formats that the signer and the verifiers need.
struct Key {
    pair: EcdsaKeyPair,
    public: TokenVerificationKey,
}

impl Key {
    fn new() -> Self {
        let (key, pem) = SigningKey::generate().unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = BASE64_STANDARD.decode(body).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).unwrap();
        Key { pair, public: key.public().clone() }
    }

    /// Signs any header and any payload.
    fn sign(&self, header: &[u8], payload: &[u8]) -> String {
        let [header, payload] = [header, payload].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
        let signed = format!("{header}.{payload}");
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    fn header(&self) -> String {
        format!(r#"{{"alg":"ES256","kid":"{}"}}"#, self.public.id())
    }
}

/// A store in which every object exists with the uid of the token.
struct Everything;

impl BoundObjects for Everything {
    fn get<'a>(&'a self, _: BoundKind, _: &'a str, name: &'a str) -> LookupFuture<'a> {
        let object = json::parse(
            format!(r#"{{"metadata":{{"name":"{}","uid":"u"}}}}"#, name.escape_default()).as_bytes(),
        );
        Box::pin(async move { Ok(object.ok().map(Arc::new)) })
    }

    fn has_api_service(&self, _: &str) -> bool {
        true
    }
}

fn account_claims() -> [String; 3] {
    [
        format!(r#"{{"aud":["api"],"exp":1800000600,"iat":1800000000,"nbf":1800000000,"iss":"{ISSUER}","jti":"id","sub":"system:serviceaccount:ns:robot","kubernetes.io":{{"namespace":"ns","serviceaccount":{{"name":"robot","uid":"u"}},"pod":{{"name":"p","uid":"u"}},"node":{{"name":"n","uid":"u"}},"warnafter":1800000300}}}}"#),
        format!(r#"{{"aud":"api","exp":1800000600,"iss":"{ISSUER}","sub":"system:serviceaccount:ns:robot","kubernetes.io":{{"namespace":"ns","serviceaccount":{{"name":"robot","uid":"u"}},"secret":{{"name":"s","uid":"u"}}}}}}"#),
        r#"{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:ns:robot","kubernetes.io/serviceaccount/namespace":"ns","kubernetes.io/serviceaccount/service-account.name":"robot","kubernetes.io/serviceaccount/service-account.uid":"u","kubernetes.io/serviceaccount/secret.name":"s"}"#.to_owned(),
    ]
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// The decoded payload; `None` if this is not a token.
fn payload(token: &str) -> Option<Value> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    json::parse(&bytes).ok()
}

/// A verifier of the tokens that `key` signs.
fn verifier_of(key: &Key) -> TokenVerifier {
    let (issuers, keys, audiences) = (vec![ISSUER.into()], vec![key.public.clone()], vec!["api".into()]);
    TokenVerifier::new(issuers, keys, audiences, Arc::new(Everything)).with_webhooks()
}

#[test]
fn modified_service_account_tokens_are_rejected() {
    let key = Key::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let verifier = verifier_of(&key);
    let claims = account_claims();
    let signed: Vec<String> =
        claims.iter().map(|claims| key.sign(key.header().as_bytes(), claims.as_bytes())).collect();
    let payloads: Vec<Option<Value>> = signed.iter().map(|token| payload(token)).collect();
    let good = runtime.block_on(verifier.verify(&signed[0], None, now())).unwrap().unwrap();
    assert_eq!(good.user.name, "system:serviceaccount:ns:robot");
    fuzz::run(&Corpus::new(&signed, TOKENS).inputs(), |input| {
        let token = input.text();
        match runtime.block_on(verifier.verify(&token, None, now())) {
            // Base64 may have several encodings of the same signature bytes, but header and payload must be unchanged.
            Ok(Some(_)) if !payloads.contains(&payload(&token)) => {
                Err("verified, but never signed".to_owned())
            }
            _ => Ok(()),
        }
    });
}

#[test]
fn signed_claims_of_any_shape_name_no_other_user() {
    let key = Key::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let verifier = verifier_of(&key);
    let header = key.header();
    fuzz::run(&Corpus::new(account_claims(), TOKENS).inputs(), |input| {
        let token = key.sign(header.as_bytes(), input);
        let verified = runtime.block_on(verifier.verify(&token, None, now()));
        let Ok(Some(verified)) = verified else { return Ok(()) };
        if !verified.user.name.starts_with("system:serviceaccount:") {
            return Err(format!("it is of {}", verified.user.name));
        }
        if verified.user.groups.iter().any(|group| !group.starts_with("system:serviceaccounts")) {
            return Err(format!("it is in {:?}", verified.user.groups));
        }
        Ok(())
    });
}

#[test]
fn modified_webhook_tokens_are_rejected() {
    let key = Key::new();
    let jwks = authn::tokens::discovery::key_set(std::slice::from_ref(&key.public));
    let keys = Keys::new(KeySet::from_jwks(&jwks).unwrap());
    let expected = Expected::new(ISSUER, AUDIENCE, ConfigurationKind::Validating);
    let verifier = webhook_auth::Verifier::new(expected, keys).unwrap();
    let claims = format!(
        r#"{{"aud":["{AUDIENCE}"],"exp":1800000600,"iat":1800000000,"nbf":1800000000,"iss":"{ISSUER}","jti":"id","sub":"system:serviceaccount:kube-system:webhook-auth","kubernetes.io":{{"namespace":"kube-system","serviceaccount":{{"name":"webhook-auth","uid":"u"}},"validatingwebhookconfiguration":{{"name":"guard","uid":"u"}},"validatingWebhookConfiguration":{{"name":"guard","uid":"u"}},"attestations":{{"admissionReviewAPIGroups":["*"]}},"attestationClaims":{{"webhook-authentication.k8s.io/allowedAPIGroup":["*"]}}}}}}"#
    );
    let signed = key.sign(key.header().as_bytes(), claims.as_bytes());
    let request = AdmissionRequest::about("", "v1", "pods", "Pod");
    verifier.verify(&signed, now(), &request).unwrap();
    let expected = payload(&signed);
    let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"}}}"#;
    let provider = format!(
        r#"{{"issuer":"{ISSUER}","jwks_uri":"{ISSUER}/openid/v1/jwks","response_types_supported":["id_token"]}}"#
    );
    let seeds = [signed.into_bytes(), claims.into_bytes(), jwks, review.into(), provider.into()];
    let header = key.header();
    fuzz::run(&Corpus::new(&seeds, TOKENS).inputs(), |input| {
        let text = input.text();
        if verifier.verify(&text, now(), &request).is_ok() && payload(&text) != expected {
            return Err("verified, but never signed".to_owned());
        }
        if text.starts_with('{') {
            let _ = verifier.verify(&key.sign(header.as_bytes(), input), now(), &request);
            let _ = (
                KeySet::from_jwks(input),
                Provider::read(input, ISSUER),
                AdmissionRequest::from_review(input),
            );
        }
        Ok(())
    });
}
