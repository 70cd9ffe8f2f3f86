use std::time::Duration;

use super::{SOON, gives_back, when};
use crate::api::ObjectChange;
use crate::fake::{kind, parse};

#[test]
fn a_quota_whose_limits_are_not_known_is_counted_at_once() {
    let fresh = parse(r#"{"spec":{"hard":{"pods":"1"}},"status":{}}"#);
    assert_eq!(when(&fresh), Duration::ZERO);
    let changed =
        parse(r#"{"spec":{"hard":{"pods":"2"}},"status":{"hard":{"pods":"1"},"used":{"pods":"0"}}}"#);
    assert_eq!(when(&changed), Duration::ZERO);
    let known = parse(r#"{"spec":{"hard":{"pods":"1"}},"status":{"hard":{"pods":"1"},"used":{"pods":"0"}}}"#);
    assert_eq!(when(&known), SOON);
}

#[test]
fn what_goes_away_or_ends_gives_back_and_what_comes_does_not() {
    let pods = kind("", "v1", "Pod", "pods", true);
    let change = |text: &str, deleted| ObjectChange {
        object_ref: pods.object_ref("n", "p"),
        object: parse(text),
        deleted,
    };
    assert!(gives_back(&change("{}", true)));
    assert!(gives_back(&change(r#"{"status":{"phase":"Failed"}}"#, false)));
    assert!(!gives_back(&change(r#"{"status":{"phase":"Running"}}"#, false)));
    let maps = kind("", "v1", "ConfigMap", "configmaps", true);
    let map = ObjectChange { object_ref: maps.object_ref("n", "m"), object: parse("{}"), deleted: false };
    assert!(!gives_back(&map));
}
