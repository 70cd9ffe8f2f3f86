use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{CHARGE_CHECK_DELAY, may_reduce_usage, quotas_to_recount, recount_delay};
use crate::api::ObjectChange;
use crate::fake::{FakeReader, kind, parse};

#[test]
fn a_new_or_changed_quota_is_recounted_immediately() {
    let fresh = parse(r#"{"spec":{"hard":{"pods":"1"}},"status":{}}"#);
    assert_eq!(recount_delay(&fresh), Duration::ZERO);
    let changed =
        parse(r#"{"spec":{"hard":{"pods":"2"}},"status":{"hard":{"pods":"1"},"used":{"pods":"0"}}}"#);
    assert_eq!(recount_delay(&changed), Duration::ZERO);
    let known = parse(r#"{"spec":{"hard":{"pods":"1"}},"status":{"hard":{"pods":"1"},"used":{"pods":"0"}}}"#);
    assert_eq!(recount_delay(&known), CHARGE_CHECK_DELAY);
}

#[test]
fn deleted_and_finished_objects_release_quota_usage() {
    let pods = kind("", "v1", "Pod", "pods", true);
    let change = |text: &str, deleted| ObjectChange {
        object_ref: pods.object_ref("n", "p"),
        object: parse(text),
        deleted,
    };
    assert!(may_reduce_usage(&change("{}", true)));
    assert!(may_reduce_usage(&change(r#"{"status":{"phase":"Failed"}}"#, false)));
    assert!(!may_reduce_usage(&change(r#"{"status":{"phase":"Running"}}"#, false)));
    let maps = kind("", "v1", "ConfigMap", "configmaps", true);
    let map = ObjectChange { object_ref: maps.object_ref("n", "m"), object: parse("{}"), deleted: false };
    assert!(!may_reduce_usage(&map));
}

#[test]
fn the_quotas_of_a_namespace_are_recounted_after_a_deletion_without_being_decoded() {
    let quotas = kind("", "v1", "ResourceQuota", "resourcequotas", true);
    let quota = |namespace: &str, name: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ResourceQuota","metadata":{{"namespace":"{namespace}","name":"{name}"}}}}"#
        )
    };
    let stored = [quota("n", "a"), quota("n", "b"), quota("other", "c")];
    let mut fake = FakeReader::new(&[]);
    fake.kinds.push(quotas.clone());
    fake.objects = stored.iter().map(|text| parse(text)).collect();
    let maps = kind("", "v1", "ConfigMap", "configmaps", true);
    let change =
        |deleted| ObjectChange { object_ref: maps.object_ref("n", "m"), object: parse("{}"), deleted };
    let found = quotas_to_recount(&fake, &quotas, &change(true));
    let expected = ["a", "b"].map(|name| (("n".into(), name.into()), Duration::ZERO));
    assert_eq!(found, expected);
    assert_eq!(quotas_to_recount(&fake, &quotas, &change(false)), []);
    assert_eq!(fake.lists.load(Ordering::Relaxed), 0);
}
