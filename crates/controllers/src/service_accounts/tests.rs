use super::missing;
use crate::fake::{kind, parse};

#[test]
fn the_default_account_is_created_in_active_namespaces() {
    let accounts = kind("", "v1", "ServiceAccount", "serviceaccounts", true);
    let active = parse(r#"{"metadata":{"name":"n"},"status":{"phase":"Active"}}"#);
    let account = missing(Some(&active), None, &accounts, "n").unwrap();
    assert_eq!(
        account,
        parse(r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"n"}}"#)
    );
}

#[test]
fn the_default_account_is_created_only_where_missing_and_in_active_namespaces() {
    let accounts = kind("", "v1", "ServiceAccount", "serviceaccounts", true);
    let active = parse(r#"{"metadata":{"name":"n"},"status":{"phase":"Active"}}"#);
    let terminating = parse(r#"{"metadata":{"name":"n"},"status":{"phase":"Terminating"}}"#);
    let account = parse(r#"{"metadata":{"name":"default"}}"#);
    assert_eq!(missing(Some(&active), Some(&account), &accounts, "n"), None);
    assert_eq!(missing(Some(&terminating), None, &accounts, "n"), None);
    assert_eq!(missing(None, None, &accounts, "n"), None);
}
