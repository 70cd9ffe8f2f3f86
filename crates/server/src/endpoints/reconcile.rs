//! Decides what the Endpoints and the EndpointSlice of the `kubernetes` Service should be.

use std::collections::BTreeSet;
use std::net::IpAddr;

use value::{Map, Value};

const SKIP_MIRROR: [&str; 3] = ["metadata", "labels", "endpointslice.kubernetes.io/skip-mirror"];

/// How the port of stored Endpoints is treated. Servers with different ports must not overwrite each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    Keep,
    Reset,
}

/// The Endpoints to write so that they have exactly these addresses; `None` if the stored ones have them.
pub(super) fn endpoints_of(
    stored: Option<&Value>,
    addresses: &BTreeSet<String>,
    port: u16,
    ports: Ports,
) -> Option<Value> {
    let mut wanted = stored.cloned().unwrap_or_else(|| super::object("v1", "Endpoints"));
    // The EndpointSlice is written here, so the mirroring controller must not create one.
    wanted.set_at(&SKIP_MIRROR, "true");
    let own_ports = Value::list([https(port)]);
    let subsets = match wanted.list_at(&["subsets"]) {
        [subset] => {
            let mut subset = subset.clone();
            let listed = subset.list_at(&["addresses"]);
            let known: BTreeSet<&str> = listed.iter().filter_map(|address| address.str_at(&["ip"])).collect();
            if known.len() != listed.len() || !known.iter().copied().eq(addresses.iter().map(String::as_str))
            {
                subset.set_at(&["addresses"], in_subset(addresses));
            }
            if ports == Ports::Reset && subset.at(&["ports"]) != Some(&own_ports) {
                subset.set_at(&["ports"], own_ports);
            }
            subset
        }
        _ => Value::map([("addresses", in_subset(addresses)), ("ports", own_ports)]),
    };
    // A subset without addresses is not valid.
    let subsets = if addresses.is_empty() { Vec::new() } else { vec![subsets] };
    if subsets.is_empty() && wanted.list_at(&["subsets"]).is_empty() {
        wanted.remove_at(&["subsets"]);
    } else {
        wanted.set_at(&["subsets"], Value::List(subsets));
    }
    let is_same = stored.is_some_and(|stored| {
        stored.list_at(&["subsets"]) == wanted.list_at(&["subsets"])
            && stored.at(&SKIP_MIRROR) == wanted.at(&SKIP_MIRROR)
    });
    (!is_same).then_some(wanted)
}

fn in_subset(addresses: &BTreeSet<String>) -> Value {
    Value::list(addresses.iter().map(|ip| Value::map([("ip", ip.as_str())])))
}

/// The addresses of stored Endpoints, with this server's, by `--endpoint-reconciler-type=master-count`: at most `count`, where those
/// that follow this server's in order leave first.
pub(super) fn counted(stored: Option<&Value>, own: &str, count: usize) -> BTreeSet<String> {
    let subsets = stored.map_or(&[][..], |stored| stored.list_at(&["subsets"]));
    let listed = match subsets {
        [subset] => subset.list_at(&["addresses"]),
        _ => &[],
    };
    let mut addresses: BTreeSet<String> =
        listed.iter().filter_map(|address| address.str_at(&["ip"])).map(str::to_owned).collect();
    addresses.insert(own.to_owned());
    while addresses.len() > count.max(1) {
        let next =
            addresses.range::<str, _>((std::ops::Bound::Excluded(own), std::ops::Bound::Unbounded)).next();
        let Some(next) = next.or_else(|| addresses.first()).cloned() else { break };
        addresses.remove(&next);
    }
    addresses
}

/// The EndpointSlice with the addresses and ports of these Endpoints.
pub(super) fn slice_of(endpoints: &Value) -> Value {
    let subset = endpoints.list_at(&["subsets"]).first();
    let listed = |field: &str| subset.map_or(&[][..], |subset| subset.list_at(&[field]));
    let ips: Vec<&str> = listed("addresses").iter().filter_map(|address| address.str_at(&["ip"])).collect();
    let is_ipv6 = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    let all_ipv6 = !ips.is_empty() && ips.iter().all(|ip| is_ipv6(ip));
    let of_type = ips.iter().filter(|ip| is_ipv6(ip) == all_ipv6).map(|ip| {
        let mut endpoint = Value::map([("addresses", Value::list([*ip]))]);
        endpoint.set_at(&["conditions", "ready"], true);
        endpoint
    });
    let mut slice = super::object("discovery.k8s.io/v1", "EndpointSlice");
    slice.set_at(&["metadata", "labels", api::labels::SERVICE_NAME], super::NAME);
    slice.set_at(&["addressType"], if all_ipv6 { "IPv6" } else { "IPv4" });
    slice.set_at(&["endpoints"], Value::List(of_type.collect()));
    slice.set_at(&["ports"], Value::List(listed("ports").to_vec()));
    slice
}

/// The write that gives a stored EndpointSlice the content of `wanted`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SliceAction {
    Keep,
    Create,
    /// The address type cannot be changed.
    Recreate,
    Update(Value),
}

pub(super) fn slice_action(stored: Option<&Value>, wanted: &Value) -> SliceAction {
    let Some(stored) = stored else { return SliceAction::Create };
    if stored.at(&["addressType"]) != wanted.at(&["addressType"]) {
        return SliceAction::Recreate;
    }
    let labels = |slice: &Value| slice.at(&["metadata", "labels"]).and_then(Value::as_map).cloned();
    let is_same =
        ["endpoints", "ports"].iter().all(|field| stored.list_at(&[field]) == wanted.list_at(&[field]))
            && labels(stored) == labels(wanted);
    if is_same {
        return SliceAction::Keep;
    }
    let mut updated = stored.clone();
    for field in ["endpoints", "ports"] {
        updated.set_at(&[field], wanted.at(&[field]).cloned().unwrap_or_default());
    }
    let labels = labels(wanted).unwrap_or_else(Map::new);
    updated.set_at(&["metadata", "labels"], Value::Map(labels));
    SliceAction::Update(updated)
}

pub(crate) fn https(port: u16) -> Value {
    Value::map([
        ("name", Value::from("https")),
        ("port", Value::from(port)),
        ("protocol", Value::from("TCP")),
    ])
}

#[cfg(test)]
mod tests;
