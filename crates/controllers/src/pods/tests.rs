use std::time::Duration;

use value::Value;

use super::{DELETION_CHECK_DELAY, OrphanReason, PodGcKey, failed, key_to_check, orphan_reason};
use crate::api::{ClusterReader as _, ObjectChange};
use crate::fake::{FakeReader, parse};

const QUARANTINE: Duration = Duration::from_secs(40);

fn pod(node: &str, deleting: bool) -> Value {
    let mut pod = parse(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","uid":"u","generation":3},
            "spec":{},"status":{"phase":"Running"}}"#,
    );
    if !node.is_empty() {
        pod.set_at(&["spec", "nodeName"], node);
    }
    if deleting {
        pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    }
    pod
}

const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"here"},
    "status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;

fn broken() -> Value {
    let mut node = parse(NODE);
    node.set_at(
        &["spec", "taints"],
        parse(r#"[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]"#),
    );
    node.set_at(&["status", "conditions"], parse(r#"[{"type":"Ready","status":"Unknown"}]"#));
    node
}

fn observed(object: &Value, deleted: bool) -> Option<(PodGcKey, Duration)> {
    let fake = FakeReader::new(&[NODE]);
    let nodes = fake.kind("v1", "Node").unwrap();
    let change = ObjectChange { object_ref: fake.object_ref(object), object: object.clone(), deleted };
    key_to_check(&fake, &nodes, &change, QUARANTINE)
}

#[test]
fn a_pod_of_a_missing_node_is_checked_after_the_quarantine() {
    assert_eq!(observed(&pod("gone", false), false), Some((PodGcKey::Node("gone".into()), QUARANTINE)));
    assert_eq!(observed(&parse(NODE), true), Some((PodGcKey::Node("here".into()), QUARANTINE)));
    assert_eq!(observed(&pod("here", false), false), None);
    assert_eq!(observed(&pod("gone", false), true), None);
}

#[test]
fn a_terminating_pod_is_checked_after_the_deletion_delay() {
    let key = PodGcKey::Pod { namespace: "n".into(), name: "p".into() };
    assert_eq!(observed(&pod("", true), false), Some((key.clone(), DELETION_CHECK_DELAY)));
    assert_eq!(observed(&pod("here", true), false), Some((key, DELETION_CHECK_DELAY)));
    assert_eq!(observed(&pod("", false), false), None);
}

#[test]
fn only_out_of_service_nodes_are_checked() {
    assert_eq!(observed(&broken(), false), Some((PodGcKey::Node("here".into()), Duration::ZERO)));
    assert_eq!(observed(&parse(NODE), false), None);
}

#[test]
fn pods_of_deleted_nodes_are_orphaned_only_after_the_quarantine() {
    assert_eq!(orphan_reason(&pod("gone", false), None, true), Some(OrphanReason::NodeGone));
    assert_eq!(orphan_reason(&pod("gone", true), None, true), Some(OrphanReason::NodeGone));
    assert_eq!(orphan_reason(&pod("gone", true), None, false), None);
    assert_eq!(orphan_reason(&pod("here", false), Some(&parse(NODE)), true), None, "the node came back");
}

#[test]
fn terminating_unscheduled_pods_are_orphaned() {
    assert_eq!(orphan_reason(&pod("", true), None, false), Some(OrphanReason::Unscheduled));
    assert_eq!(orphan_reason(&pod("", false), None, false), None);
}

#[test]
fn terminating_pods_on_out_of_service_nodes_are_orphaned() {
    assert_eq!(orphan_reason(&pod("here", true), Some(&broken()), false), Some(OrphanReason::OutOfService));
    assert_eq!(orphan_reason(&pod("here", false), Some(&broken()), true), None);
    assert_eq!(orphan_reason(&pod("here", true), Some(&parse(NODE)), false), None);
    let mut ready = broken();
    ready.set_at(&["status", "conditions"], parse(r#"[{"type":"Ready","status":"True"}]"#));
    assert_eq!(orphan_reason(&pod("here", true), Some(&ready), false), None);
}

#[test]
fn an_orphaned_pod_is_marked_failed_with_a_reason_before_deletion() {
    let patch = failed(&pod("gone", false), OrphanReason::NodeGone, 0).unwrap();
    assert_eq!(
        patch,
        parse(
            r#"{"metadata":{"uid":"u"},"status":{"phase":"Failed","observedGeneration":3,"conditions":[
                {"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC","observedGeneration":3,
                 "message":"PodGC: node no longer exists","lastTransitionTime":"1970-01-01T00:00:00Z"}]}}"#
        )
    );
    let patch = failed(&pod("", true), OrphanReason::Unscheduled, 0).unwrap();
    assert_eq!(patch.at(&["status", "conditions"]), None);
    let mut ended = pod("gone", true);
    ended.set_at(&["status", "phase"], "Succeeded");
    assert_eq!(failed(&ended, OrphanReason::NodeGone, 0), None);
}
