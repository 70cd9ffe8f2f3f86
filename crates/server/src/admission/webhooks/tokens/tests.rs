use api::attestation::WebhookConfigurationKind;
use runtime::MetricRegistry;
use value::json;

use super::*;

fn tokens() -> Arc<WebhookTokenSource> {
    WebhookTokenSource::new(TokenMetrics::new(&MetricRegistry::new()).unwrap(), Loopback::disconnected())
}

fn recipient(uid: &str, audience: &str) -> TokenRecipient {
    TokenRecipient {
        kind: WebhookConfigurationKind::Validating,
        uid: uid.into(),
        configuration: "hooks".into(),
        audience: audience.into(),
    }
}

/// A slot with a token that is `age` seconds old.
fn slot_with_token(age: u64) -> TokenSlot {
    let from = SystemTime::now() - Duration::from_secs(age);
    let until = from + Duration::from_mins(10) - MARGIN;
    TokenSlot {
        token: Some(CachedToken { bearer: BearerToken::new("t").unwrap(), from, until }),
        ..TokenSlot::default()
    }
}

fn configuration(uid: &str, urls: &[&str]) -> Value {
    let hooks: Vec<String> =
        urls.iter().map(|url| format!(r#"{{"clientConfig":{{"url":"{url}"}}}}"#)).collect();
    let text = format!(r#"{{"metadata":{{"uid":"{uid}"}},"webhooks":[{}]}}"#, hooks.join(","));
    json::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_token_is_used_while_valid_and_renewed_before_it_expires() {
    let [epoch, young, old, spent] = [0, 478, 481, 571].map(|age| slot_with_token(age).token.unwrap());
    let now = SystemTime::now();
    assert!(epoch.is_good(now) && !epoch.is_old(now));
    assert!(young.is_good(now) && !young.is_old(now));
    assert!(old.is_good(now) && old.is_old(now));
    assert!(!spent.is_good(now));
    // The clock was set back by an hour.
    assert!(!epoch.is_good(now - Duration::from_hours(1)));
}

#[test]
fn token_requests_back_off_up_to_thirty_seconds_after_failures() {
    let mut slot = TokenSlot::default();
    assert!(slot.may_ask());
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let before = Instant::now();
        slot.failed();
        assert!(!slot.may_ask());
        pauses.push(slot.next.unwrap().duration_since(before).as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
}

#[tokio::test]
async fn a_cached_token_is_reused_and_a_missing_one_is_requested_once() {
    let tokens = tokens();
    let known = recipient("a", "https://one/");
    tokens.slots().insert(known.clone(), slot_with_token(0));
    assert!(matches!(tokens.look_up(&known), TokenLookup::Good(_)));
    assert!(tokens.slots()[&known].under_way.is_none());
    // An old token is still sent, and renewed in the background.
    tokens.slots().insert(known.clone(), slot_with_token(500));
    assert!(matches!(tokens.look_up(&known), TokenLookup::Good(_)));
    assert!(tokens.slots()[&known].under_way.is_some());

    let other = recipient("b", "https://one/");
    let (TokenLookup::Soon(first), TokenLookup::Soon(second)) =
        (tokens.look_up(&other), tokens.look_up(&other))
    else {
        panic!("no token was requested");
    };
    assert!(first.over.same_channel(&second.over));
    // The loopback is disconnected: the request fails at once, and the next lookup does not send another immediately.
    assert!(tokens.get(&other, None).await.is_none());
    assert!(matches!(tokens.look_up(&other), TokenLookup::Nothing));
    tokens.ask_again();
    assert!(matches!(tokens.look_up(&other), TokenLookup::Soon(_)));
}

#[tokio::test]
async fn a_token_forgotten_during_its_request_is_not_cached() {
    let tokens = tokens();
    let gone = recipient("a", "https://one/");
    let TokenLookup::Soon(mut under_way) = tokens.look_up(&gone) else { panic!("no token was requested") };
    tokens.account_changed();
    let _ = under_way.over.changed().await;
    assert!(tokens.slots().is_empty());
}

#[test]
fn tokens_are_dropped_with_their_webhook_configuration_or_webhook() {
    let tokens = tokens();
    let fill = || {
        for (uid, audience) in [("a", "https://one/"), ("a", "https://two/"), ("b", "https://one/")] {
            tokens.slots().insert(recipient(uid, audience), slot_with_token(0));
        }
    };
    let left = || {
        let slots = tokens.slots();
        let mut left: Vec<String> = slots.keys().map(|r| format!("{} {}", r.uid, r.audience)).collect();
        left.sort();
        left
    };
    let old = configuration("a", &["https://one/", "https://two/"]);
    fill();
    tokens.configuration_changed(None, Some(&old));
    tokens.configuration_changed(Some(&old), Some(&old));
    assert_eq!(left().len(), 3);
    tokens.configuration_changed(Some(&old), Some(&configuration("a", &["https://two/", "https://three/"])));
    assert_eq!(left(), ["a https://two/", "b https://one/"]);
    fill();
    tokens.configuration_changed(Some(&old), None);
    assert_eq!(left(), ["b https://one/"]);
    fill();
    // The configuration was deleted and created again under the same name.
    tokens.configuration_changed(Some(&old), Some(&configuration("c", &["https://one/"])));
    assert_eq!(left(), ["b https://one/"]);
    tokens.account_changed();
    assert!(left().is_empty());
}
