//! Unit tests; `crates/conformance/tests/migrate` runs migrations with a real etcd.

use std::time::Duration;

use bytes::Bytes;
use catalog::etcd_values::KubernetesValues;
use storage::Record;
use storage::backend::StoredRecord;
use storage::embedded::ExpiringRecord;
use value::json;

use super::etcd_source::renewed_ago;
use super::item::{ItemReader, lost_field};
use super::to_etcd::scan;
use super::{MigrateError, MigrationStep};

/// A record of the embedded store.
fn entry(key: &str, body: &str) -> ExpiringRecord {
    let record = Record { body: Bytes::from(body.to_owned()), revision_at: 0, facts: Bytes::new() };
    let stored = StoredRecord { key: key.into(), revision: 5, created: 5, record };
    ExpiringRecord { stored, expires: None }
}

fn config_map(more: &str) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"m","namespace":"default","uid":"u"}}{more}}}"#
    )
}

/// The number of objects that can be copied, or the error.
async fn scanned(entries: &[ExpiringRecord], leave_out_unknown: bool) -> Result<u64, String> {
    let codec = KubernetesValues::default();
    let entries = entries.iter().cloned().map(Ok);
    let mut reader = ItemReader::of_stopped(entries, &codec, leave_out_unknown);
    scan(&mut reader, |_| Ok(())).await.map(|tally| tally.objects()).map_err(|error| error.to_string())
}

const MAP: &str = "/registry/configmaps/default/m";

#[tokio::test]
async fn objects_that_can_be_converted_are_copied_and_data_of_running_servers_is_not() {
    let entries = [
        entry(MAP, &config_map(r#","data":{"a":"b"}"#)),
        entry("/registry/masterleases/192.0.2.1", "{}"),
        entry("/registry/peerserverleases/x", "{}"),
        entry("/registry/portcullis-quota-fences/default", "{}"),
    ];
    assert_eq!(scanned(&entries, false).await, Ok(1));
}

#[tokio::test]
async fn objects_that_cannot_be_read_or_lose_a_field_are_all_named() {
    let entries = [
        entry(MAP, "{"),
        entry("/registry/configmaps/default/n", &config_map(r#","spokes":8"#)),
        entry("/registry/gizmos/x", "{}"),
    ];
    let error = scanned(&entries, false).await.unwrap_err();
    for text in [MAP, "/default/n` cannot be copied: its field `spokes`", "/registry/gizmos/x"] {
        assert!(error.contains(text), "{error}");
    }
    let error = scanned(&entries[..2], true).await.unwrap_err();
    assert!(!error.contains("gizmos"), "{error}");
    assert_eq!(scanned(&entries[2..], true).await, Ok(0));
}

#[tokio::test]
async fn the_number_of_named_objects_is_limited() {
    let entries: Vec<_> =
        (0..1000).map(|n| entry(&format!("/registry/configmaps/default/{n}"), "{")).collect();
    let error = scanned(&entries, false).await.unwrap_err();
    assert_eq!(error.lines().count(), 21, "{error}");
    assert!(error.contains("there may be more"));
}

#[test]
fn a_revision_that_goes_back_names_both_flags_and_the_distance() {
    let error = MigrateError::RevisionRollback { found: 1, wanted: 223 }.to_string();
    for text in ["222 writes", "--advance-revision", "--allow-revision-rollback", "restart all clients"] {
        assert!(error.contains(text), "{error}");
    }
    let error = MigrateError::TooFar { found: 1, wanted: 2_000_001, limit: 1_000_000 }.to_string();
    assert!(error.contains("--bump-revision 2000000"), "{error}");
}

fn lost(before: &str, after: &str) -> Option<String> {
    lost_field(&json::parse(before.as_bytes()).unwrap(), &json::parse(after.as_bytes()).unwrap())
}

#[test]
fn a_field_that_is_missing_or_different_after_the_conversion_is_lost() {
    for (before, after, path) in [
        (r#"{"a":{"b":"x"}}"#, r#"{"a":{}}"#, "a.b"),
        (r#"{"a":{"b":"x"}}"#, r#"{"a":{"b":"y"}}"#, "a.b"),
        (r#"{"a":[{"b":1},{"b":2}]}"#, r#"{"a":[{"b":1},{"b":3}]}"#, "a[1].b"),
        (r#"{"a":[1,2]}"#, r#"{"a":[1]}"#, "a"),
        (r#"{"a":{"b":1}}"#, r#"{"a":"b"}"#, "a"),
        (r#"{"a":"x"}"#, "{}", "a"),
    ] {
        assert_eq!(lost(before, after).as_deref(), Some(path), "{before} {after}");
    }
}

#[test]
fn added_defaults_and_missing_empty_values_are_no_loss() {
    for (before, after) in [
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#),
        (r#"{"a":{},"b":[],"c":"","d":null,"e":false,"f":0}"#, "{}"),
        (r#"{"a":{"b":{}}}"#, r#"{"a":{}}"#),
        (r#"{"a":null}"#, r#"{"a":{}}"#),
    ] {
        assert_eq!(lost(before, after), None, "{before} {after}");
    }
}

#[test]
fn a_renewal_is_as_old_as_its_time_says_and_never_negative() {
    let lease = |time: &str| {
        let text = format!(r#"{{"spec":{{"renewTime":"{time}"}}}}"#);
        json::parse(text.as_bytes()).unwrap()
    };
    let now = Duration::from_secs(1_000_000_000);
    let ago = |time: &str| renewed_ago(&lease(time), now).map(|ago| ago.as_secs());
    assert_eq!(ago("2001-09-09T01:46:30.000000Z"), Some(10));
    assert_eq!(ago("2001-09-09T01:47:30.000000Z"), Some(0));
    assert_eq!(ago("then"), None);
    assert_eq!(renewed_ago(&json::parse(b"{}").unwrap(), now), None);
}

#[test]
fn verification_lists_the_objects_of_each_resource() {
    let resources = [("pods".to_owned(), 12), ("deployments.apps".to_owned(), 3)].into();
    let step = MigrationStep::Verified { digest: "sha256:ab".to_owned(), resources };
    assert_eq!(
        step.to_string(),
        "verified: 15 keys are equal, digest sha256:ab\n  deployments.apps  3\n  pods              12"
    );
}
