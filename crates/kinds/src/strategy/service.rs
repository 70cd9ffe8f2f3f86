//! Strategy of Service: allocation of cluster IPs and node ports.
//!
//! [`begin_create`] and [`begin_update`] run before the object is validated. They decide what must be allocated and
//! released, call an injected [`Allocator`], and fill in the results. The caller must release [`ServiceAllocation::to_revert`]
//! if the write fails and [`ServiceAllocation::to_release`] if it succeeds.

use std::collections::HashSet;

mod addresses;
mod facts;
mod ports;

use std::net::IpAddr;

use api::names::parse_ip_sloppy;
use api::validation::fields::{Read, same};
use api::validation::repeated::last_by;
use api::{FieldErrors, GroupKind, Status};
use value::Value;

use self::addresses::{allocate_cluster_ips, init_families, update_cluster_ips};
use self::facts::{
    NONE, family_of, first_ip, has_node_ports, has_selector, is_external_name, is_load_balancer,
    needs_health_check, needs_node_ports, node_ports, set_node_ports,
};
use self::ports::{allocate_health_check_port, init_node_ports, update_node_ports};
use super::StrategyContext;
use crate::validation::service::is_external;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    #[default]
    V4,
    V6,
}

impl Family {
    /// Returns the value used in `spec.ipFamilies`.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }

    fn of(text: &str) -> Option<Self> {
        match text {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        }
    }
}

/// Reason why an address could not be allocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No free address is left.
    #[error("range is full")]
    Full,
    #[error("provided IP is already allocated")]
    Allocated,
    /// None of the server's ranges contains the address.
    #[error("the provided network does not match the current range")]
    OtherNetwork,
    /// None of the server's ranges contains the address, in kube-apiserver's wording for a dry run.
    #[error("the provided IP ({0}) is not in the valid range. The range of valid IPs is {1}")]
    NotInRange(IpAddr, String),
    /// No range of the family can be used now.
    #[error("allocator not ready")]
    NotReady,
    /// The allocator failed, for example its storage.
    #[error("{0}")]
    Other(String),
}

/// Reason why a node port could not be allocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// No free port is left.
    #[error("range is full")]
    Full,
    #[error("provided port is already allocated")]
    Allocated,
    /// The port is outside the server's range, for example `30000-32767`.
    #[error("provided port is not in the valid range. The range of valid ports is {0}")]
    NotInRange(String),
    /// The allocator failed, for example its storage.
    #[error("{0}")]
    Other(String),
}

/// Allocates addresses and ports. A dry run uses an implementation that records nothing.
pub trait Allocator {
    /// The families of which the server has a range; the first is the default.
    fn families(&self) -> &[Family];
    /// Family of services that name none.
    fn default_family(&self) -> Family {
        self.families().first().copied().unwrap_or(Family::V4)
    }
    /// Returns true if the server has a range of this family.
    fn has(&self, family: Family) -> bool {
        self.families().contains(&family)
    }
    fn allocate(&mut self, family: Family, address: IpAddr) -> Result<(), AddressError>;
    /// Allocates any free address.
    fn allocate_next(&mut self, family: Family) -> Result<IpAddr, AddressError>;
    fn allocate_port(&mut self, port: i64) -> Result<(), PortError>;
    /// Allocates any free port.
    fn allocate_next_port(&mut self) -> Result<i64, PortError>;
    fn release(&mut self, family: Family, address: IpAddr);
    fn release_port(&mut self, port: i64);
}

/// Addresses and ports that are allocated, or to be released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressesAndPorts {
    pub addresses: Vec<(Family, IpAddr)>,
    pub ports: Vec<i64>,
}

impl AddressesAndPorts {
    pub fn release(&self, allocator: &mut dyn Allocator) {
        for (family, address) in &self.addresses {
            allocator.release(*family, *address);
        }
        for port in &self.ports {
            allocator.release_port(*port);
        }
    }
}

/// Allocations of one write, by what must happen to them when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAllocation {
    /// Release these if the write fails.
    pub to_revert: AddressesAndPorts,
    /// Release these once the write is stored.
    pub to_release: AddressesAndPorts,
}

/// Allocates addresses and ports of a new service and fills them in. On error, everything is released again.
pub fn begin_create(service: &mut Value, allocator: &mut dyn Allocator) -> Result<ServiceAllocation, Status> {
    normalize_cluster_ips(service, None);
    let mut allocation = ServiceAllocation::default();
    let done = create(service, allocator, &mut allocation);
    finish(done, allocation, allocator)
}

/// Allocates what an updated service needs beyond the old one and fills it in. On error, everything is released again.
pub fn begin_update(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
) -> Result<ServiceAllocation, Status> {
    let mut old = old.clone();
    default_on_read(&mut old, allocator.default_family());
    patch_allocated_values(new, &old);
    normalize_cluster_ips(new, Some(&old));
    let mut allocation = ServiceAllocation::default();
    let done = update(new, &old, allocator, &mut allocation);
    finish(done, allocation, allocator)
}

/// Returns the addresses and ports to release when the service is deleted.
pub fn claims_of(service: &Value) -> AddressesAndPorts {
    let spec = service.part("spec");
    let mut claims = AddressesAndPorts::default();
    if !is_external_name(service) && first_ip(service) != NONE {
        claims.addresses = spec
            .items("clusterIPs")
            .iter()
            .filter_map(|address| parse_ip_sloppy(address.as_str()?))
            .map(|address| (family_of(address), address))
            .collect();
    }
    claims.ports = node_ports(service);
    if needs_health_check(service) && spec.number("healthCheckNodePort") > 0 {
        claims.ports.push(spec.number("healthCheckNodePort"));
    }
    claims
}

/// Fills in fields that services written by old servers lack. Runs on every read.
pub fn default_on_read(service: &mut Value, primary: Family) {
    normalize_cluster_ips(service, None);
    if is_external_name(service) {
        service.remove_at(&["spec", "internalTrafficPolicy"]);
        return;
    }
    let spec = service.part("spec");
    if !spec.items("ipFamilies").is_empty() {
        return;
    }
    let (families, policy) = if spec.text("clusterIP") == NONE {
        if has_selector(service) {
            (vec![primary], Some("SingleStack"))
        } else {
            (vec![primary, primary.other()], Some("RequireDualStack"))
        }
    } else {
        let families: Vec<Family> = spec
            .items("clusterIPs")
            .iter()
            .map(|address| address.as_str().and_then(parse_ip_sloppy).map_or(Family::V4, family_of))
            .collect();
        let policy = match families.len() {
            1 => Some("SingleStack"),
            2 => Some("RequireDualStack"),
            _ => None,
        };
        (families, policy)
    };
    if let Some(policy) = policy {
        service.set_at(&["spec", "ipFamilyPolicy"], policy);
    }
    if !families.is_empty() {
        service.set_at(&["spec", "ipFamilies"], Value::list(families.into_iter().map(Family::as_str)));
    }
}

/// Drops fields that apply only to the old type of the service, if the client sent them back unchanged.
pub(super) fn drop_type_dependent_fields(new: &mut Value, old: &Value, _: &StrategyContext) {
    let unchanged =
        |new: &Value, field: &str| same(new.part("spec").part(field), old.part("spec").part(field));
    if !is_external_name(old) && is_external_name(new) {
        let spec = new.part("spec");
        if spec.text("clusterIP") == old.part("spec").text("clusterIP") && unchanged(new, "clusterIPs") {
            new.remove_at(&["spec", "clusterIP"]);
            new.remove_at(&["spec", "clusterIPs"]);
        }
        if unchanged(new, "ipFamilies") {
            new.remove_at(&["spec", "ipFamilies"]);
        }
        if unchanged(new, "ipFamilyPolicy") {
            new.remove_at(&["spec", "ipFamilyPolicy"]);
        }
    }
    if has_node_ports(old) && !has_node_ports(new) {
        let before: HashSet<i64> = node_ports(old).into_iter().collect();
        if node_ports(new).iter().all(|port| before.contains(port)) {
            let ports = new.at_mut(&["spec", "ports"]).and_then(Value::as_list_mut);
            for port in ports.into_iter().flatten() {
                port.remove_at(&["nodePort"]);
            }
        }
    }
    let unneeded = [
        ("healthCheckNodePort", needs_health_check(old) && !needs_health_check(new)),
        ("loadBalancerClass", is_load_balancer(old) && !is_load_balancer(new)),
        ("externalTrafficPolicy", is_external(old) && !is_external(new)),
    ];
    for (field, unneeded) in unneeded {
        if unneeded && unchanged(new, field) {
            new.remove_at(&["spec", field]);
        }
    }
    if is_load_balancer(old) && !is_load_balancer(new) {
        let allocate = |service: &Value| service.part("spec").flag_if_set("allocateLoadBalancerNodePorts");
        if allocate(new).is_some() && allocate(new) == allocate(old) {
            new.remove_at(&["spec", "allocateLoadBalancerNodePorts"]);
        }
    }
    if !is_load_balancer(new) {
        new.remove_at(&["status", "loadBalancer"]);
    }
}

fn finish(
    done: Result<(), Status>,
    allocation: ServiceAllocation,
    allocator: &mut dyn Allocator,
) -> Result<ServiceAllocation, Status> {
    match done {
        Ok(()) => Ok(allocation),
        Err(status) => {
            allocation.to_revert.release(allocator);
            Err(status)
        }
    }
}

fn create(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<(), Status> {
    init_families(service, None, allocator)?;
    allocate_cluster_ips(service, allocator, taken)?;
    if has_node_ports(service) {
        init_node_ports(service, allocator, taken)?;
    }
    if needs_health_check(service) {
        allocate_health_check_port(service, allocator, taken)?;
    }
    Ok(())
}

fn update(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<(), Status> {
    init_families(new, Some(old), allocator)?;
    update_cluster_ips(new, old, allocator, taken)?;
    if has_node_ports(old) && !has_node_ports(new) {
        taken.to_release.ports.extend(node_ports(old));
    }
    if has_node_ports(new) {
        update_node_ports(new, old, allocator, taken)?;
    }
    match (needs_health_check(old), needs_health_check(new)) {
        (false, true) => allocate_health_check_port(new, allocator, taken)?,
        (true, false) => taken.to_release.ports.push(old.part("spec").number("healthCheckNodePort")),
        _ => {}
    }
    Ok(())
}

/// Keeps `clusterIP` and `clusterIPs[0]` equal: if a client changed or omitted one, the other follows.
fn normalize_cluster_ips(new: &mut Value, old: Option<&Value>) {
    let ip = new.part("spec").text("clusterIP").to_owned();
    let ips = new.list_at(&["spec", "clusterIPs"]);
    let Some(old) = old else {
        if !ip.is_empty() && ips.is_empty() {
            new.set_at(&["spec", "clusterIPs"], vec![Value::from(ip)]);
        }
        return;
    };
    let (old_ip, old_ips) = (old.part("spec").text("clusterIP"), old.list_at(&["spec", "clusterIPs"]));
    if old_ip == ip {
        if !old_ips.is_empty() && ips.is_empty() {
            new.set_at(&["spec", "clusterIPs"], old_ips.to_vec());
        }
        return;
    }
    if ips != old_ips {
        return;
    }
    if !old_ip.is_empty() && ip.is_empty() {
        new.remove_at(&["spec", "clusterIPs"]);
    } else {
        new.set_at(&["spec", "clusterIPs"], vec![Value::from(ip)]);
    }
}

/// Fills in allocated values that an update omits.
fn patch_allocated_values(new: &mut Value, old: &Value) {
    if !is_external_name(old) && !is_external_name(new) {
        if new.part("spec").text("clusterIP").is_empty()
            && let Some(ip) = old.part("spec").part("clusterIP")
        {
            new.set_at(&["spec", "clusterIP"], ip.clone());
        }
        let old_ips = old.list_at(&["spec", "clusterIPs"]);
        if new.list_at(&["spec", "clusterIPs"]).is_empty() && !old_ips.is_empty() {
            new.set_at(&["spec", "clusterIPs"], old_ips.to_vec());
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        let before: HashSet<i64> = node_ports(old).into_iter().collect();
        let used: HashSet<i64> = node_ports(new).into_iter().filter(|port| before.contains(port)).collect();
        let former_ports = last_by(old.list_at(&["spec", "ports"]), "name");
        let mut given = Vec::new();
        for (i, port) in new.list_at(&["spec", "ports"]).iter().enumerate() {
            if port.number("nodePort") != 0 {
                continue;
            }
            let same_name = former_ports.get(port.text("name"));
            let former = same_name.map_or(0, |port| port.number("nodePort"));
            if former != 0 && !used.contains(&former) {
                given.push((i, former));
            }
        }
        set_node_ports(new, &given);
    }
    if needs_health_check(old)
        && needs_health_check(new)
        && new.part("spec").number("healthCheckNodePort") == 0
    {
        let port = old.part("spec").number("healthCheckNodePort");
        if port != 0 {
            new.set_at(&["spec", "healthCheckNodePort"], port);
        }
    }
}

/// Returns true if the update leaves the address families of a `PreferDualStack` service unchanged.
fn keeps_dual_stack(new: &Value, old: &Value) -> bool {
    let policy = |service: &Value| service.part("spec").text_if_set("ipFamilyPolicy").map(str::to_owned);
    let (spec, old_spec) = (new.part("spec"), old.part("spec"));
    policy(new).as_deref() == Some("PreferDualStack")
        && policy(old).is_none_or(|policy| policy == "PreferDualStack")
        && spec.text("type") == old_spec.text("type")
        && matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer")
        && spec.items("clusterIPs") == old_spec.items("clusterIPs")
        && spec.items("ipFamilies") == old_spec.items("ipFamilies")
}

fn refuse(service: &Value, errors: &FieldErrors) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(invalid(service, errors)) }
}

fn invalid(service: &Value, errors: &FieldErrors) -> Status {
    Status::invalid(&GroupKind::new("", "Service"), api::meta::name(service), errors)
}

#[cfg(test)]
mod tests;
