use api::GroupKind;
use value::Value;
use value::json::parse;

use super::{ScalableKind, apply, from_object, validate};

fn kind(group: &str, kind: &str) -> ScalableKind {
    ScalableKind::of(&GroupKind::new(group, kind)).unwrap()
}

fn object(text: &str) -> Value {
    parse(text.as_bytes()).unwrap()
}

fn deployment() -> Value {
    object(
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n","uid":"u","resourceVersion":"7","labels":{"a":"b"}},
            "spec":{"replicas":3,"selector":{"matchLabels":{"b":"1"},"matchExpressions":[{"key":"a","operator":"In","values":["y","x"]},{"key":"c","operator":"DoesNotExist"}]}},
            "status":{"replicas":2}}"#,
    )
}

#[test]
fn scale_shows_replicas_and_selector() {
    let scale = from_object(kind("apps", "Deployment"), &deployment());
    assert_eq!(
        value::write::to_string(&scale),
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"n","resourceVersion":"7","uid":"u"},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a in (x,y),b=1,!c"}}"#
    );
}

#[test]
fn replication_controllers_select_by_plain_labels() {
    let controller = object(r#"{"metadata":{"name":"r"},"spec":{"selector":{"b":"2","a":"1"}}}"#);
    let scale = from_object(kind("", "ReplicationController"), &controller);
    assert_eq!(scale.str_at(&["status", "selector"]), Some("a=1,b=2"));
    assert!(scale.at(&["spec", "replicas"]).is_none());
}

#[test]
fn a_scale_changes_replicas_and_resource_version_only() {
    let mut scale = from_object(kind("apps", "Deployment"), &deployment());
    scale.set_at(&["spec", "replicas"], 9_i64);
    scale.set_at(&["metadata", "resourceVersion"], "8");
    let changed = apply(kind("apps", "Deployment"), &deployment(), &scale).unwrap();
    assert_eq!(changed.int_at(&["spec", "replicas"]), Some(9));
    assert_eq!(changed.str_at(&["metadata", "resourceVersion"]), Some("8"));
    assert_eq!(changed.str_at(&["metadata", "labels", "a"]), Some("b"));
}

#[test]
fn a_scale_of_another_object_is_a_conflict() {
    let mut scale = from_object(kind("apps", "Deployment"), &deployment());
    scale.set_at(&["metadata", "uid"], "other");
    let status = apply(kind("apps", "Deployment"), &deployment(), &scale).unwrap_err();
    assert_eq!(status.code(), 409);
    assert_eq!(
        status.message(),
        "Operation cannot be fulfilled on deployments/scale.apps \"d\": Precondition failed: UID in precondition: other, UID in object meta: u"
    );
}

#[test]
fn negative_replicas_are_refused() {
    let scale = object(r#"{"spec":{"replicas":-1}}"#);
    let errors: Vec<String> = validate(&scale).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]);
    let status = apply(kind("apps", "Deployment"), &deployment(), &scale).unwrap_err();
    assert_eq!(status.code(), 422);
}

#[test]
fn only_workloads_can_be_scaled() {
    let resource = |group: &str, kind: &str| {
        ScalableKind::of(&GroupKind::new(group, kind)).map(|kind| kind.resource().to_string())
    };
    for (group, kind, expected) in [
        ("apps", "Deployment", "deployments/scale.apps"),
        ("apps", "ReplicaSet", "replicasets/scale.apps"),
        ("apps", "StatefulSet", "statefulsets/scale.apps"),
        ("", "ReplicationController", "replicationcontrollers/scale"),
    ] {
        assert_eq!(resource(group, kind).as_deref(), Some(expected), "{kind}");
    }
    assert_eq!(resource("apps", "DaemonSet"), None);
}
