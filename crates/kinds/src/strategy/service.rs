//! `Service`: the addresses and ports the server hands out.
//!
//! [`begin_create`] and [`begin_update`] run before the object is validated. They decide what must be allocated and
//! released, ask an injected [`Allocator`], and fill the answers in. The returned [`Allocation`] says what the write
//! path must give back: [`Allocation::to_revert`] when the write fails, [`Allocation::to_release`] when it succeeds.

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
use super::Context;
use crate::validation::service::is_external;

/// An IP family of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// `IPv4`.
    V4,
    /// `IPv6`.
    V6,
}

impl Family {
    /// The family as `spec.ipFamilies` writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The other one.
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

/// Why an address could not be handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is none left.
    #[error("range is full")]
    Full,
    /// Somebody has it.
    #[error("provided IP is already allocated")]
    Allocated,
    /// It is in none of our ranges.
    #[error("the provided network does not match the current range")]
    OtherNetwork,
    /// It is in none of our ranges, as Kubernetes words it in a dry run.
    #[error("the provided IP ({0}) is not in the valid range. The range of valid IPs is {1}")]
    NotInRange(IpAddr, String),
    /// The allocator could not answer.
    #[error("{0}")]
    Other(String),
}

/// Why a node port could not be handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// There is none left.
    #[error("range is full")]
    Full,
    /// Somebody has it.
    #[error("provided port is already allocated")]
    Allocated,
    /// It is not one of ours: `30000-32767`.
    #[error("provided port is not in the valid range. The range of valid ports is {0}")]
    NotInRange(String),
    /// The allocator could not answer.
    #[error("{0}")]
    Other(String),
}

/// Hands out addresses and ports. A dry run gets one that remembers nothing.
pub trait Allocator {
    /// The family of services that name none.
    fn default_family(&self) -> Family;
    /// Whether the server has a range of this family.
    fn has(&self, family: Family) -> bool;
    /// Takes this address.
    fn allocate(&mut self, family: Family, address: IpAddr) -> Result<(), AddressError>;
    /// Takes any address.
    fn allocate_next(&mut self, family: Family) -> Result<IpAddr, AddressError>;
    /// Takes this port.
    fn allocate_port(&mut self, port: i64) -> Result<(), PortError>;
    /// Takes any port.
    fn allocate_next_port(&mut self) -> Result<i64, PortError>;
    /// Gives an address back.
    fn release(&mut self, family: Family, address: IpAddr);
    /// Gives a port back.
    fn release_port(&mut self, port: i64);
}

/// Addresses and ports taken, or to be given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Addresses with their family.
    pub addresses: Vec<(Family, IpAddr)>,
    /// Node ports.
    pub ports: Vec<i64>,
}

impl Claims {
    /// Gives everything back.
    pub fn release(&self, allocator: &mut dyn Allocator) {
        for (family, address) in &self.addresses {
            allocator.release(*family, *address);
        }
        for port in &self.ports {
            allocator.release_port(*port);
        }
    }
}

/// What one write took and what it frees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Give these back if the write fails.
    pub to_revert: Claims,
    /// Give these back once the write is stored.
    pub to_release: Claims,
}

/// Takes what a new service needs and fills it in. On an error nothing stays taken.
pub fn begin_create(service: &mut Value, allocator: &mut dyn Allocator) -> Result<Allocation, Status> {
    normalize_cluster_ips(service, None);
    let mut allocation = Allocation::default();
    let done = create(service, allocator, &mut allocation);
    finish(done, allocation, allocator)
}

/// Takes what a changed service needs beyond what it has and fills it in. On an error nothing stays taken.
pub fn begin_update(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
) -> Result<Allocation, Status> {
    let mut old = old.clone();
    default_on_read(&mut old, allocator.default_family());
    patch_allocated_values(new, &old);
    normalize_cluster_ips(new, Some(&old));
    let mut allocation = Allocation::default();
    let done = update(new, &old, allocator, &mut allocation);
    finish(done, allocation, allocator)
}

/// What a deleted service gives back.
pub fn claims_of(service: &Value) -> Claims {
    let spec = service.part("spec");
    let mut claims = Claims::default();
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

/// Fills in what services written by old servers leave out, whenever one is read.
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

/// Drops what only the old type of a service had a meaning for, where the client just sent it back.
pub(super) fn drop_type_dependent_fields(new: &mut Value, old: &Value, _: &Context) {
    let kept = |new: &Value, field: &str| same(new.part("spec").part(field), old.part("spec").part(field));
    if !is_external_name(old) && is_external_name(new) {
        let spec = new.part("spec");
        if spec.text("clusterIP") == old.part("spec").text("clusterIP") && kept(new, "clusterIPs") {
            new.remove_at(&["spec", "clusterIP"]);
            new.remove_at(&["spec", "clusterIPs"]);
        }
        if kept(new, "ipFamilies") {
            new.remove_at(&["spec", "ipFamilies"]);
        }
        if kept(new, "ipFamilyPolicy") {
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
        if unneeded && kept(new, field) {
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
    allocation: Allocation,
    allocator: &mut dyn Allocator,
) -> Result<Allocation, Status> {
    match done {
        Ok(()) => Ok(allocation),
        Err(status) => {
            allocation.to_revert.release(allocator);
            Err(status)
        }
    }
}

fn create(service: &mut Value, allocator: &mut dyn Allocator, taken: &mut Allocation) -> Result<(), Status> {
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
    taken: &mut Allocation,
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

/// `clusterIP` and `clusterIPs[0]` are one thing: where a client changed or left out one, the other follows.
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

/// Fills in allocated values that an update leaves out.
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

/// An update that changes nothing about a service that prefers two families leaves it with what it has.
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
