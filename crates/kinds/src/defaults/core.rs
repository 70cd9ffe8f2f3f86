//! Defaults of core kinds other than pods and replication controllers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use value::{Map, Value};

use super::fields::Fill;
use super::pod::storage_source;
use super::quantities::{round_up, round_up_list};

pub fn endpoints(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    for port in object.children("subsets").flat_map(|subset| subset.children("ports")) {
        port.fill_zero("protocol", "TCP");
    }
}

/// For containers, `default` falls back to `max`, and `defaultRequest` to `default`, then `min`.
pub fn limit_range(object: &mut Value) {
    let Some(spec) = object.as_map_mut().and_then(|object| object.child("spec")) else { return };
    for item in spec.children("limits") {
        if item.get("type").and_then(Value::as_str) == Some("Container") {
            fill_from(item, "default", "max");
            fill_from(item, "defaultRequest", "default");
            fill_from(item, "defaultRequest", "min");
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_up_list(item, list);
        }
    }
}

fn fill_from(item: &mut Map, field: &str, from: &str) {
    let Some(source) = item.get(from).and_then(Value::as_map).filter(|map| !map.is_empty()).cloned() else {
        return;
    };
    let target = item.child_or_insert(field);
    for (resource, quantity) in source {
        if !target.contains_key(&resource) {
            target.insert(resource, quantity);
        }
    }
}

pub fn namespace(object: &mut Value) {
    let name = api::meta::name(object).to_owned();
    if !name.is_empty() {
        object.set_at(&["metadata", "labels", api::labels::NAMESPACE_NAME], name);
    }
    object.make_map().child_or_insert("status").fill_zero("phase", "Active");
}

pub fn node(object: &mut Value) {
    if let Some(spec) = object.as_map_mut().and_then(|object| object.child("spec")) {
        pod_ranges(spec);
    }
    let Some(status) = object.as_map_mut().and_then(|object| object.child("status")) else { return };
    if let Some(capacity) = status.get("capacity").filter(|capacity| !capacity.is_null()).cloned() {
        status.fill("allocatable", capacity);
    }
    round_up_list(status, "capacity");
    round_up_list(status, "allocatable");
}

/// Keeps `podCIDR` and the first of `podCIDRs` equal. Older clients set only `podCIDR`, so it wins.
fn pod_ranges(spec: &mut Map) {
    let single = spec.get("podCIDR").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = spec.get("podCIDRs").and_then(Value::as_list).and_then(<[Value]>::first);
    let first = first.and_then(Value::as_str).map(str::to_owned);
    match first {
        Some(first) if single.is_empty() => drop(spec.insert("podCIDR", first)),
        Some(first) if first == single => {}
        None if single.is_empty() => {}
        _ => drop(spec.insert("podCIDRs", Value::list([single]))),
    }
}

pub fn persistent_volume(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    object.child_or_insert("status").fill_zero("phase", "Pending");
    let spec = object.child_or_insert("spec");
    spec.fill_zero("persistentVolumeReclaimPolicy", "Retain");
    spec.fill("volumeMode", "Filesystem");
    volume_spec(spec);
}

/// Defaults of a PersistentVolumeSpec that also apply to the inline spec of a VolumeAttachment.
pub(super) fn volume_spec(spec: &mut Map) {
    round_up_list(spec, "capacity");
    storage_source(spec);
}

pub fn persistent_volume_claim(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let status = object.child_or_insert("status");
    status.fill_zero("phase", "Pending");
    round_up_list(status, "capacity");
    round_up_list(status, "allocatedResources");
    let spec = object.child_or_insert("spec");
    spec.fill("volumeMode", "Filesystem");
    if let Some(resources) = spec.child("resources") {
        round_up(resources);
    }
}

pub fn resource_quota(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    if let Some(spec) = object.child("spec") {
        round_up_list(spec, "hard");
    }
    if let Some(status) = object.child("status") {
        round_up_list(status, "hard");
        round_up_list(status, "used");
    }
}

/// Moves `stringData` into `data`, base64-encoded; `stringData` is never stored.
pub fn secret(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    object.fill_zero("type", "Opaque");
    if let Some(Value::Map(texts)) = object.remove("stringData") {
        let data = object.child_or_insert("data");
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()));
        }
        if data.is_empty() {
            object.remove("data");
        }
    }
}

pub fn service(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    spec.fill_zero("sessionAffinity", "None");
    let text =
        |spec: &Map, field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text(spec, "sessionAffinity").as_str() {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let timeout =
                spec.get("sessionAffinityConfig").and_then(|c| c.at(&["clientIP", "timeoutSeconds"]));
            if timeout.is_none_or(Value::is_null) {
                let timeout = Value::map([("timeoutSeconds", 10_800_i64)]);
                spec.insert("sessionAffinityConfig", Value::map([("clientIP", timeout)]));
            }
        }
        _ => {}
    }
    spec.fill_zero("type", "ClusterIP");
    for port in spec.children("ports") {
        port.fill_zero("protocol", "TCP");
        let number = port.get("port").and_then(Value::as_int).unwrap_or_default();
        port.fill_zero("targetPort", number);
    }
    let kind = text(spec, "type");
    let has_external_ips =
        spec.get("externalIPs").and_then(Value::as_list).is_some_and(|ips| !ips.is_empty());
    if matches!(kind.as_str(), "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && has_external_ips) {
        spec.fill_zero("externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.fill("allocateLoadBalancerNodePorts", true);
        let balancer = object.child("status").and_then(|status| status.child("loadBalancer"));
        for ingress in balancer.into_iter().flat_map(|balancer| balancer.children("ingress")) {
            if ingress.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
                ingress.fill("ipMode", "VIP");
            }
        }
    }
}
