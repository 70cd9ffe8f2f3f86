use super::missing;
use crate::fake::{kind, parse};

#[test]
fn an_active_namespace_without_the_account_is_given_one() {
    let accounts = kind("", "v1", "ServiceAccount", "serviceaccounts", true);
    let active = parse(r#"{"metadata":{"name":"n"},"status":{"phase":"Active"}}"#);
    let account = missing(Some(&active), None, &accounts, "n").unwrap();
    assert_eq!(
        account,
        parse(r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"n"}}"#)
    );
}

#[test]
fn nothing_is_made_in_a_namespace_that_has_it_or_goes_away_or_is_gone() {
    let accounts = kind("", "v1", "ServiceAccount", "serviceaccounts", true);
    let active = parse(r#"{"metadata":{"name":"n"},"status":{"phase":"Active"}}"#);
    let terminating = parse(r#"{"metadata":{"name":"n"},"status":{"phase":"Terminating"}}"#);
    let account = parse(r#"{"metadata":{"name":"default"}}"#);
    assert_eq!(missing(Some(&active), Some(&account), &accounts, "n"), None);
    assert_eq!(missing(Some(&terminating), None, &accounts, "n"), None);
    assert_eq!(missing(None, None, &accounts, "n"), None);
}
