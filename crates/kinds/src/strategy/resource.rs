//! `resource.k8s.io`: the fields of features that are off, and devices that were deallocated.

use std::collections::HashSet;

use api::GroupKind;
use api::validation::fields::{Read, same};
use value::Value;

use super::{Context, gates::Gate};

const DERIVED: &str = "derivedAttributes";

/// Features of claims that are off in 1.37.
pub(super) const CLAIM_GATES: &[Gate] = &[
    &[
        &["spec", "devices", "requests", "*", "exactly", DERIVED],
        &["spec", "devices", "requests", "*", "firstAvailable", "*", DERIVED],
    ],
    &[&["status", "allocation", "devices", "results", "*", "skipNodeOperations"]],
];

/// The same features in the claims of templates.
pub(super) const TEMPLATE_GATES: &[Gate] = &[&[
    &["spec", "spec", "devices", "requests", "*", "exactly", DERIVED],
    &["spec", "spec", "devices", "requests", "*", "firstAvailable", "*", DERIVED],
]];

/// Features of slices that are off in 1.37.
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

/// A taint without a time was added now.
pub(super) fn create_taint_rule(rule: &mut Value, context: &Context) {
    if let Some(taint) = rule.at_mut(&["spec", "taint"]) {
        fill_time(taint, context);
    }
}

/// A taint without a time was added now.
pub(super) fn create_slice(slice: &mut Value, context: &Context) {
    let devices = slice.at_mut(&["spec", "devices"]).and_then(Value::as_list_mut);
    for device in devices.into_iter().flatten() {
        for taint in device.get_mut("taints").and_then(Value::as_list_mut).into_iter().flatten() {
            fill_time(taint, context);
        }
    }
}

/// As for a new slice.
pub(super) fn update_slice(new: &mut Value, _: &Value, context: &Context) {
    create_slice(new, context);
}

fn fill_time(taint: &mut Value, context: &Context) {
    if taint.part("timeAdded").is_none() {
        taint.set_at(&["timeAdded"], context.time());
    }
}

/// Changing a taint's effect without its time starts the time again.
pub(super) fn update_taint_rule(new: &mut Value, old: &Value, context: &Context) {
    create_taint_rule(new, context);
    let (taint, former) = (new.at(&["spec", "taint"]), old.at(&["spec", "taint"]));
    if taint.text("effect") != former.text("effect")
        && same(taint.part("timeAdded"), former.part("timeAdded"))
    {
        new.set_at(&["spec", "taint", "timeAdded"], context.time());
    }
}

/// The status of a device goes with its allocation.
pub(super) fn update_claim_status(new: &mut Value, old: &Value, _: &Context) {
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

/// Admin access to devices, asked for and granted.
const ADMIN_ACCESS: Gate = &[
    &["spec", "devices", "requests", "*", "exactly", "adminAccess"],
    &["spec", "spec", "devices", "requests", "*", "exactly", "adminAccess"],
    &["status", "allocation", "devices", "results", "*", "adminAccess"],
];

/// What `DRAAdminAccess` off does to an object: new ones lose the field, those that have it keep it.
pub fn drop_admin_access(kind: &GroupKind, object: &mut Value, old: Option<&Value>) {
    if kind.group == "resource.k8s.io" {
        super::gates::drop_disabled(&[ADMIN_ACCESS], object, old);
    }
}
