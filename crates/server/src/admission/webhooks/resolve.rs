//! Resolves a Service to an address to dial: one of its ready endpoints, or its external name.

use std::net::IpAddr;

use api::field::quote;
use api::labels::SERVICE_NAME;
use api::selector::FactsRef;
use catalog::encode;
use catalog::keys;
use outbound::is_routable;
use storage::Store;
use value::Value;

/// `IP:PORT` of a ready endpoint for a port of the Service, preferably of the Service's first address family. For the type
/// `ExternalName` it is `NAME:PORT`, and the caller must check the addresses that the name resolves to ([`outbound::Reach`]).
pub(crate) fn endpoint(store: &Store, namespace: &str, name: &str, port: u16) -> Result<String, String> {
    let service = store
        .get(&keys::namespaced(keys::SERVICES, namespace, name))
        .and_then(|entry| encode::tree(&entry).ok())
        .ok_or_else(|| format!("service {} not found", quote(name)))?;
    let kind = service.str_at(&["spec", "type"]).unwrap_or("ClusterIP");
    match kind {
        "ClusterIP" | "NodePort" | "LoadBalancer" => {}
        "ExternalName" => {
            let host = service.str_at(&["spec", "externalName"]).unwrap_or_default();
            if host.is_empty() {
                return Err(format!("service {} has no external name", quote(name)));
            }
            return Ok(format!("{host}:{port}"));
        }
        _ => return Err(format!("unsupported service type {}", quote(kind))),
    }
    let found = service
        .list_at(&["spec", "ports"])
        .iter()
        .find(|each| each.int_at(&["port"]) == Some(i64::from(port)))
        .ok_or_else(|| format!("no service port {port} found for service {}", quote(name)))?;
    let port_name = found.str_at(&["name"]).unwrap_or_default();
    let family = service.list_at(&["spec", "ipFamilies"]).first().and_then(Value::as_str).unwrap_or_default();
    let scope = keys::in_namespace(keys::ENDPOINT_SLICES, namespace);
    let mut slices: Vec<Value> = store
        .snapshot(&scope)
        .entries
        .iter()
        .filter(|entry| FactsRef::new(&entry.facts).label(SERVICE_NAME) == Some(name))
        .filter_map(|entry| encode::tree(entry).ok())
        .filter(has_ip_addresses)
        .collect();
    // Calls spread over all slices by a random rotation; those of the preferred family come first.
    rotate(&mut slices);
    slices.sort_by_key(|slice| slice.str_at(&["addressType"]) != Some(family));
    slices
        .iter()
        .find_map(|slice| ready_endpoint(slice, port_name))
        .ok_or_else(|| format!("no endpoints available for service {}", quote(name)))
}

/// Whether a slice has IP addresses. Webhooks are never called at EndpointSlices of type FQDN, because validation cannot check their names.
pub(crate) fn has_ip_addresses(slice: &Value) -> bool {
    matches!(slice.str_at(&["addressType"]), Some("IPv4" | "IPv6"))
}

fn ready_endpoint(slice: &Value, port_name: &str) -> Option<String> {
    let named = |port: &&Value| port.str_at(&["name"]) == Some(port_name);
    let ports = slice.list_at(&["ports"]).iter().filter(named).filter_map(|port| port.int_at(&["port"]));
    for port in ports {
        let mut endpoints: Vec<&Value> = slice.list_at(&["endpoints"]).iter().collect();
        rotate(&mut endpoints);
        let ready = endpoints
            .iter()
            .filter(|endpoint| endpoint.bool_at(&["conditions", "ready"]) != Some(false))
            .filter_map(|endpoint| endpoint.list_at(&["addresses"]).first()?.as_str()?.parse::<IpAddr>().ok())
            .find(|address| is_routable(*address));
        if let Some(address) = ready {
            let address = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
            return Some(format!("{address}:{port}"));
        }
    }
    None
}

/// Rotates a list to start at a random item.
fn rotate<T>(items: &mut [T]) {
    if items.len() > 1 {
        let by = runtime::random::number() % items.len();
        items.rotate_left(by);
    }
}

#[cfg(test)]
mod tests;
