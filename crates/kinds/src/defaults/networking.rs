//! Defaults of the groups `networking.k8s.io` and `discovery.k8s.io`.

use value::Value;

use super::fields::Fill;

pub fn endpoint_slice(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    for port in object.children("ports") {
        port.fill("name", "");
        port.fill("protocol", "TCP");
    }
}

pub fn ingress_class(object: &mut Value) {
    let spec = object.as_map_mut().and_then(|object| object.child("spec"));
    if let Some(parameters) = spec.and_then(|spec| spec.child("parameters")) {
        parameters.fill("scope", "Cluster");
    }
}

/// `policyTypes` includes `Egress` only if the policy has egress rules.
pub fn network_policy(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    let has_egress = spec.get("egress").and_then(Value::as_list).is_some_and(|rules| !rules.is_empty());
    let types = if has_egress { Value::list(["Ingress", "Egress"]) } else { Value::list(["Ingress"]) };
    spec.fill_zero("policyTypes", types);
    for direction in ["ingress", "egress"] {
        for port in spec.children(direction).flat_map(|rule| rule.children("ports")) {
            port.fill("protocol", "TCP");
        }
    }
}
