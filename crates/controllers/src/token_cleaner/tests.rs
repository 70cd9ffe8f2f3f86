use std::time::Duration;

use value::go::base64;

use super::{LONGEST_WAIT, remaining};
use crate::fake::parse;

fn left(kind: &str, expiration: &str, now: i64) -> Option<Duration> {
    let mut secret = parse("{}");
    secret.set_at(&["type"], kind);
    secret.set_at(&["data", "expiration"], base64::STD.encode(expiration));
    remaining(&secret, now)
}

const TOKEN: &str = "bootstrap.kubernetes.io/token";
const TIME: &str = "1970-01-01T00:01:40Z";

#[test]
fn an_expired_or_unreadable_token_is_deleted_at_once() {
    assert_eq!(left(TOKEN, TIME, 100), Some(Duration::ZERO));
    assert_eq!(left(TOKEN, TIME, 1_000), Some(Duration::ZERO));
    assert_eq!(left(TOKEN, "soon", 0), Some(Duration::ZERO));
}

#[test]
fn a_token_is_looked_at_again_when_it_expires_but_at_least_once_a_day() {
    assert_eq!(left(TOKEN, TIME, 40), Some(Duration::from_mins(1)));
    assert_eq!(left(TOKEN, "9999-12-31T23:59:59Z", 0), Some(LONGEST_WAIT));
    assert_eq!(left(TOKEN, TIME, i64::MIN), Some(LONGEST_WAIT));
}

#[test]
fn tokens_without_expiration_and_other_secrets_are_never_deleted() {
    assert_eq!(left(TOKEN, "", 100), None);
    assert_eq!(left("Opaque", TIME, 1_000), None);
}
