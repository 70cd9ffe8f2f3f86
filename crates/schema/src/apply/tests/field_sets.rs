//! Tests the field sets of objects and their encoding in managed fields.

use value::json;

use super::super::{Element, FieldSet, fields, fields_v1};
use super::{kind, parse, show};

#[test]
fn field_sets_are_read_and_written_as_they_were() {
    for text in [
        "{}",
        r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}"#,
        r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{}}}}}"#,
        r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}}}"#,
        r#"{"f:x":{"i:3":{}},"f:y":{"v:1.5":{},"v:true":{}}}"#,
        r#"{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{}}}"#,
    ] {
        let set = fields_v1::decode(&json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(show(&fields_v1::encode(&set)), text);
    }
}

#[test]
fn unknown_path_elements_are_dropped_and_malformed_ones_rejected() {
    let read = |text: &str| fields_v1::decode(&json::parse(text.as_bytes()).unwrap());
    assert_eq!(show(&fields_v1::encode(&read(r#"{"f:a":{},"q:b":{}}"#).unwrap())), r#"{"f:a":{}}"#);
    for broken in [
        r#"{"a":{}}"#,
        r#"{"f-a":{}}"#,
        r#"{"f:a":1}"#,
        r#"{"k:[1]":{}}"#,
        r#"{"v:{":{}}"#,
        r#"{"i:x":{}}"#,
        "[]",
    ] {
        assert!(read(broken).is_err(), "{broken}");
    }
}

fn set(paths: &[&str]) -> FieldSet {
    FieldSet::of(paths)
}

#[test]
fn sets_are_united_subtracted_and_intersected() {
    let mut both = set(&["a", "b.c"]);
    both.unite(set(&["b", "d.e"]));
    assert_eq!(both, set(&["a", "b", "b.c", "d.e"]));
    assert_eq!(both.difference(&set(&["b", "d.e"])), set(&["a", "b.c"]));
    assert_eq!(both.intersection(&set(&["b.c", "d", "x"])), set(&["b.c"]));
    let mut less = both.clone();
    less.subtract_with_below(&set(&["b", "d.x"]));
    assert_eq!(less, set(&["a", "d.e"]));
    assert!(set(&["b.c"]).is_within(&both) && !set(&["d"]).is_within(&both) && !set(&["z"]).is_within(&both));
    assert_eq!(both.len(), 4);
    assert!(both.has(&[Element::Field("b".into()), Element::Field("c".into())]));
    assert!(!both.has(&[Element::Field("d".into())]) && !both.has(&[]));
}

#[test]
fn the_fields_of_a_configuration_are_its_leaves_items_and_map_keys() {
    let pod = parse(
        "{metadata: {labels: {a: b}, finalizers: [x]}, spec: {nodeSelector: {a: b}, tolerations: [{key: k}], \
         containers: [{name: c, ports: [{containerPort: 80}]}], volumes: [], hostAliases: null, overhead: {}}}",
    );
    let paths: Vec<String> = fields(&pod, kind("Pod")).paths().iter().map(ToString::to_string).collect();
    assert_eq!(
        paths,
        [
            ".metadata.finalizers[=\"x\"]",
            ".metadata.labels.a",
            ".spec.hostAliases",
            ".spec.nodeSelector",
            ".spec.overhead",
            ".spec.tolerations",
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].name",
            ".spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"]",
            ".spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
        ]
    );
}
