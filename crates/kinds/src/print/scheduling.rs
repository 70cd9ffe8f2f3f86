//! Columns of the `scheduling.k8s.io` group.

use super::view::{View, cells, find_condition};
use super::{Column, TableDef};

pub(crate) const PRIORITY_CLASS: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::integer("Value"),
        Column::boolean("Global-Default"),
        Column::AGE,
        Column::text("PreemptionPolicy"),
    ],
    |v| {
        cells![
            v.name(),
            v.int(&["value"]),
            v.bool(&["globalDefault"]).unwrap_or(false),
            v.age(),
            v.text(&["preemptionPolicy"]),
        ]
    },
);

pub(crate) const WORKLOAD: TableDef =
    TableDef::new(&[Column::NAME, Column::AGE], |v| cells![v.name(), v.age()]);

pub(crate) const POD_GROUP: TableDef = TableDef::new(
    &[Column::NAME, Column::text("Policy"), Column::text("Workload"), Column::text("Status"), Column::AGE],
    |v| cells![v.name(), policy(v), workload(v), pod_group_status(v), v.age()],
);

pub(crate) const COMPOSITE_POD_GROUP: TableDef =
    TableDef::new(&[Column::NAME, Column::text("Policy"), Column::text("Workload"), Column::AGE], |v| {
        cells![v.name(), policy(v), workload(v), v.age()]
    });

fn policy(v: &View<'_>) -> &'static str {
    let gang = v.object.at(&["spec", "schedulingPolicy", "gang"]).filter(|gang| !gang.is_null());
    if gang.is_some() { "Gang" } else { "Basic" }
}

fn workload<'a>(v: &View<'a>) -> &'a str {
    match v.object.at(&["spec", "workloadRef"]).filter(|reference| !reference.is_null()) {
        None => "<none>",
        Some(reference) => reference.str_at(&["workloadName"]).unwrap_or_default(),
    }
}

/// The reason of a disruption, or how far scheduling is.
fn pod_group_status<'a>(v: &View<'a>) -> &'a str {
    let conditions = v.list(&["status", "conditions"]);
    if let Some(disruption) = find_condition(conditions, "DisruptionTarget") {
        return disruption.str_at(&["reason"]).unwrap_or_default();
    }
    match find_condition(conditions, "PodGroupInitiallyScheduled") {
        None => "Pending",
        Some(scheduled) if scheduled.str_at(&["status"]) == Some("True") => "Scheduled",
        Some(_) => "Unschedulable",
    }
}
