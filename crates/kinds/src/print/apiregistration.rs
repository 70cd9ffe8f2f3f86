//! Columns of the `apiregistration.k8s.io` group.

use value::Value;

use super::view::{View, cells, find_condition};
use super::{Column, TableDef};

pub(crate) const API_SERVICE: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Service"), Column::text("Available"), Column::AGE], |v| {
        cells![v.name(), service(v), available(v), v.age()]
    });

fn service(v: &View<'_>) -> String {
    let text = |field| v.text(&["spec", "service", field]);
    match v.object.at(&["spec", "service"]) {
        Some(Value::Map(_)) => format!("{}/{}", text("namespace"), text("name")),
        _ => "Local".to_owned(),
    }
}

fn available(v: &View<'_>) -> String {
    let Some(condition) = find_condition(v.list(&["status", "conditions"]), "Available") else {
        return "Unknown".to_owned();
    };
    let text = |field: &str| condition.str_at(&[field]).unwrap_or_default();
    match (text("status"), text("reason")) {
        (status, reason) if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
        (status, _) => status.to_owned(),
    }
}
