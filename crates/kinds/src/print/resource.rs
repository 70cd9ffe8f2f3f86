//! `resource.k8s.io`.

use value::Value;

use super::view::{View, cells, count_of, find_condition};
use super::{Column, TableDef};

pub(super) const TABLES: &[TableDef] = &[
    TableDef::new("DeviceClass", &[Column::NAME, Column::AGE], |v| cells![v.name(), v.age()]),
    TableDef::new(
        "ResourceClaim",
        // Kubernetes does not have the last one.
        &[Column::NAME, Column::text("State"), Column::AGE, Column::text("Admin Access").wide()],
        |v| cells![v.name(), claim_state(v), v.age(), admin_access(v)],
    ),
    TableDef::new("ResourceClaimTemplate", &[Column::NAME, Column::AGE], |v| cells![v.name(), v.age()]),
    TableDef::new(
        "ResourceSlice",
        &[Column::NAME, Column::text("Node"), Column::text("Driver"), Column::text("Pool"), Column::AGE],
        |v| {
            let spec = |field| v.text(&["spec", field]);
            cells![v.name(), spec("nodeName"), spec("driver"), v.text(&["spec", "pool", "name"]), v.age()]
        },
    ),
    TableDef::new(
        "DeviceTaintRule",
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
    ),
    TableDef::new(
        "ResourcePoolStatusRequest",
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
        pool_status_request,
    ),
];

/// Whether a claim asks for admin access to devices, or has it.
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

fn pool_status_request(v: &View<'_>) -> Vec<Value> {
    let conditions = v.list(&["status", "conditions"]);
    let is = |kind: &str| v.condition(kind) == Some("True");
    let pools = v.list(&["status", "pools"]);
    let count = v.int(&["status", "poolCount"]);
    let observed = v.object.get("status").and_then(Value::as_map).is_some();
    let failed = is("Failed") && !is("Complete");
    let (status, completed) = if is("Complete") {
        let status = if count > count_of(pools.len()) {
            format!("Complete ({}/{count} pools)", pools.len())
        } else {
            "Complete".to_owned()
        };
        let when = find_condition(conditions, "Complete").and_then(|c| c.str_at(&["lastTransitionTime"]));
        (status, api::time::human_age(when, v.now))
    } else {
        (if failed { "Failed" } else { "Pending" }.to_owned(), "<none>".to_owned())
    };
    let sum = |field: &str| {
        if !observed || failed {
            return "-".to_owned();
        }
        pools.iter().filter_map(|pool| pool.int_at(&[field])).sum::<i64>().to_string()
    };
    let errors = pools.iter().filter(|pool| pool.get("validationError").is_some()).count();
    cells![
        v.name(),
        v.text(&["spec", "driver"]),
        sum("totalDevices"),
        sum("availableDevices"),
        sum("allocatedDevices"),
        sum("unavailableDevices"),
        if !observed || failed { "-".to_owned() } else { errors.to_string() },
        count,
        status,
        completed,
    ]
}
