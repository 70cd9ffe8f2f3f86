//! Adds a kind as CONTRIBUTING.md describes and checks that it is complete: besides the functions it names, only the row is needed.

use api::validation::fields::{At, Read as _, Report as _};
use api::validation::meta;
use api::{FieldErrors, GroupKind, names};
use value::{Value, json};

use super::behavior::row_of;
use super::tests::{without_protobuf, without_schema};
use super::{GroupRow, KindBehavior, Resource, SubresourceRow, VersionRow};
use crate::print;
use crate::strategy::{self, Strategy};
use crate::validation::{ValidationContext, ValidationRules};

static GROUPS: &[GroupRow] = &[GroupRow {
    name: "example.com",
    versions: &["v1", "v1beta1"],
    resources: &[Resource {
        group: "example.com",
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
    let row = row_of(GROUPS, &GroupKind::new("example.com", "Widget")).unwrap();
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

    assert_eq!(behavior.warnings_on_write(&widget(r#"{"size":3}"#), None), ["spec.size: 3 is large"]);
    assert_eq!(behavior.warnings_on_status(&object), ["status changed"]);
    assert_eq!(behavior.table().row(&object, 0), [Value::from("w"), Value::from(1)]);

    let conversion = row.version("v1beta1").and_then(|version| version.conversion).unwrap();
    let stored = (conversion.to_stored)(&widget(r#"{"count":2}"#));
    assert_eq!(stored, widget(r#"{"size":2}"#));
    assert_eq!((conversion.from_stored)(&stored), widget(r#"{"count":2}"#));

    assert_eq!(row.directory(), Some("widgets"));
    assert!(row.has_status() && row.is_namespaced());
    assert!(row_of(GROUPS, &GroupKind::new("example.com", "Gadget")).is_none());
}

/// The schema and the protobuf layout are lines of files that are compiled in, so this kind has neither. The tests that
/// guard those files must report it.
#[test]
fn a_row_without_schema_and_protobuf_layout_is_reported() {
    let rows = || GROUPS.iter().flat_map(|group| group.resources);
    let missing = [
        "example.com/v1 Widget",
        "example.com/v1 WidgetList",
        "example.com/v1beta1 Widget",
        "example.com/v1beta1 WidgetList",
        "widgets/status",
    ];
    assert_eq!(without_schema(rows()), missing);
    assert_eq!(without_protobuf(rows()), ["example.com/v1 Widget", "example.com/v1beta1 Widget"]);
}
