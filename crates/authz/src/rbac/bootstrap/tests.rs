//! Tests of all default objects together. The spec pages test single rules.

use std::collections::BTreeSet;

use api::features::{Feature, Features};
use api::meta;
use value::Value;

use super::{objects, webhook_tokens};
use crate::rbac::{RbacIndex, RoleRef};

fn of_kind(kind: &str) -> Vec<Value> {
    objects(Features::default()).into_iter().filter(|object| object.str_at(&["kind"]) == Some(kind)).collect()
}

#[test]
fn bootstrap_roles_and_bindings_are_as_many_as_in_kubernetes() {
    let count = |kind| of_kind(kind).len();
    assert_eq!(count("ClusterRole"), 73);
    assert_eq!(count("ClusterRoleBinding"), 54);
    assert_eq!(count("Role"), 7);
    assert_eq!(count("RoleBinding"), 7);
}

#[test]
fn a_feature_adds_rules_and_roles_only_while_it_is_on() {
    const EDIT: &str = "system:aggregate-to-edit";
    const VIEW: &str = "system:aggregate-to-view";
    const SCHEDULER: &str = "system:kube-scheduler";
    const PROTECTION: &str = "system:controller:podgroup-protection-controller";
    let rules = |features: Features, role: &str| -> String {
        let all = objects(features);
        let found = all.iter().find(|o| o.str_at(&["kind"]) == Some("ClusterRole") && meta::name(o) == role);
        found.map(value::write::to_string).unwrap_or_default()
    };
    for (feature, role, resource) in [
        (Feature::GenericWorkload, EDIT, r#"["podgroups","workloads"]"#),
        (Feature::GenericWorkload, VIEW, r#"["podgroups","podgroups/status","workloads"]"#),
        (Feature::GenericWorkload, SCHEDULER, r#"["podgroups/status"]"#),
        (Feature::GenericWorkload, PROTECTION, r#"["podgroups"]"#),
        (Feature::CompositePodGroup, EDIT, r#"["compositepodgroups"]"#),
        (Feature::CompositePodGroup, VIEW, r#"["compositepodgroups","compositepodgroups/status"]"#),
        (Feature::CompositePodGroup, SCHEDULER, r#"["compositepodgroups/status"]"#),
        (Feature::EvictionRequestApi, EDIT, r#"["evictionrequests"]"#),
        (Feature::EvictionRequestApi, VIEW, r#"["evictionrequests","evictions"]"#),
    ] {
        assert!(rules(Features::default().with(feature), role).contains(resource), "{role} {resource}");
        assert!(!rules(Features::default(), role).contains(resource), "{role} {resource}");
    }
    // No user writes evictions.
    assert!(!rules(Features::ALL, EDIT).contains("\"evictions\""));
    assert_eq!(rules(Features::default(), PROTECTION), "");
}

#[test]
fn bootstrap_objects_have_unique_names() {
    let all = objects(Features::ALL);
    let names: BTreeSet<_> =
        all.iter().map(|o| (o.str_at(&["kind"]).unwrap(), meta::namespace(o), meta::name(o))).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn every_bootstrap_binding_refers_to_an_existing_role() {
    let all = objects(Features::ALL);
    let index = RbacIndex::from_objects(&all);
    for binding in all.iter().filter(|o| o.at(&["roleRef"]).is_some()) {
        let role = RoleRef::of(binding);
        assert!(index.role_rules(&role, meta::namespace(binding)).is_some(), "{role}");
    }
}

#[test]
fn every_object_has_the_autoupdate_annotation() {
    for object in objects(Features::ALL) {
        assert_eq!(object.str_at(&["metadata", "annotations", super::AUTOUPDATE]), Some("true"));
        assert_eq!(
            object.str_at(&["metadata", "labels", "kubernetes.io/bootstrapping"]),
            Some("rbac-defaults")
        );
    }
}

#[test]
fn webhook_auth_service_account_may_only_attest_all_groups() {
    let index = RbacIndex::from_objects(&webhook_tokens());
    let account = authn::service_account::user("kube-system", api::attestation::ACCOUNT_NAME, "");
    let may = |verb: &str, (group, resource): (&str, &str), name: &str| {
        let attributes = crate::AuthorizationAttributes::resource(verb, group, resource).named(name);
        index.decide(&account, &attributes).decision == crate::Decision::Allow
    };
    for dialect in api::attestation::AttestationDialect::ALL {
        assert!(may("attest", dialect.resource(), "*"));
        // `*` is a literal resource name here: it does not include the permission for single groups.
        assert!(!may("attest", dialect.resource(), "apps"));
        assert!(!may("attest", dialect.resource(), ""));
        assert!(!may("get", dialect.resource(), "*"));
    }
    let other = authn::service_account::user("default", api::attestation::ACCOUNT_NAME, "");
    let (group, resource) = api::attestation::AttestationDialect::Kep.resource();
    let attributes = crate::AuthorizationAttributes::resource("attest", group, resource).named("*");
    assert_ne!(index.decide(&other, &attributes).decision, crate::Decision::Allow);
}
