//! The token cache: requests are shared, tokens are renewed before they expire and dropped with their configuration.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::advance;
use webhook_auth::tokens::{Issued, RequestToken, TokenCache, TokenError, TokenProperties};
use webhook_auth::verify::{Configuration, Dialect};
use webhook_auth::{ClientConfig, ConfigurationKind, Pending};

#[derive(Clone)]
struct Server {
    requests: Arc<AtomicUsize>,
    refusing: Arc<Mutex<Option<TokenError>>>,
    gate: Arc<Semaphore>,
}

impl Server {
    fn new() -> Self {
        Server {
            requests: Arc::default(),
            refusing: Arc::default(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    fn refuse(&self, error: Option<TokenError>) {
        *self.refusing.lock().unwrap() = error;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    async fn wait_for_requests(&self, times: usize) {
        while self.requests() < times {
            tokio::task::yield_now().await;
        }
    }
}

impl RequestToken for Server {
    fn request<'a>(&'a self, wanted: &'a TokenProperties) -> Pending<'a, Result<Issued, TokenError>> {
        Box::pin(async move {
            let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
            self.gate.acquire().await.unwrap().forget();
            if let Some(error) = self.refusing.lock().unwrap().clone() {
                return Err(error);
            }
            let token = format!("{} {} {number}", wanted.audience(), wanted.group());
            Ok(Issued { token, lifetime: Duration::from_mins(10) })
        })
    }
}

fn configuration(name: &str, uid: &str) -> Configuration {
    Configuration { kind: ConfigurationKind::Validating, name: name.to_owned(), uid: uid.to_owned() }
}

fn token_properties(name: &str, uid: &str) -> TokenProperties {
    TokenProperties::new(&configuration(name, uid), &ClientConfig::url("https://a"), "apps").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_cached_and_renewed_before_it_expires() {
    let server = Server::new();
    let cache = TokenCache::new(server.clone());
    let one = token_properties("guard", "1");
    for _ in 0..3 {
        assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 1");
    }
    advance(Duration::from_secs(479)).await;
    assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 1");
    assert_eq!(server.requests(), 1);

    // A call that triggers the renewal gets the old token without waiting.
    advance(Duration::from_secs(2)).await;
    assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 1");
    server.wait_for_requests(2).await;
    tokio::task::yield_now().await;
    assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 2");
    assert_eq!(server.requests(), 2);

    // After the token has expired, callers wait for a new one.
    advance(Duration::from_mins(10)).await;
    assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 3");
}

#[tokio::test(start_paused = true)]
async fn token_about_to_expire_is_not_returned() {
    let server = Server::new();
    let cache = TokenCache::new(server.clone());
    let one = token_properties("guard", "1");
    cache.token(&one).await.unwrap();
    server.refuse(Some(TokenError::Failed("away".to_owned())));
    advance(Duration::from_secs(589)).await;
    assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 1");
    advance(Duration::from_secs(2)).await;
    assert_eq!(cache.token(&one).await, Err(TokenError::Failed("away".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_one_token_request_and_its_result() {
    let server = Server::new();
    server.gate.forget_permits(usize::MAX);
    let cache = TokenCache::new(server.clone());
    let ask = || {
        let cache = cache.clone();
        tokio::spawn(async move { cache.token(&token_properties("guard", "1")).await })
    };
    let callers: Vec<_> = (0..20).map(|_| ask()).collect();
    server.wait_for_requests(1).await;
    // The request continues if the caller that started it is aborted.
    callers[0].abort();
    server.gate.add_permits(1);
    for caller in callers.into_iter().skip(1) {
        assert_eq!(&*caller.await.unwrap().unwrap(), "https://a apps 1");
    }
    assert_eq!(server.requests(), 1);

    advance(Duration::from_secs(700)).await;
    server.refuse(Some(TokenError::Refused("token request denied".to_owned())));
    let callers: Vec<_> = (0..20).map(|_| ask()).collect();
    server.wait_for_requests(2).await;
    server.gate.add_permits(1);
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Err(TokenError::Refused("token request denied".to_owned())));
    }
    assert_eq!(server.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_token_renewal_is_retried_after_a_delay() {
    let server = Server::new();
    let cache = TokenCache::new(server.clone());
    let one = token_properties("guard", "1");
    cache.token(&one).await.unwrap();
    server.refuse(Some(TokenError::Failed("away".to_owned())));
    advance(Duration::from_secs(500)).await;
    for _ in 0..50 {
        assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 1");
        tokio::task::yield_now().await;
    }
    assert_eq!(server.requests(), 2);
    advance(Duration::from_secs(11)).await;
    server.refuse(None);
    cache.token(&one).await.unwrap();
    server.wait_for_requests(3).await;
    tokio::task::yield_now().await;
    assert_eq!(&*cache.token(&one).await.unwrap(), "https://a apps 3");
}

#[tokio::test(start_paused = true)]
async fn token_request_times_out() {
    let server = Server::new();
    server.gate.forget_permits(usize::MAX);
    let cache = TokenCache::new(server);
    let error = cache.token(&token_properties("guard", "1")).await.unwrap_err();
    assert_eq!(error, TokenError::Failed("the API server did not respond in time".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_cached_by_configuration_uid_audience_group_and_kind() {
    let server = Server::new();
    let cache = TokenCache::new(server.clone());
    assert!(cache.token(&token_properties("guard", "1")).await.unwrap().ends_with(" 1"));
    assert!(cache.token(&token_properties("other", "1")).await.unwrap().ends_with(" 2"));
    assert!(cache.token(&token_properties("guard", "2")).await.unwrap().ends_with(" 3"));
    // Only the token of the earlier configuration with this name was dropped.
    assert!(cache.token(&token_properties("other", "1")).await.unwrap().ends_with(" 2"));
    assert!(cache.token(&token_properties("guard", "1")).await.unwrap().ends_with(" 4"));
    cache.forget(&configuration("other", ""));
    assert!(cache.token(&token_properties("other", "1")).await.unwrap().ends_with(" 5"));
    // Tokens are cached separately by audience, group and kind.
    let mutating = Configuration { kind: ConfigurationKind::Mutating, ..configuration("guard", "1") };
    let url = ClientConfig::url("https://a");
    for wanted in [
        TokenProperties::new(&configuration("guard", "1"), &ClientConfig::url("https://b"), "apps").unwrap(),
        TokenProperties::new(&configuration("guard", "1"), &url, "batch").unwrap(),
        TokenProperties::new(&mutating, &url, "apps").unwrap(),
    ] {
        let before = server.requests();
        cache.token(&wanted).await.unwrap();
        assert_eq!(server.requests(), before + 1);
    }
    assert!(cache.token(&token_properties("guard", "1")).await.unwrap().ends_with(" 4"));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_cached_tokens_is_bounded() {
    let server = Server::new();
    let cache = TokenCache::new(server);
    for number in 0..1100 {
        cache.token(&token_properties(&format!("guard-{number}"), "1")).await.unwrap();
    }
    assert_eq!(format!("{cache:?}"), "TokenCache { tokens: 1024, .. }");
}

#[test]
fn token_request_uses_the_fields_of_one_dialect() {
    let one = TokenProperties::new(
        &configuration("guard", "u"),
        &ClientConfig::service("default", "guard"),
        "apps",
    )
    .unwrap();
    let bound = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "name": "guard", "uid": "u"});
    let request = |field: &str, value: serde_json::Value| {
        let mut spec = json!({"audiences": ["https://guard.default.svc:443/"], "expirationSeconds": 600, "boundObjectRef": bound});
        spec[field] = value;
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    };
    assert_eq!(
        one.to_request(Dialect::Attestations).unwrap(),
        request("attestations", json!({"admissionReviewAPIGroups": ["apps"]}))
    );
    assert_eq!(
        one.to_request(Dialect::AttestationClaims).unwrap(),
        request("attestationClaims", json!({"webhook-authentication.k8s.io/allowedAPIGroup": ["apps"]}))
    );
    let core =
        TokenProperties::new(&configuration("guard", ""), &ClientConfig::url("https://a"), "").unwrap();
    assert_eq!(core.to_request(Dialect::Attestations), Err(TokenError::CoreGroup));
    let kep = core.to_request(Dialect::AttestationClaims).unwrap();
    assert_eq!(
        kep["spec"]["attestationClaims"]["webhook-authentication.k8s.io/allowedAPIGroup"],
        json!([""])
    );
    assert_eq!(kep["spec"]["boundObjectRef"].get("uid"), None);
    let nowhere = TokenProperties::new(&configuration("guard", ""), &ClientConfig::default(), "apps");
    assert_eq!(nowhere, Err(TokenError::NoAudience));
}

#[test]
fn token_response_has_a_token_and_a_lifetime_of_at_most_ten_minutes() {
    let read = |answer| Issued::from_answer(&answer).map(|issued| (issued.token, issued.lifetime.as_secs()));
    let one = |seconds| Some(("t".to_owned(), seconds));
    assert_eq!(read(json!({"spec": {"expirationSeconds": 600}, "status": {"token": "t"}})), one(600));
    assert_eq!(read(json!({"spec": {"expirationSeconds": 300}, "status": {"token": "t"}})), one(300));
    assert_eq!(read(json!({"spec": {"expirationSeconds": 99999}, "status": {"token": "t"}})), one(600));
    assert_eq!(read(json!({"status": {"token": "t"}})), one(600));
    assert_eq!(read(json!({"status": {"token": ""}})), None);
    assert_eq!(read(json!({})), None);
    // `Debug` must not reveal the token.
    let issued = Issued { token: "hidden".to_owned(), lifetime: Duration::from_secs(1) };
    assert!(!format!("{issued:?}").contains("hidden"));
}
