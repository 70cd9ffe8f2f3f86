//! Defaults of RBAC, flow control, scheduling, storage, resource claims, token requests and pod certificate requests.

use api::groups::RBAC;
use value::{Map, Value};

use super::core::volume_spec;
use super::fields::Fill;

const HOUR: i64 = 3600;

/// Defaults of ClusterRoleBinding and RoleBinding.
pub fn role_binding(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    object.child_or_insert("roleRef").fill_zero("apiGroup", RBAC);
    for subject in object.children("subjects") {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            subject.fill_zero("apiGroup", RBAC);
        }
    }
}

pub fn flow_schema(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    object.child_or_insert("spec").fill_zero("matchingPrecedence", 1000_i64);
}

pub fn priority_level(object: &mut Value) {
    let Some(spec) = object.as_map_mut().and_then(|object| object.child("spec")) else { return };
    if let Some(limited) = spec.child("limited") {
        limited.fill("nominalConcurrencyShares", 30_i64);
        limited.fill("lendablePercent", 0_i64);
        let response = limited.child("limitResponse");
        if let Some(queuing) = response.and_then(|response| response.child("queuing")) {
            queuing.fill_zero("handSize", 8_i64);
            queuing.fill_zero("queues", 64_i64);
            queuing.fill_zero("queueLengthLimit", 50_i64);
        }
    }
    if let Some(exempt) = spec.child("exempt") {
        exempt.fill("nominalConcurrencyShares", 0_i64);
        exempt.fill("lendablePercent", 0_i64);
    }
}

pub fn priority_class(object: &mut Value) {
    if let Some(object) = object.as_map_mut() {
        object.fill("preemptionPolicy", "PreemptLowerPriority");
    }
}

/// Defaults of PodGroup and CompositePodGroup.
pub fn pod_group(object: &mut Value) {
    let Some(spec) = object.as_map_mut().map(|object| object.child_or_insert("spec")) else { return };
    spec.fill("disruptionMode", Value::map([("single", Value::Map(Map::new()))]));
}

pub fn resource_pool_status_request(object: &mut Value) {
    if object.at(&["spec", "limit"]).is_none() {
        object.set_at(&["spec", "limit"], 100);
    }
}

pub fn storage_class(object: &mut Value) {
    if let Some(object) = object.as_map_mut() {
        object.fill("reclaimPolicy", "Delete");
        object.fill("volumeBindingMode", "Immediate");
    }
}

pub fn csi_driver(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    spec.fill("attachRequired", true);
    for field in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
        "preventPodSchedulingIfMissing",
    ] {
        spec.fill(field, false);
    }
    spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.fill_zero("volumeLifecycleModes", Value::list(["Persistent"]));
}

pub fn volume_attachment(object: &mut Value) {
    let source =
        object.as_map_mut().and_then(|object| object.child("spec")).and_then(|spec| spec.child("source"));
    if let Some(spec) = source.and_then(|source| source.child("inlineVolumeSpec")) {
        volume_spec(spec);
    }
}

pub fn resource_claim(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    if let Some(spec) = object.child("spec") {
        claim_spec(spec);
    }
    let allocation = object.child("status").and_then(|status| status.child("allocation"));
    let results = allocation.and_then(|allocation| allocation.child("devices"));
    for result in results.into_iter().flat_map(|devices| devices.children("results")) {
        fill_operators(result);
    }
}

pub fn resource_claim_template(object: &mut Value) {
    let spec = object.as_map_mut().and_then(|object| object.child("spec"));
    if let Some(spec) = spec.and_then(|spec| spec.child("spec")) {
        claim_spec(spec);
    }
}

fn claim_spec(spec: &mut Map) {
    let Some(devices) = spec.child("devices") else { return };
    for request in devices.children("requests") {
        if let Some(exactly) = request.child("exactly") {
            fill_request(exactly);
        }
        request.children("firstAvailable").for_each(fill_request);
    }
}

fn fill_request(request: &mut Map) {
    // An empty string comes from a conversion and must stay so that validation rejects it.
    request.fill("allocationMode", "ExactCount");
    if request.get("allocationMode").and_then(Value::as_str) == Some("ExactCount") {
        request.fill_zero("count", 1_i64);
    }
    fill_operators(request);
}

fn fill_operators(holder: &mut Map) {
    for toleration in holder.children("tolerations") {
        toleration.fill_zero("operator", "Equal");
    }
}

pub fn token_request(object: &mut Value) {
    if let Some(object) = object.as_map_mut() {
        object.child_or_insert("spec").fill("expirationSeconds", HOUR);
    }
}

pub fn pod_certificate_request(object: &mut Value) {
    if let Some(object) = object.as_map_mut() {
        object.child_or_insert("spec").fill("maxExpirationSeconds", 24 * HOUR);
    }
}
