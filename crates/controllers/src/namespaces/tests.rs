use std::time::Duration;

use value::Value;

use super::conditions::{Findings, updated};
use super::{Leftover, NamespaceStep, estimate, finalized, leftover, step, wait_for};
use crate::api::FailedDiscovery;
use crate::fake::{kind, parse};

const GOING: &str = r#"{"metadata":{"name":"n","deletionTimestamp":"2026-01-01T00:00:00Z"},
    "spec":{"finalizers":["kubernetes"]},"status":{"phase":"Terminating"}}"#;

#[test]
fn only_terminating_namespaces_with_a_finalizer_are_emptied() {
    assert_eq!(step(&parse(GOING)), NamespaceStep::Empty);
    let mut active = parse(GOING);
    active.remove_at(&["metadata", "deletionTimestamp"]);
    assert_eq!(step(&active), NamespaceStep::Nothing);
    let mut released = parse(GOING);
    released.remove_at(&["spec"]);
    assert_eq!(step(&released), NamespaceStep::Nothing);
}

#[test]
fn a_namespace_is_marked_terminating_before_its_contents_are_deleted() {
    let mut unmarked = parse(GOING);
    unmarked.set_at(&["status", "phase"], "Active");
    assert_eq!(step(&unmarked), NamespaceStep::Mark(parse(GOING)));
}

#[test]
fn only_the_kubernetes_finalizer_is_removed_from_a_namespace() {
    let mut namespace = parse(GOING);
    namespace.set_at(&["spec", "finalizers"], Value::list(["z", "kubernetes", "a", "a"]));
    assert_eq!(finalized(namespace).at(&["spec", "finalizers"]), Some(&Value::list(["a", "z"])));
    assert_eq!(finalized(parse(GOING)).list_at(&["spec", "finalizers"]), []);
}

#[test]
fn remaining_objects_are_attributed_to_finalizers_or_a_grace_period() {
    let maps = kind("", "v1", "ConfigMap", "configmaps", true);
    let held = parse(r#"{"metadata":{"name":"a","finalizers":["x/y","z/w"]}}"#);
    let also = parse(r#"{"metadata":{"name":"b","finalizers":["x/y"]}}"#);
    let bare = parse(r#"{"metadata":{"name":"c"}}"#);
    let found = leftover(&[held, also], 0, &maps, "n");
    assert_eq!((found.count, found.error), (2, None));
    assert_eq!(found.finalizers.into_iter().collect::<Vec<_>>(), [("x/y".into(), 2), ("z/w".into(), 1)]);
    assert_eq!(leftover(std::slice::from_ref(&bare), 30, &maps, "n").error, None);
    assert_eq!(leftover(&[], 0, &maps, "n"), Leftover::default());
    assert_eq!(
        leftover(&[bare], 0, &kind("apps", "v1", "Deployment", "deployments", true), "n").error.unwrap(),
        "unexpected items still remain in namespace: n for gvr: apps/v1, Resource=deployments"
    );
}

#[test]
fn namespace_deletion_waits_for_the_longest_pod_grace_period_once() {
    let pods = [
        parse(r#"{"spec":{"terminationGracePeriodSeconds":30},"status":{"phase":"Running"}}"#),
        parse(r#"{"spec":{"terminationGracePeriodSeconds":900},"status":{"phase":"Succeeded"}}"#),
    ];
    assert_eq!(estimate(&pods, 1000, 1005), 30);
    assert_eq!(estimate(&pods, 1000, 1030), 0);
    assert_eq!(estimate(&[], 1000, 1000), 0);
}

#[test]
fn the_retry_delay_of_namespace_deletion_grows_with_remaining_objects() {
    assert_eq!(wait_for(1), Duration::from_millis(251));
    assert_eq!(wait_for(1_000_000), Duration::from_secs(8));
}

fn text<'a>(conditions: &'a [Value], kind: &str, field: &str) -> &'a str {
    let condition = conditions.iter().find(|c| c.str_at(&["type"]) == Some(kind)).unwrap();
    condition.str_at(&[field]).unwrap()
}

#[test]
fn namespace_conditions_report_remaining_content_with_kubernetes_messages() {
    let mut findings = Findings::default();
    let held = parse(r#"{"metadata":{"name":"a","finalizers":["x/y"]}}"#);
    let maps = kind("", "v1", "ConfigMap", "configmaps", true);
    let deployments = kind("apps", "v1", "Deployment", "deployments", true);
    findings.add(&deployments, leftover(&[held.clone(), held.clone()], 0, &deployments, "n"));
    findings.add(&maps, leftover(&[held], 0, &maps, "n"));
    assert_eq!(findings.left, 3);
    let conditions = updated(&[], &findings, 0).unwrap();
    assert_eq!(conditions.len(), 5);
    assert_eq!(
        text(&conditions, "NamespaceContentRemaining", "message"),
        "Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 2 resource instances"
    );
    assert_eq!(
        text(&conditions, "NamespaceFinalizersRemaining", "message"),
        "Some content in the namespace has finalizers remaining: x/y in 3 resource instances"
    );
    assert_eq!(text(&conditions, "NamespaceFinalizersRemaining", "reason"), "SomeFinalizersRemain");
    assert_eq!(text(&conditions, "NamespaceContentRemaining", "lastTransitionTime"), "1970-01-01T00:00:00Z");
    assert_eq!(text(&conditions, "NamespaceDeletionDiscoveryFailure", "status"), "False");

    // Equal findings cause no change; the transition time stays while the status does.
    assert_eq!(updated(&conditions, &findings, 60), None);
    let fewer = {
        let mut findings = Findings::default();
        findings.add(&maps, Leftover { count: 1, ..Leftover::default() });
        findings
    };
    let later = updated(&conditions, &fewer, 60).unwrap();
    assert_eq!(text(&later, "NamespaceContentRemaining", "lastTransitionTime"), "1970-01-01T00:00:00Z");
    assert_eq!(text(&later, "NamespaceFinalizersRemaining", "lastTransitionTime"), "1970-01-01T00:01:00Z");
    assert_eq!(
        text(&later, "NamespaceFinalizersRemaining", "message"),
        "All content-preserving finalizers finished"
    );
}

#[test]
fn deletion_errors_are_counted_and_sorted_and_foreign_conditions_are_preserved() {
    let maps = kind("", "v1", "ConfigMap", "configmaps", true);
    let mut findings = Findings::default();
    for error in ["b", "a"] {
        findings.add(&maps, Leftover { error: Some(error.to_owned()), ..Leftover::default() });
    }
    let own = parse(r#"{"type":"Mine","status":"True"}"#);
    let conditions = updated(std::slice::from_ref(&own), &findings, 0).unwrap();
    assert_eq!(conditions.first(), Some(&own));
    assert_eq!(
        text(&conditions, "NamespaceDeletionContentFailure", "message"),
        "Failed to delete all resource types, 2 remaining: a, b"
    );
}

#[test]
fn discovery_failures_are_reported_and_block_namespace_deletion() {
    let stale = |version: &str| FailedDiscovery {
        version: version.to_owned(),
        why: format!("stale GroupVersion discovery: {version}"),
    };
    let findings = Findings::undiscovered_in(vec![stale("b.example/v1"), stale("a.example/v1")]);
    let error = findings.undiscovered().unwrap();
    assert_eq!(
        error,
        "unable to retrieve the complete list of server APIs: a.example/v1: stale GroupVersion discovery: a.example/v1, b.example/v1: stale GroupVersion discovery: b.example/v1"
    );
    let conditions = updated(&[], &findings, 0).unwrap();
    assert_eq!(conditions[0].str_at(&["type"]), Some("NamespaceDeletionDiscoveryFailure"));
    assert_eq!(conditions[0].str_at(&["reason"]), Some("DiscoveryFailed"));
    let message = format!("Discovery failed for some groups, 2 failing: {error}");
    assert_eq!(conditions[0].str_at(&["message"]), Some(message.as_str()));
    assert_eq!(Findings::default().undiscovered(), None);
}
