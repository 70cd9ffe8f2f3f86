//! Columns of the `resource.k8s.io` group.

use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

pub(crate) const DEVICE_CLASS: TableDef =
    TableDef::new(&[Column::NAME, Column::AGE], |v| cells![v.name(), v.age()]);

pub(crate) const RESOURCE_CLAIM: TableDef = TableDef::new(
    // kube-apiserver does not have the last column.
    &[Column::NAME, Column::text("State"), Column::AGE, Column::text("Admin Access").wide()],
    |v| cells![v.name(), claim_state(v), v.age(), admin_access(v)],
);

pub(crate) const RESOURCE_CLAIM_TEMPLATE: TableDef =
    TableDef::new(&[Column::NAME, Column::AGE], |v| cells![v.name(), v.age()]);

pub(crate) const RESOURCE_SLICE: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Node"), Column::text("Driver"), Column::text("Pool"), Column::AGE],
    |v| {
        let spec = |field| v.text(&["spec", field]);
        cells![v.name(), spec("nodeName"), spec("driver"), v.text(&["spec", "pool", "name"]), v.age()]
    },
);

pub(crate) const DEVICE_TAINT_RULE: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Key"),
        Column::text("Value"),
        Column::text("Effect"),
        Column::text("TimeAdded"),
        Column::AGE,
    ],
    |v| {
        let taint = |field| v.text(&["spec", "taint", field]);
        let added = v.get_text(&["spec", "taint", "timeAdded"]);
        let added = added.map(|_| v.since(&["spec", "taint", "timeAdded"])).unwrap_or_default();
        cells![v.name(), taint("key"), taint("value"), taint("effect"), added, v.age()]
    },
);

/// Returns `true` if a claim requests or was allocated admin access to devices.
fn admin_access(v: &View<'_>) -> &'static str {
    let asks = api::admin_access::first_asking(v.list(&["spec", "devices", "requests"])).is_some();
    let has = |result: &Value| result.at(&["adminAccess"]) == Some(&Value::Bool(true));
    let results = v.list(&["status", "allocation", "devices", "results"]);
    if asks || results.iter().any(has) { "true" } else { "false" }
}

fn claim_state(v: &View<'_>) -> String {
    let allocated = v.object.at(&["status", "allocation"]).is_some_and(|a| !a.is_null());
    let mut states = Vec::new();
    if v.is_deleting() {
        states.push("deleted");
    }
    if allocated {
        states.push("allocated");
        if !v.list(&["status", "reservedFor"]).is_empty() {
            states.push("reserved");
        }
    } else if !v.is_deleting() {
        states.push("pending");
    }
    states.join(",")
}
