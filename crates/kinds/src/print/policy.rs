//! Columns of the `policy` group.

use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

pub(crate) const POD_DISRUPTION_BUDGET: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Min Available"),
        Column::text("Max Unavailable"),
        Column::integer("Allowed Disruptions"),
        Column::AGE,
    ],
    |v| {
        cells![
            v.name(),
            amount(v, "minAvailable"),
            amount(v, "maxUnavailable"),
            v.int(&["status", "disruptionsAllowed"]),
            v.age(),
        ]
    },
);

/// Formats a number or percentage; `N/A` if absent.
fn amount(v: &View<'_>, field: &str) -> String {
    match v.object.at(&["spec", field]) {
        Some(Value::String(text)) => text.to_string(),
        Some(Value::Int(number)) => number.to_string(),
        _ => "N/A".to_owned(),
    }
}
