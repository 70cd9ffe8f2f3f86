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

pub(crate) const RESOURCE_POOL_STATUS_REQUEST: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Driver"),
        Column::text("Total"),
        Column::text("Available"),
        Column::text("Allocated"),
        Column::text("Unavailable"),
        Column::text("Errors"),
        Column::integer("Pools"),
        Column::text("Status"),
        Column::text("Completed"),
    ],
    |v| {
        let mut cells = cells![v.name(), v.text(&["spec", "driver"])];
        cells.extend(pool_counts(v).map(Value::from));
        cells.extend(cells![
            v.int(&["status", "poolCount"]),
            pool_request_state(v),
            pool_request_completed(v)
        ]);
        cells
    },
);

/// The first condition that ends a request.
fn pool_request_end<'a>(v: &View<'a>) -> Option<&'a Value> {
    v.list(&["status", "conditions"]).iter().find(|condition| {
        condition.str_at(&["status"]) == Some("True")
            && matches!(condition.str_at(&["type"]), Some("Complete" | "Failed"))
    })
}

/// Devices in total, available, allocated and unavailable, and pools with errors. Unknown until the request has a status without failure.
fn pool_counts(v: &View<'_>) -> [String; 5] {
    let failed = pool_request_end(v).is_some_and(|end| end.str_at(&["type"]) == Some("Failed"));
    if failed || v.object.at(&["status"]).is_none() {
        return std::array::from_fn(|_| "-".to_owned());
    }
    let pools = v.list(&["status", "pools"]);
    // Go adds the numbers with 32 bits.
    let sum = |field: &str| {
        let numbers = pools.iter().filter_map(|pool| i32::try_from(pool.int_at(&[field])?).ok());
        numbers.fold(0, i32::wrapping_add).to_string()
    };
    let errors = pools.iter().filter(|pool| pool.str_at(&["validationError"]).is_some()).count();
    let devices = ["totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices"].map(sum);
    let [total, available, allocated, unavailable] = devices;
    [total, available, allocated, unavailable, errors.to_string()]
}

fn pool_request_state(v: &View<'_>) -> String {
    let end = pool_request_end(v).and_then(|end| end.str_at(&["type"]));
    let (shown, all) = (v.count(&["status", "pools"]), v.int(&["status", "poolCount"]));
    match end {
        Some("Complete") if all > shown => format!("Complete ({shown}/{all} pools)"),
        other => other.unwrap_or("Pending").to_owned(),
    }
}

fn pool_request_completed(v: &View<'_>) -> String {
    let complete = pool_request_end(v).filter(|end| end.str_at(&["type"]) == Some("Complete"));
    complete.map_or_else(
        || "<none>".to_owned(),
        |end| api::time::human_age(end.str_at(&["lastTransitionTime"]), v.now),
    )
}
