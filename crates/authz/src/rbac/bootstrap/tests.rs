//! The tables as a whole; single rules are seen by the spec pages.

use std::collections::BTreeSet;

use api::meta;
use value::Value;

use super::objects;
use crate::rbac::{Index, RoleRef};

fn of_kind(kind: &str) -> Vec<Value> {
    objects().into_iter().filter(|object| object.str_at(&["kind"]) == Some(kind)).collect()
}

#[test]
fn there_are_as_many_as_kubernetes_has() {
    let count = |kind| of_kind(kind).len();
    assert_eq!(count("ClusterRole"), 73);
    assert_eq!(count("ClusterRoleBinding"), 54);
    assert_eq!(count("Role"), 7);
    assert_eq!(count("RoleBinding"), 7);
}

#[test]
fn no_object_stands_twice() {
    let all = objects();
    let names: BTreeSet<_> =
        all.iter().map(|o| (o.str_at(&["kind"]).unwrap(), meta::namespace(o), meta::name(o))).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn every_binding_binds_a_role_that_exists() {
    let all = objects();
    let index = Index::from_objects(&all);
    for binding in all.iter().filter(|o| o.at(&["roleRef"]).is_some()) {
        let role = RoleRef::of(binding);
        assert!(index.role_rules(&role, meta::namespace(binding)).is_some(), "{role}");
    }
}

#[test]
fn every_object_is_marked_as_kept_up_to_date() {
    for object in objects() {
        assert_eq!(object.str_at(&["metadata", "annotations", super::AUTOUPDATE]), Some("true"));
        assert_eq!(
            object.str_at(&["metadata", "labels", "kubernetes.io/bootstrapping"]),
            Some("rbac-defaults")
        );
    }
}
