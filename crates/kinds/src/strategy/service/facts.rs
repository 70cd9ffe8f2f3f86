//! Accessors for the type, addresses and ports of a service.

use std::net::IpAddr;

use api::validation::fields::Read;
use value::Value;

use super::Family;

/// Value of `clusterIP` in a headless service.
pub(super) const NONE: &str = "None";

pub(super) fn family_of(address: IpAddr) -> Family {
    match address.to_canonical() {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

pub(super) fn families_of(service: &Value) -> Vec<Family> {
    service.part("spec").texts("ipFamilies").filter_map(Family::of).collect()
}

pub(super) fn set_families(service: &mut Value, families: &[Family]) {
    service.set_at(&["spec", "ipFamilies"], Value::list(families.iter().map(|family| family.as_str())));
}

pub(super) fn set_cluster_ips(service: &mut Value, addresses: &[String]) {
    if let Some(first) = addresses.first() {
        service.set_at(&["spec", "clusterIP"], first.as_str());
    }
    service.set_at(&["spec", "clusterIPs"], Value::list(addresses.iter().map(String::as_str)));
}

pub(super) fn set_node_ports(service: &mut Value, given: &[(usize, i64)]) {
    let Some(ports) = service.at_mut(&["spec", "ports"]).and_then(Value::as_list_mut) else { return };
    for (i, node_port) in given {
        if let Some(port) = ports.get_mut(*i) {
            port.set_at(&["nodePort"], *node_port);
        }
    }
}

pub(super) fn first_ip(service: &Value) -> &str {
    service.list_at(&["spec", "clusterIPs"]).first().and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn service_type(service: &Value) -> &str {
    service.str_at(&["spec", "type"]).unwrap_or_default()
}

pub(super) fn is_external_name(service: &Value) -> bool {
    service_type(service) == "ExternalName"
}

pub(super) fn is_load_balancer(service: &Value) -> bool {
    service_type(service) == "LoadBalancer"
}

pub(super) fn has_selector(service: &Value) -> bool {
    service.part("spec").map_of("selector").is_some_and(|selector| !selector.is_empty())
}

pub(super) fn has_node_ports(service: &Value) -> bool {
    matches!(service_type(service), "NodePort" | "LoadBalancer")
}

pub(super) fn allocates_node_ports(service: &Value) -> bool {
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => service.part("spec").flag("allocateLoadBalancerNodePorts"),
        _ => false,
    }
}

pub(super) fn needs_node_ports(service: &Value) -> bool {
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => service.part("spec").flag_if_set("allocateLoadBalancerNodePorts").unwrap_or(true),
        _ => false,
    }
}

pub(super) fn needs_health_check(service: &Value) -> bool {
    is_load_balancer(service) && service.part("spec").text("externalTrafficPolicy") == "Local"
}

pub(super) fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.list_at(&["spec", "ports"]).iter();
    ports.map(|port| port.number("nodePort")).filter(|port| *port != 0).collect()
}
