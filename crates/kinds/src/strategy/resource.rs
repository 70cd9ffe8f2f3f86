//! Strategies of `resource.k8s.io`: fields of disabled features, taint times, and status of deallocated devices.

use std::collections::HashSet;

use api::GroupKind;
use api::validation::fields::{Read, same};
use value::Value;

use super::{StrategyContext, gates::Gate};

const DERIVED: &str = "derivedAttributes";

/// Feature gates of claims that are off in 1.37.
pub(super) const CLAIM_GATES: &[Gate] = &[
    &[
        &["spec", "devices", "requests", "*", "exactly", DERIVED],
        &["spec", "devices", "requests", "*", "firstAvailable", "*", DERIVED],
    ],
    &[&["status", "allocation", "devices", "results", "*", "skipNodeOperations"]],
];

/// Gates of [`CLAIM_GATES`] that apply to claim templates.
pub(super) const TEMPLATE_GATES: &[Gate] = &[&[
    &["spec", "spec", "devices", "requests", "*", "exactly", DERIVED],
    &["spec", "spec", "devices", "requests", "*", "firstAvailable", "*", DERIVED],
]];

/// Feature gates of slices that are off in 1.37.
pub(super) const SLICE_GATES: &[Gate] = &[
    &[&["spec", "devices", "*", "consumesCounters", "*", "compatibilityGroups"]],
    &[&["spec", "devices", "*", "nodeAllocatableResources"]],
    &[
        &["spec", "devices", "*", "attributes", "*", "bools"],
        &["spec", "devices", "*", "attributes", "*", "ints"],
        &["spec", "devices", "*", "attributes", "*", "strings"],
        &["spec", "devices", "*", "attributes", "*", "versions"],
    ],
    &[&["spec", "partitionTypeAttribute"]],
    &[&["spec", "skipNodeOperations"]],
];

/// Sets the time of a taint without one to now.
pub(super) fn create_taint_rule(rule: &mut Value, context: &StrategyContext) {
    if let Some(taint) = rule.at_mut(&["spec", "taint"]) {
        fill_time(taint, context);
    }
}

/// Sets the time of taints without one to now.
pub(super) fn create_slice(slice: &mut Value, context: &StrategyContext) {
    let devices = slice.at_mut(&["spec", "devices"]).and_then(Value::as_list_mut);
    for device in devices.into_iter().flatten() {
        for taint in device.get_mut("taints").and_then(Value::as_list_mut).into_iter().flatten() {
            fill_time(taint, context);
        }
    }
}

pub(super) fn update_slice(new: &mut Value, _: &Value, context: &StrategyContext) {
    create_slice(new, context);
}

fn fill_time(taint: &mut Value, context: &StrategyContext) {
    if taint.part("timeAdded").is_none() {
        taint.set_at(&["timeAdded"], context.time());
    }
}

/// Changing a taint's effect but not its time sets the time to now.
pub(super) fn update_taint_rule(new: &mut Value, old: &Value, context: &StrategyContext) {
    create_taint_rule(new, context);
    let (taint, former) = (new.at(&["spec", "taint"]), old.at(&["spec", "taint"]));
    if taint.text("effect") != former.text("effect")
        && same(taint.part("timeAdded"), former.part("timeAdded"))
    {
        new.set_at(&["spec", "taint", "timeAdded"], context.time());
    }
}

/// Removes the status of devices that are no longer allocated.
pub(super) fn update_claim_status(new: &mut Value, old: &Value, _: &StrategyContext) {
    let allocated = |claim: &Value| -> HashSet<[String; 4]> {
        claim.list_at(&["status", "allocation", "devices", "results"]).iter().map(device_id).collect()
    };
    let still = allocated(new);
    let before = allocated(old);
    let gone: HashSet<&[String; 4]> = before.difference(&still).collect();
    let Some(devices) = new.at_mut(&["status", "devices"]).and_then(Value::as_list_mut) else { return };
    devices.retain(|device| !gone.contains(&device_id(device)));
    if devices.is_empty() {
        new.remove_at(&["status", "devices"]);
    }
}

fn device_id(device: &Value) -> [String; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| device.text(field).to_owned())
}

/// Admin access to devices, both requested and allocated.
const ADMIN_ACCESS: Gate = &[
    &["spec", "devices", "requests", "*", "exactly", "adminAccess"],
    &["spec", "spec", "devices", "requests", "*", "exactly", "adminAccess"],
    &["status", "allocation", "devices", "results", "*", "adminAccess"],
];

/// Applies a disabled `DRAAdminAccess` gate: drops the fields unless the stored object uses them.
pub fn drop_admin_access(kind: &GroupKind, object: &mut Value, old: Option<&Value>) {
    if kind.group == "resource.k8s.io" {
        super::gates::drop_disabled(&[ADMIN_ACCESS], object, old);
    }
}
