//! Fetching keys: shared by concurrent requests, rate-limited, and repeated after a rotation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::advance;
use webhook_auth::keys::{Discovery, FetchError, FetchKeys, Get, KeyCache};
use webhook_auth::verify::{Action, KeyError, Need, ProviderError, Refresh, Refreshed};
use webhook_auth::{KeySet, Pending, Reason, Verifier};

use crate::issuer::{ISSUER, Key, NOW, at, claims, expected, jwks, key_set};

/// A source of keys that the test controls; `None` fails the fetch.
#[derive(Clone)]
struct GatedKeySource {
    published: Arc<Mutex<Option<KeySet>>>,
    fetches: Arc<AtomicUsize>,
    /// Each fetch waits for a permit.
    gate: Arc<Semaphore>,
}

impl GatedKeySource {
    fn new(keys: &[&Key]) -> Self {
        GatedKeySource {
            published: Arc::new(Mutex::new(Some(key_set(keys)))),
            fetches: Arc::default(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    fn publish(&self, keys: Option<KeySet>) {
        *self.published.lock().unwrap() = keys;
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl FetchKeys for GatedKeySource {
    fn fetch(&self) -> Pending<'_, Result<KeySet, FetchError>> {
        Box::pin(async {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            let published = self.published.lock().unwrap().clone();
            published.ok_or_else(|| FetchError::Transport("down".to_owned()))
        })
    }
}

struct Setup {
    source: GatedKeySource,
    cache: KeyCache,
    verifier: Verifier,
}

fn setup(keys: &[&Key]) -> Setup {
    let source = GatedKeySource::new(keys);
    let cache = KeyCache::new(source.clone());
    let verifier = Verifier::new(expected(), cache.keys().clone()).unwrap();
    Setup { source, cache, verifier }
}

impl Setup {
    async fn check(&self, key: &Key) -> Result<(), Reason> {
        let token = key.token(&claims("*"));
        let result = self.cache.authenticate(&self.verifier, &token, at(NOW)).await;
        result.map(|_| ()).map_err(|rejection| rejection.reason())
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_once_and_cached() {
    let key = Key::ec("k");
    let setup = setup(&[&key]);
    for _ in 0..3 {
        assert_eq!(setup.check(&key).await, Ok(()));
    }
    assert_eq!(setup.source.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_fetch_of_keys() {
    let key = Key::ec("k");
    let setup = Arc::new(setup(&[&key]));
    setup.source.gate.forget_permits(usize::MAX);
    let key = Arc::new(key);
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let (setup, key) = (Arc::clone(&setup), Arc::clone(&key));
            tokio::spawn(async move { setup.check(&key).await })
        })
        .collect();
    while setup.source.fetches() == 0 {
        tokio::task::yield_now().await;
    }
    setup.source.gate.add_permits(1);
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Ok(()));
    }
    assert_eq!(setup.source.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_key_causes_at_most_one_fetch_per_interval() {
    let (old, new, stranger) = (Key::ec("old"), Key::ec("new"), Key::ec("stranger"));
    let setup = setup(&[&old]);
    assert_eq!(setup.check(&old).await, Ok(()));
    advance(Duration::from_secs(11)).await;

    // After a rotation, the new key is accepted at once and the withdrawn one rejected.
    setup.source.publish(Some(key_set(&[&new])));
    assert_eq!(setup.check(&new).await, Ok(()));
    assert_eq!(setup.check(&old).await, Err(Reason::UnknownKey));
    assert_eq!(setup.source.fetches(), 2);

    // Many tokens with unknown keys cause no further fetch.
    for _ in 0..100 {
        assert_eq!(setup.check(&stranger).await, Err(Reason::UnknownKey));
        assert_eq!(setup.check(&new).await, Ok(()));
    }
    assert_eq!(setup.source.fetches(), 2);
    advance(Duration::from_secs(10)).await;
    for _ in 0..100 {
        assert_eq!(setup.check(&stranger).await, Err(Reason::UnknownKey));
    }
    assert_eq!(setup.source.fetches(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_with_a_rotated_key_wait_for_the_fetch_under_way() {
    let (old, new) = (Key::ec("old"), Key::ec("new"));
    let setup = Arc::new(setup(&[&old]));
    assert_eq!(setup.check(&old).await, Ok(()));
    advance(Duration::from_secs(11)).await;
    setup.source.publish(Some(key_set(&[&old, &new])));
    setup.source.gate.forget_permits(usize::MAX);
    let new = Arc::new(new);
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let (setup, new) = (Arc::clone(&setup), Arc::clone(&new));
            tokio::spawn(async move { setup.check(&new).await })
        })
        .collect();
    while setup.source.fetches() == 1 {
        tokio::task::yield_now().await;
    }
    // Tokens with a known key do not wait for the fetch.
    assert_eq!(setup.check(&old).await, Ok(()));
    setup.source.gate.add_permits(1);
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Ok(()));
    }
    assert_eq!(setup.source.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn fetch_of_keys_continues_when_its_request_is_canceled() {
    let (old, new) = (Key::ec("old"), Key::ec("new"));
    let setup = Arc::new(setup(&[&old]));
    assert_eq!(setup.check(&old).await, Ok(()));
    advance(Duration::from_secs(11)).await;
    setup.source.publish(Some(key_set(&[&new])));
    setup.source.gate.forget_permits(usize::MAX);
    let caller = {
        let (setup, stranger) = (Arc::clone(&setup), Key::ec("stranger"));
        tokio::spawn(async move { setup.check(&stranger).await })
    };
    while setup.source.fetches() == 1 {
        tokio::task::yield_now().await;
    }
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    setup.source.gate.add_permits(1);
    // The abandoned fetch has completed, and no other one is needed.
    assert_eq!(setup.check(&new).await, Ok(()));
    assert_eq!(setup.source.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn stale_keys_are_renewed_in_the_background_and_rejected_after_one_hour() {
    let (old, new) = (Key::ec("old"), Key::ec("new"));
    let setup = setup(&[&old]);
    assert_eq!(setup.check(&old).await, Ok(()));
    advance(Duration::from_secs(301)).await;
    setup.source.publish(Some(key_set(&[&new])));
    // The old keys verify this token while new ones are fetched in the background.
    assert_eq!(setup.check(&old).await, Ok(()));
    while setup.cache.keys().current().ids().all(|(id, _)| id == "old") {
        tokio::task::yield_now().await;
    }
    assert_eq!(setup.check(&old).await, Err(Reason::UnknownKey));
    assert_eq!(setup.source.fetches(), 2);

    // While the issuer is unavailable, the keys are used for one hour; then all tokens are rejected.
    setup.source.publish(None);
    advance(Duration::from_secs(3599)).await;
    assert_eq!(setup.check(&new).await, Ok(()));
    advance(Duration::from_secs(11)).await;
    assert_eq!(setup.check(&new).await, Err(Reason::KeysUnavailable));
    setup.source.publish(Some(key_set(&[&new])));
    assert_eq!(setup.check(&new).await, Err(Reason::KeysUnavailable));
    advance(Duration::from_secs(10)).await;
    assert_eq!(setup.check(&new).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn without_keys_every_request_is_rejected_and_fetches_are_rate_limited() {
    let key = Key::ec("k");
    let setup = setup(&[&key]);
    setup.source.publish(None);
    assert_eq!(setup.cache.prefetch().await.unwrap_err().reason(), Reason::KeysUnavailable);
    for _ in 0..10 {
        assert_eq!(setup.check(&key).await, Err(Reason::KeysUnavailable));
    }
    assert_eq!(setup.source.fetches(), 1);
    setup.source.publish(Some(key_set(&[&key])));
    advance(Duration::from_secs(10)).await;
    setup.cache.prefetch().await.unwrap();
    assert_eq!(setup.check(&key).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn fetch_of_keys_times_out() {
    let key = Key::ec("k");
    let setup = setup(&[&key]);
    setup.source.gate.forget_permits(usize::MAX);
    let before = tokio::time::Instant::now();
    assert_eq!(setup.check(&key).await, Err(Reason::KeysUnavailable));
    assert!(before.elapsed() <= Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_issuer_causes_no_fetch() {
    let key = Key::ec("k");
    let setup = setup(&[&key]);
    assert_eq!(setup.check(&key).await, Ok(()));
    advance(Duration::from_mins(1)).await;
    let stranger = Key::ec("stranger");
    let mut claims = claims("*");
    claims["iss"] = json!("https://elsewhere.example");
    let check_changed = setup.cache.authenticate(&setup.verifier, &stranger.token(&claims), at(NOW)).await;
    assert_eq!(check_changed.unwrap_err().reason(), Reason::Issuer);
    assert_eq!(setup.source.fetches(), 1);
}

#[test]
fn refresh_decision_depends_on_age_of_keys_and_of_the_last_attempt() {
    let refresh = Refresh::default();
    let seconds = |s: Option<u64>| s.map(Duration::from_secs);
    let decide = |need, fetched, tried| {
        refresh.decide(need, Refreshed { fetched: seconds(fetched), tried: seconds(tried) })
    };
    let (verify, unknown) = (Need::Verify, Need::UnknownKey);
    assert_eq!(decide(verify, None, None), Action::Fetch);
    assert_eq!(decide(verify, None, Some(9)), Action::Refuse);
    assert_eq!(decide(verify, None, Some(10)), Action::Fetch);
    assert_eq!(decide(verify, Some(0), Some(0)), Action::Use);
    assert_eq!(decide(verify, Some(299), Some(299)), Action::Use);
    assert_eq!(decide(verify, Some(300), Some(300)), Action::UseAndFetch);
    assert_eq!(decide(verify, Some(300), Some(5)), Action::Use);
    assert_eq!(decide(verify, Some(3599), Some(5)), Action::Use);
    assert_eq!(decide(verify, Some(3600), Some(5)), Action::Refuse);
    assert_eq!(decide(verify, Some(3600), Some(10)), Action::Fetch);
    assert_eq!(decide(unknown, Some(5), Some(5)), Action::Use);
    assert_eq!(decide(unknown, Some(10), Some(10)), Action::Fetch);
}

/// A `Get` that serves documents by URL.
#[derive(Clone, Default)]
struct IssuerDocuments(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Get for IssuerDocuments {
    fn get<'a>(&'a self, url: &'a str, accept: &'a str) -> Pending<'a, Result<Vec<u8>, FetchError>> {
        Box::pin(async move {
            // An API server responds with 406, too.
            if url.ends_with("/jwks") && accept != "application/jwk-set+json" {
                return Err(FetchError::Transport("406".to_owned()));
            }
            let documents = self.0.lock().unwrap();
            documents.get(url).cloned().ok_or_else(|| FetchError::Transport("404".to_owned()))
        })
    }
}

#[tokio::test]
async fn discovery_fetches_the_jwks_uri_of_the_provider_document() {
    let key = Key::ec("k");
    let documents = IssuerDocuments::default();
    let put = |url: &str, body: Vec<u8>| documents.0.lock().unwrap().insert(url.to_owned(), body);
    let provider =
        |issuer: &str, keys: &str| json!({"issuer": issuer, "jwks_uri": keys}).to_string().into_bytes();
    let fetched =
        async |discovery: Discovery<IssuerDocuments>| discovery.fetch().await.map(|keys| keys.ids().count());

    let other = |found: &str, expected: &str| ProviderError::Issuer {
        found: found.to_owned(),
        expected: expected.to_owned(),
    };

    let discovery = Discovery::new(ISSUER, documents.clone());
    assert_eq!(fetched(discovery.clone()).await, Err(FetchError::Transport("404".to_owned())));
    put(&format!("{ISSUER}/.well-known/openid-configuration"), provider(ISSUER, "https://keys.example/jwks"));
    put("https://keys.example/jwks", jwks(&[&key]));
    assert_eq!(fetched(discovery.clone()).await, Ok(1));
    assert_eq!(
        fetched(Discovery::new(format!("{ISSUER}/"), documents.clone())).await,
        Err(other(ISSUER, &format!("{ISSUER}/")).into())
    );

    // The provider document is on another server, but names the same issuer.
    let at = discovery.clone().at("https://api.example:6443/");
    put(
        "https://api.example:6443/.well-known/openid-configuration",
        provider(ISSUER, "https://10.0.0.1/jwks"),
    );
    assert_eq!(fetched(at.clone()).await, Err(FetchError::Transport("404".to_owned())));
    assert_eq!(fetched(at.clone().keys_at("https://keys.example/jwks")).await, Ok(1));
    put(
        "https://api.example:6443/.well-known/openid-configuration",
        provider("https://x", "https://keys.example/jwks"),
    );
    assert_eq!(fetched(at).await, Err(other("https://x", ISSUER).into()));

    put("https://keys.example/jwks", b"{\"keys\":[]}".to_vec());
    assert_eq!(fetched(discovery).await, Err(KeyError::NoKeys.into()));
}
