//! Computes the quota usage of a ResourceClaim, and of the claims that were created for the extended resources of a pod.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use api::meta;
use api::pod_resources::{Amounts, add, raise};
use value::{Str, Value, format_smolstr};

use super::usage::{IMPLICIT_DEVICE_CLASS, PER_DEVICE_CLASS, UsageContext, count_of_one, number, pod};
use crate::ClusterView;

/// Devices counted for a claim for all devices.
const MAX_DEVICES: i64 = 32;

pub(super) fn resource_claim(claim: &Value, context: &UsageContext<'_>) -> Amounts {
    let mut used = Amounts::from([(Str::new_static("count/resourceclaims.resource.k8s.io"), count_of_one())]);
    let devices = |request: &Value| match request.str_at(&["allocationMode"]) {
        Some("All") => MAX_DEVICES,
        Some("ExactCount") => request.int_at(&["count"]).unwrap_or(0),
        _ => 0,
    };
    let class = |request: &Value| {
        format_smolstr!("{}{PER_DEVICE_CLASS}", request.str_at(&["deviceClassName"]).unwrap_or_default())
    };
    for request in claim.list_at(&["spec", "devices", "requests"]) {
        let alternatives = request.list_at(&["firstAvailable"]);
        let mut worst = Amounts::new();
        if !alternatives.is_empty() {
            for alternative in alternatives {
                let wanted = devices(alternative);
                if wanted > 0 {
                    raise(&mut worst, &Amounts::from([(class(alternative), number(wanted))]));
                }
            }
        } else if let Some(exactly) = request.get("exactly") {
            worst.insert(class(exactly), number(devices(exactly)));
        }
        add(&mut used, &worst);
    }
    add_extended(&mut used, claim, context);
    used
}

/// The extended resource name of a device class.
pub(super) fn extended_resource(cluster: &dyn ClusterView, class: &str) -> Option<Str> {
    let class = cluster.object("resource.k8s.io", "deviceclasses", "", class)?;
    class.str_at(&["spec", "extendedResourceName"]).filter(|name| !name.is_empty()).map(Str::from)
}

/// Charges devices also as extended resources, except those that the claim's pod is already charged for.
fn add_extended(used: &mut Amounts, claim: &Value, context: &UsageContext<'_>) {
    let mut extended = Amounts::new();
    for (name, amount) in used.iter() {
        let Some(class) = name.strip_suffix(PER_DEVICE_CLASS).filter(|class| !class.is_empty()) else {
            continue;
        };
        extended.insert(format_smolstr!("{IMPLICIT_DEVICE_CLASS}{class}"), amount.clone());
        if let Some(resource) = extended_resource(context.cluster, class) {
            extended.insert(format_smolstr!("requests.{resource}"), amount.clone());
        }
    }
    if extended.is_empty() {
        return;
    }
    let charged = of_extended_pod(claim, context).unwrap_or_default();
    for (name, amount) in extended {
        let rest = match charged.get(&name) {
            Some(already) => amount.sub(already),
            None => amount,
        };
        if rest.sign() > 0 {
            used.insert(name, rest);
        }
    }
}

/// The oldest extended resource claim of each pod, by the pod's UID.
pub(super) struct OldestClaims(HashMap<Str, ClaimAge>);

/// Orders claims by age: the creation time, then the name.
type ClaimAge = (Str, Str);

impl OldestClaims {
    fn of(context: &UsageContext<'_>) -> Self {
        let mut oldest = HashMap::new();
        let claims = context.cluster.list("resource.k8s.io", "resourceclaims", context.namespace);
        for claim in claims.iter().filter(|claim| is_extended_claim(claim)) {
            let age = age(claim);
            for owner in meta::owner_references(claim).filter(|owner| owner.controller) {
                match oldest.entry(owner.uid) {
                    Entry::Vacant(entry) => drop(entry.insert(age.clone())),
                    Entry::Occupied(mut entry) if age < *entry.get() => drop(entry.insert(age.clone())),
                    Entry::Occupied(_) => {}
                }
            }
        }
        OldestClaims(oldest)
    }
}

fn age(claim: &Value) -> ClaimAge {
    (meta::text(claim, "creationTimestamp").into(), meta::name(claim).into())
}

/// Whether a claim was created for the extended resources of a pod.
fn is_extended_claim(claim: &Value) -> bool {
    claim.str_at(&["metadata", "annotations", api::labels::EXTENDED_RESOURCE_CLAIM]) == Some("true")
}

/// The usage of the pod for which an extended resource claim was created, if `claim` is such a claim.
fn of_extended_pod(claim: &Value, context: &UsageContext<'_>) -> Option<Amounts> {
    if !is_extended_claim(claim) {
        return None;
    }
    let owner = meta::owner_references(claim).find(|owner| owner.controller)?;
    if owner.kind != "Pod" || owner.api_version != "v1" {
        return None;
    }
    let pod_object = context.cluster.object("", "pods", context.namespace, &owner.name)?;
    if meta::uid(&pod_object) != owner.uid {
        return None;
    }
    match pod_object.at(&["status", "extendedResourceClaimStatus"]) {
        Some(status) if status.str_at(&["resourceClaimName"]) != Some(meta::name(claim)) => return None,
        Some(_) => {}
        // The pod does not name its claim yet: the oldest one counts.
        None => {
            let oldest = context.oldest_claims.get_or_init(|| OldestClaims::of(context));
            if oldest.0.get(&owner.uid).is_some_and(|oldest| *oldest < age(claim)) {
                return None;
            }
        }
    }
    Some(pod(&pod_object, context.now))
}
