use super::{MAX_DIGITS, Record, StoredEntry, digits};

fn record(body: &str, revision_at: u32) -> Record {
    Record { body: body.to_owned().into(), revision_at, facts: "facts".into() }
}

#[test]
fn digits_formats_numbers_in_decimal() {
    for number in [0, 7, 10, 42, 1_000_000, u64::MAX] {
        assert_eq!(digits(number, &mut [0; MAX_DIGITS]), number.to_string().as_bytes());
    }
}

#[test]
fn the_resource_version_is_inserted_into_the_body_and_removed_again() {
    let record = record(r#"{"resourceVersion":""}"#, 20);
    let entry = StoredEntry::new("/a/b/c/d".into(), 42, 7, &record);
    assert_eq!(entry.body, r#"{"resourceVersion":"42"}"#);
    assert_eq!(entry.facts, "facts");
    assert_eq!(entry.record(), record);
    let deleted = entry.at_revision(1000);
    assert_eq!(deleted.body, r#"{"resourceVersion":"1000"}"#);
    assert_eq!((deleted.revision, deleted.created), (1000, 7));
    assert_eq!(deleted.record(), record);
}

#[test]
fn a_revision_offset_outside_the_body_is_invalid() {
    assert!(record("ab", 2).is_valid());
    assert!(!record("ab", 3).is_valid());
}
