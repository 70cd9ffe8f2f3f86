//! Tests comparing, merging and checking objects by their schema.

use super::super::{FieldSet, atomics, check, compare, merge};
use super::{kind, parse, show};

#[track_caller]
fn compared(old: &str, new: &str, wanted: [&str; 3]) {
    let found = compare(&parse(old), &parse(new), kind("Pod")).unwrap();
    let text = |set: &FieldSet| set.paths().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!([text(&found.removed), text(&found.modified), text(&found.added)], wanted);
}

#[test]
fn a_comparison_lists_removed_modified_and_added_fields() {
    compared("{metadata: {name: a}}", "{metadata: {name: a}}", ["", "", ""]);
    compared(
        "{metadata: {labels: {a: x, b: w}}}",
        "{metadata: {labels: {a: z, c: w}}}",
        [".metadata.labels.b", ".metadata.labels.a", ".metadata.labels.c"],
    );
    compared(
        "{metadata: {}}",
        "{metadata: {labels: {a: x}}}",
        ["", "", ".metadata.labels .metadata.labels.a"],
    );
    compared("{spec: {overhead: null}}", "{spec: {overhead: {}}}", ["", ".spec.overhead", ""]);
    compared(
        "{spec: {nodeSelector: {a: x}}}",
        "{spec: {nodeSelector: {a: x, b: w}}}",
        ["", ".spec.nodeSelector", ""],
    );
    compared(
        "{spec: {containers: [{name: a, image: x}, {name: b}]}}",
        "{spec: {containers: [{name: c}, {name: a, image: w}]}}",
        [
            r#".spec.containers[name="b"] .spec.containers[name="b"].name"#,
            r#".spec.containers[name="a"].image"#,
            r#".spec.containers[name="c"] .spec.containers[name="c"].name"#,
        ],
    );
    // The order of list items is not owned.
    compared("{metadata: {finalizers: [a, b]}}", "{metadata: {finalizers: [b, a]}}", ["", "", ""]);
}

#[test]
fn duplicate_items_are_compared_as_one() {
    let env = |items: &str| format!("{{spec: {{containers: [{{name: c, env: [{items}]}}]}}}}");
    let e = r#".spec.containers[name="c"].env[name="e"]"#;
    let (one, two, other) = ("{name: e}", "{name: e}, {name: e, value: x}", "{name: e}, {name: e, value: w}");
    compared(&env(two), &env(two), ["", "", ""]);
    compared(&env(two), &env(other), ["", e, ""]);
    compared(&env(two), &env(one), [e, "", &format!("{e} {e}.name")]);
    compared(&env(one), &env(two), [&format!("{e} {e}.name"), "", e]);
    compared(
        &env(two),
        &env("{name: z}"),
        [e, "", r#".spec.containers[name="c"].env[name="z"] .spec.containers[name="c"].env[name="z"].name"#],
    );
}

#[test]
fn a_list_whose_items_have_no_key_is_not_compared() {
    let old = parse("{metadata: {finalizers: [{a: b}]}}");
    let why = compare(&old, &parse("{}"), kind("Pod")).unwrap_err();
    assert_eq!(
        why,
        ".metadata.finalizers: element 0: associative list without keys has an element that's a map type"
    );
}

#[test]
fn merged_items_keep_the_objects_order_unless_the_configuration_orders_them() {
    for (object, config, wanted) in [
        ("[a, b, c]", "[]", "[a,b,c]"),
        ("[a, b, c]", "[b]", "[a,b,c]"),
        ("[a, b, c]", "[d]", "[a,b,c,d]"),
        ("[a, b, c]", "[c, a]", "[b,c,a]"),
        ("[a, b, c, d]", "[d, e, a]", "[b,c,d,e,a]"),
        ("[a, b, c]", "[x, b, z]", "[a,x,b,c,z]"),
        ("[]", "[b, a]", "[b,a]"),
    ] {
        let pod = |list: &str| parse(&format!("{{metadata: {{finalizers: {list}}}}}"));
        let merged = merge(&pod(object), &pod(config), kind("Pod")).unwrap();
        let text = merged.at(&["metadata", "finalizers"]).map(show).unwrap_or_default().replace('"', "");
        assert_eq!(text, wanted, "{object} {config}");
    }
}

#[test]
fn a_configuration_wins_where_both_have_a_value_and_null_removes_no_parts() {
    let merged = |object: &str, config: &str| {
        show(merge(&parse(object), &parse(config), kind("Pod")).unwrap().get("spec").unwrap())
    };
    assert_eq!(
        merged("{spec: {hostname: a, nodeName: h}}", "{spec: {hostname: b}}"),
        r#"{"hostname":"b","nodeName":"h"}"#
    );
    assert_eq!(
        merged("{spec: {nodeSelector: {a: b}}}", "{spec: {nodeSelector: {c: d}}}"),
        r#"{"nodeSelector":{"c":"d"}}"#
    );
    assert_eq!(
        merged("{spec: {overhead: {cpu: 1}}}", "{spec: {overhead: null}}"),
        r#"{"overhead":{"cpu":1}}"#
    );
    assert_eq!(merged("{spec: {hostname: a}}", "{spec: {hostname: null}}"), r#"{"hostname":null}"#);
}

#[test]
fn invalid_configurations_are_rejected_with_the_librarys_messages() {
    for (config, wanted) in [
        ("{spec: {foo: 1}}", ".spec.foo: field not declared in schema"),
        ("{spec: {hostname: 5}}", ".spec.hostname: expected string, got &value.valueUnstructured{Value:5}"),
        ("{spec: {hostNetwork: \"x\"}}", ".spec.hostNetwork: expected boolean, got &{x}"),
        ("{spec: {priority: \"1\"}}", ".spec.priority: expected numeric (int or float), got string"),
        ("{spec: [a]}", ".spec: expected map, got &{[a]}"),
        ("{spec: {containers: {a: b}}}", ".spec.containers: expected list, got &{map[a:b]}"),
        (
            "{metadata: {creationTimestamp: [a]}}",
            ".metadata.creationTimestamp: expected any scalar, got &{[a]}",
        ),
        (
            "{spec: {containers: [{name: a}, {name: a}]}}",
            r#".spec.containers: duplicate entries for key [name="a"]"#,
        ),
        ("{metadata: {finalizers: [a, a]}}", r#".metadata.finalizers: duplicate entries for key [="a"]"#),
        (
            "{spec: {containers: [null]}}",
            ".spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            "{spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a}], hostname: 5, subdomain: 6}}",
            "errors:\n  .spec.hostname: expected string, got &value.valueUnstructured{Value:5}\n  .spec.subdomain: expected string, got &value.valueUnstructured{Value:6}",
        ),
    ] {
        assert_eq!(check(&parse(config), kind("Pod"), false).unwrap_err().to_string(), wanted);
    }
    assert!(check(&parse("{metadata: {finalizers: [a, a]}}"), kind("Pod"), true).is_ok());
    assert!(
        check(&parse("{spec: {containers: [{name: a, image: null}], volumes: null}}"), kind("Pod"), false)
            .is_ok()
    );
}

#[test]
fn atomic_parts_of_a_configuration_are_found() {
    let config = parse("{spec: {nodeSelector: {a: b}, containers: [{name: a, command: [x]}], hostname: h}}");
    assert_eq!(atomics(&config, kind("Pod")), [".spec.containers[0].command", ".spec.nodeSelector"]);
    assert!(atomics(&parse("{metadata: {labels: {a: b}}}"), kind("Pod")).is_empty());
}
