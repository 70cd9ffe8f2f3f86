//! Columns of the `admissionregistration.k8s.io` group.

use std::fmt::Write as _;

use value::{Map, Value};

use super::view::{View, cells, texts};
use super::{Column, TableDef};

const WEBHOOKS: &[Column] = &[Column::NAME, Column::integer("Webhooks"), Column::AGE];
const BINDING: &[Column] = &[Column::NAME, Column::text("PolicyName"), Column::text("ParamRef"), Column::AGE];

pub(crate) const MUTATING_WEBHOOK_CONFIGURATION: TableDef = TableDef::new(WEBHOOKS, webhooks);

pub(crate) const VALIDATING_WEBHOOK_CONFIGURATION: TableDef = TableDef::new(WEBHOOKS, webhooks);

pub(crate) const VALIDATING_ADMISSION_POLICY: TableDef = TableDef::new(
    &[Column::NAME, Column::integer("Validations"), Column::text("ParamKind"), Column::AGE],
    |v| cells![v.name(), v.count(&["spec", "validations"]), param_kind(v), v.age()],
);

pub(crate) const VALIDATING_ADMISSION_POLICY_BINDING: TableDef = TableDef::new(BINDING, binding);

pub(crate) const MUTATING_ADMISSION_POLICY: TableDef = TableDef::new(
    &[Column::NAME, Column::integer("Mutations"), Column::text("ParamKind"), Column::AGE],
    |v| cells![v.name(), v.count(&["spec", "mutations"]), param_kind(v), v.age()],
);

pub(crate) const MUTATING_ADMISSION_POLICY_BINDING: TableDef = TableDef::new(BINDING, binding);

fn webhooks(v: &View<'_>) -> Vec<Value> {
    cells![v.name(), v.count(&["webhooks"]), v.age()]
}

fn param_kind(v: &View<'_>) -> String {
    match v.object.at(&["spec", "paramKind"]) {
        Some(kind @ Value::Map(_)) => {
            let text = |field: &str| kind.str_at(&[field]).unwrap_or_default();
            format!("{}/{}", text("apiVersion"), text("kind"))
        }
        _ => "<unset>".to_owned(),
    }
}

fn binding(v: &View<'_>) -> Vec<Value> {
    let text = |field| v.text(&["spec", "paramRef", field]);
    let param = match (text("namespace"), text("name")) {
        (_, "") => match v.object.at(&["spec", "paramRef", "selector"]) {
            Some(selector @ Value::Map(_)) => selector_text(selector),
            _ => "<unset>".to_owned(),
        },
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    cells![v.name(), v.text(&["spec", "policyName"]), param, v.age()]
}

/// Formats a label selector as Go prints the struct, as kube-apiserver does in this table.
fn selector_text(selector: &Value) -> String {
    let mut out = String::from("&LabelSelector{MatchLabels:map[string]string{");
    let labels = selector.get("matchLabels").and_then(Value::as_map);
    for (key, value) in labels.into_iter().flat_map(Map::iter) {
        let _ = write!(out, "{key}: {},", value.as_str().unwrap_or_default());
    }
    out.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for expression in selector.list_at(&["matchExpressions"]) {
        let text = |field: &str| expression.str_at(&[field]).unwrap_or_default();
        let values: Vec<&str> = texts(expression.list_at(&["values"])).collect();
        let _ = write!(
            out,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text("key"),
            text("operator"),
            values.join(" ")
        );
    }
    out.push_str("},}");
    out
}
