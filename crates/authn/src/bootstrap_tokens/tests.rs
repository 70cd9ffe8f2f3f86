use std::time::Duration;

use value::go::base64;
use value::{Str, Value};

use super::*;
use crate::caller::AuthenticationMethod;
use crate::{Authenticator, Evidence, HeaderLines, StaticTokens};

const TOKEN: &str = "abcdef.0123456789abcdef";

struct OneSecret(Option<Value>);

impl BootstrapSecrets for OneSecret {
    fn get(&self, name: &str) -> Result<FoundBootstrapSecret, String> {
        let Some(secret) = self.0.as_ref().filter(|secret| api::meta::name(secret) == name) else {
            return Ok(FoundBootstrapSecret::Missing);
        };
        let token = BootstrapTokenSecret::of(secret).map(Arc::new);
        Ok(token.map_or(FoundBootstrapSecret::OtherType, FoundBootstrapSecret::Token))
    }
}

/// The Secret of [`TOKEN`].
fn secret() -> Value {
    let mut secret = value::json::parse(
        br#"{"metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}}"#,
    )
    .unwrap();
    secret.set_at(&["type"], SECRET_TYPE);
    for (key, text) in [
        ("token-id", "abcdef"),
        ("token-secret", "0123456789abcdef"),
        ("usage-bootstrap-authentication", "true"),
    ] {
        set(&mut secret, key, text);
    }
    secret
}

fn set(secret: &mut Value, key: &str, text: &str) {
    secret.set_at(&["data", key], base64::STD.encode(text));
}

fn user_of(secret: Option<Value>, token: &str, seconds: u64) -> Result<User, String> {
    let tokens = BootstrapTokens::new(Arc::new(OneSecret(secret)));
    tokens.user(BootstrapToken::parse(token).unwrap(), UNIX_EPOCH + Duration::from_secs(seconds))
}

#[test]
fn a_valid_token_has_the_user_and_the_groups_of_its_secret() {
    let mut with_groups = secret();
    set(&mut with_groups, "auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token");
    set(&mut with_groups, "expiration", "1970-01-01T00:01:40Z");
    let user = user_of(Some(with_groups), TOKEN, 99).unwrap();
    assert_eq!(user.name, "system:bootstrap:abcdef");
    assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"]);
    assert_eq!(user.uid, "");
}

#[test]
fn a_token_is_rejected_for_each_property_of_its_secret() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut secret = secret();
        change(&mut secret);
        user_of(Some(secret), TOKEN, 100).unwrap_err()
    };
    assert_eq!(
        user_of(None, TOKEN, 0).unwrap_err(),
        "No secret of name bootstrap-token-abcdef to match bootstrap bearer token"
    );
    for (why, rejection) in [
        ("has invalid type", with(&|secret| secret.set_at(&["type"], "Opaque"))),
        (
            "is deleted and awaiting removal",
            with(&|secret| secret.set_at(&["metadata", "deletionTimestamp"], "1970-01-01T00:00:00Z")),
        ),
        ("for key token-secret", with(&|secret| set(secret, "token-secret", "0123456789abcdeg"))),
        ("for key token-secret", with(&|secret| set(secret, "token-secret", ""))),
        ("for key token-id", with(&|secret| set(secret, "token-id", "abcdeg"))),
        ("has expired", with(&|secret| set(secret, "expiration", "1970-01-01T00:01:40Z"))),
        ("has expired", with(&|secret| set(secret, "expiration", "soon"))),
        (
            "not marked usage-bootstrap-authentication=true",
            with(&|secret| set(secret, "usage-bootstrap-authentication", "True")),
        ),
        ("for key auth-extra-groups", with(&|secret| set(secret, "auth-extra-groups", "system:masters"))),
    ] {
        assert!(rejection.contains(why), "expected `{why}`, got `{rejection}`");
        assert!(!rejection.contains("0123456789"), "the log must not contain a token: {rejection}");
    }
}

#[tokio::test]
async fn the_authenticator_tries_bootstrap_tokens_after_static_tokens() {
    let (statics, _) = StaticTokens::parse("tokens.csv", "abcdef.0123456789abcdef,alice,1\n").unwrap();
    let bootstrap = Authenticator {
        bootstrap_tokens: Some(BootstrapTokens::new(Arc::new(OneSecret(Some(secret()))))),
        ..Authenticator::default()
    };
    let both = Authenticator { static_tokens: Some(Arc::new(statics)), ..bootstrap.clone() };
    let header = format!("Bearer {TOKEN}");
    let lines = [("authorization", header.as_str())];
    let evidence = Evidence {
        certificate: None,
        proxy_certificate: None,
        headers: &HeaderLines(&lines),
        path: "/api",
        now: UNIX_EPOCH,
    };
    let caller = bootstrap.authenticate(&evidence).await.result.unwrap().unwrap();
    assert_eq!(caller.name(), "system:bootstrap:abcdef");
    assert_eq!(*caller.via(), AuthenticationMethod::BootstrapToken);
    assert_eq!(caller.groups(), ["system:bootstrappers".into(), Str::from("system:authenticated")]);
    let caller = both.authenticate(&evidence).await.result.unwrap().unwrap();
    assert_eq!(caller.name(), "alice");
}

#[tokio::test]
async fn a_review_does_not_say_why_a_bootstrap_token_is_invalid() {
    let authenticator = Authenticator {
        bootstrap_tokens: Some(BootstrapTokens::new(Arc::new(OneSecret(None)))),
        ..Authenticator::default()
    };
    let error = authenticator.review(TOKEN, None, UNIX_EPOCH).await.unwrap_err();
    assert_eq!(error.text_for_review(), "invalid bearer token");
    assert!(error.to_string().contains("No secret of name bootstrap-token-abcdef"), "{error}");
}
