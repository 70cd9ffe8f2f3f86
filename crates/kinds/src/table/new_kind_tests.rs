//! Adds a kind as CONTRIBUTING.md describes and checks that it is complete: the row, the functions that it names, its lines in
//! `crates/schema/data/fixture_schema.txt` and `fixture_protobuf.txt`, which have the form of `schema.txt` and `protobuf.txt`, and those in
//! `crates/kinds/data/fixture-internal-kinds.txt`.

use api::gvk::GroupVersionKind;
use api::validation::fields::{At, Read as _, Report as _};
use api::validation::meta;
use api::{FieldErrors, GroupKind, names};
use value::{Value, json};

use super::behavior::row_of;
use super::tests::{without_protobuf, without_schema};
use super::{GroupRow, KindBehavior, Resource, SubresourceRow, VersionRow};
use crate::print;
use crate::strategy::{self, Strategy};
use crate::validation::{ValidationContext, ValidationRules, internal_json};

const GROUP: &str = "widgets.example.com";

static GROUPS: &[GroupRow] = &[GroupRow {
    name: GROUP,
    versions: &["v1", "v1beta1"],
    priorities: Some((1_000, &[15, 9])),
    resources: &[Resource {
        group: GROUP,
        versions: &[VersionRow::new("v1"), VersionRow::new("v1beta1").converted(rename_count, rename_size)],
        kind: "Widget",
        plural: "widgets",
        singular: "widget",
        subresources: &[SubresourceRow::status("Widget")],
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults),
            rules: Some(RULES),
            strategy: Some(Strategy::NEW.status().generation(&[&["spec"]])),
            warnings: Some(warnings),
            status_warnings: Some(|_, warnings| warnings.push("status changed".to_owned())),
            columns: Some(print::tests::WIDGET),
        })
    }],
}];

const RULES: ValidationRules = ValidationRules {
    create: |widget, _| rules(widget),
    update: |new, _, _| rules(new),
    update_status: |_, _, _| FieldErrors::new(),
};

fn defaults(widget: &mut Value) {
    if widget.at(&["spec", "size"]).is_none() {
        widget.set_at(&["spec", "size"], 1);
    }
}

fn rules(widget: &Value) -> FieldErrors {
    let mut errors = meta::create(widget, true, names::name_is_dns_subdomain);
    let size = widget.part("spec").number("size");
    if size > 3 {
        errors.invalid(&At::new("spec.size"), size, "must be at most 3");
    }
    if size < 0 {
        let quoted = internal_json::compact("WidgetSpec", widget.part("spec"));
        errors.invalid(&At::new("spec"), quoted, "must not be negative");
    }
    errors
}

fn warnings(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    if new.part("spec").number("size") == 3 {
        warnings.push("spec.size: 3 is large".to_owned());
    }
}

fn renamed(object: &Value, from: &str, to: &str) -> Value {
    let mut object = object.clone();
    if let Some(size) = object.remove_at(&["spec", from]) {
        object.set_at(&["spec", to], size);
    }
    object
}

fn rename_count(object: &Value) -> Value {
    renamed(object, "count", "size")
}

fn rename_size(object: &Value) -> Value {
    renamed(object, "size", "count")
}

fn widget(spec: &str) -> Value {
    let text =
        format!(r#"{{"metadata":{{"name":"w","namespace":"n"}},"spec":{spec},"status":{{"ready":true}}}}"#);
    json::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_table_row_is_sufficient_to_add_a_kind() {
    let row = row_of(GROUPS, &GroupKind::new(GROUP, "Widget")).unwrap();
    let behavior = &row.behavior;

    let mut object = widget("{}");
    behavior.apply_defaults(&mut object);
    assert_eq!(object.int_at(&["spec", "size"]), Some(1));

    strategy::prepare_create(behavior.strategy.as_ref(), &mut object, &strategy::StrategyContext::default());
    assert_eq!(object.at(&["status"]), None);
    assert_eq!(object.int_at(&["metadata", "generation"]), Some(1));

    let rules = behavior.rules.unwrap();
    assert_eq!((rules.create)(&object, &ValidationContext::default()).len(), 0);
    let errors = (rules.create)(&widget(r#"{"size":4}"#), &ValidationContext::default());
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["spec.size: Invalid value: 4: must be at most 3"]);

    let errors = (rules.create)(&widget(r#"{"size":-1}"#), &ValidationContext::default());
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, [r#"spec: Invalid value: "{\"Size\":-1,\"Color\":\"\"}": must not be negative"#]);

    assert_eq!(behavior.warnings_on_write(&widget(r#"{"size":3}"#), None), ["spec.size: 3 is large"]);
    assert_eq!(behavior.warnings_on_status(&object), ["status changed"]);
    assert_eq!(behavior.table().row(&object, 0), [Value::from("w"), Value::from(1)]);
    assert_eq!(
        print::tests::columns_line(row.group, row.kind, behavior.table().columns()),
        "widgets.example.com;Widget;Name|string|name|0;Size|integer||0"
    );

    let conversion = row.version("v1beta1").and_then(|version| version.conversion).unwrap();
    let stored = (conversion.to_stored)(&widget(r#"{"count":2}"#));
    assert_eq!(stored, widget(r#"{"size":2}"#));
    assert_eq!((conversion.from_stored)(&stored), widget(r#"{"count":2}"#));

    assert_eq!(row.directory(), Some("widgets"));
    assert!(row.has_status() && row.is_namespaced());
    assert!(row_of(GROUPS, &GroupKind::new(GROUP, "Gadget")).is_none());
}

#[test]
fn the_lines_of_both_files_are_sufficient_for_schema_and_protobuf() {
    let rows = || GROUPS.iter().flat_map(|group| group.resources);
    assert_eq!(without_schema(rows()), [""; 0]);
    assert_eq!(without_protobuf(rows()), [""; 0]);

    let row = row_of(GROUPS, &GroupKind::new(GROUP, "Widget")).unwrap();
    let mut object = widget(r#"{"size":2,"sise":3}"#);
    let outcome = schema::decode::normalize(&mut object, row.schema("v1").unwrap());
    assert_eq!(outcome.unknown, ["spec.sise"]);
    assert_eq!(outcome.mismatches.len(), 0);
    let mut object = widget(r#"{"size":"2"}"#);
    assert_eq!(schema::decode::normalize(&mut object, row.schema("v1").unwrap()).mismatches.len(), 1);

    let gvk = GroupVersionKind::new(GROUP, "v1", "Widget");
    let encoded = schema::protobuf::encode(&gvk, &widget(r#"{"size":2}"#)).unwrap();
    let decoded = schema::protobuf::read(&encoded).unwrap();
    assert_eq!(decoded.str_at(&["apiVersion"]), Some("widgets.example.com/v1"));
    assert_eq!(decoded.int_at(&["spec", "size"]), Some(2));
    assert_eq!(decoded.at(&["status", "ready"]), Some(&Value::from(true)));
}

#[test]
fn a_row_without_schema_and_protobuf_layout_is_reported() {
    let row = Resource { kind: "Gadget", plural: "gadgets", subresources: &[], ..GROUPS[0].resources[0] };
    let missing = ["v1 Gadget", "v1 GadgetList", "v1beta1 Gadget", "v1beta1 GadgetList"];
    assert_eq!(without_schema([&row].into_iter()), missing.map(|kind| format!("{GROUP}/{kind}")));
    let missing = ["v1 Gadget", "v1beta1 Gadget"];
    assert_eq!(without_protobuf([&row].into_iter()), missing.map(|kind| format!("{GROUP}/{kind}")));
}
