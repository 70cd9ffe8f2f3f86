use http::{HeaderMap, HeaderValue, header};
use value::{Value, json};

use super::{drop_times, manager, restore_invalid_managed_fields};

fn object(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

const OWNED: &str = r#"{"metadata":{"managedFields":[{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{},"time":"2026-01-01T00:00:00Z"}]},"data":{"k":"v"}}"#;

#[test]
fn the_field_manager_defaults_to_the_first_part_of_the_user_agent() {
    let from = |agent: &'static [u8]| {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_bytes(agent).unwrap());
        manager("", &headers).into_owned()
    };
    assert_eq!(from(b"kubectl/v1.37.0 (linux/amd64)"), "kubectl");
    assert_eq!(from(b"curl"), "curl");
    assert_eq!(from("ein\u{a0}Wort/1".as_bytes()), "einWort");
    assert_eq!(from(&[b'x'; 200]).len(), 128);
    assert_eq!(manager("", &HeaderMap::new()), "");
    assert_eq!(manager("me", &HeaderMap::new()), "me");
}

#[test]
fn managed_fields_broken_by_admission_are_restored_with_a_warning() {
    let before = object(OWNED).at(&["metadata", "managedFields"]).cloned();
    let mut broken = object(OWNED);
    broken.set_at(&["metadata", "managedFields"], Value::list([object(r#"{"manager":"a"}"#)]));
    let warning = restore_invalid_managed_fields(&mut broken, before.clone()).unwrap();
    assert!(
        warning.ends_with("please fix your requests: operation must be `Apply` or `Update`"),
        "{warning}"
    );
    assert_eq!(broken, object(OWNED));
    // Managed fields that admission left alone, removed or changed to a valid value stay.
    for good in [OWNED.to_owned(), r#"{"data":{}}"#.to_owned(), OWNED.replace("\"a\"", "\"b\"")] {
        let mut valid = object(&good);
        assert_eq!(restore_invalid_managed_fields(&mut valid, before.clone()), None);
        assert_eq!(valid, object(&good));
    }
}

#[test]
fn managed_field_times_change_only_with_other_changes() {
    let old = object(OWNED);
    let mut same = object(&OWNED.replace("2026", "2027"));
    drop_times(&mut same, &old);
    assert_eq!(same, old);
    let changed = OWNED.replace("2026", "2027").replace("\"v\"", "\"w\"");
    let mut updated = object(&changed);
    drop_times(&mut updated, &old);
    assert_eq!(updated, object(&changed));
}
