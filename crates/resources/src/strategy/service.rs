//! `Service`: the addresses and ports the server hands out.
//!
//! [`begin_create`] and [`begin_update`] run before the object is validated. They decide what must be allocated and
//! released, ask an injected [`Allocator`], and fill the answers in. The returned [`Allocation`] says what the write
//! path must give back: [`Allocation::to_revert`] when the write fails, [`Allocation::to_release`] when it succeeds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::names::parse_ip_sloppy;
use api::{FieldErrors, GroupKind, Status};
use value::Value;

use super::Context;
use crate::validation::fields::{At, Read, Report, same};
use crate::validation::service::cluster_ip_errors;

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
    /// It is not one of ours.
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

const NONE: &str = "None";

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
        let (before, after) = (node_ports(old), node_ports(new));
        if after.iter().all(|port| before.contains(port)) {
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

/// Decides `ipFamilyPolicy` and `ipFamilies`, and refuses what this server's ranges cannot do.
fn init_families(
    service: &mut Value,
    old: Option<&Value>,
    allocator: &mut dyn Allocator,
) -> Result<(), Status> {
    if is_external_name(service) || old.is_some_and(|old| keeps_dual_stack(service, old)) {
        return Ok(());
    }
    let headless_without_selector = service.part("spec").text("clusterIP") == NONE && !has_selector(service);
    if service.part("spec").part("ipFamilyPolicy").is_none() {
        let policy = match old.and_then(|old| old.part("spec").text_if_set("ipFamilyPolicy")) {
            Some(policy) => policy.to_owned(),
            None if headless_without_selector => "RequireDualStack".to_owned(),
            None => "SingleStack".to_owned(),
        };
        service.set_at(&["spec", "ipFamilyPolicy"], policy);
    }
    refuse(service, &cluster_ip_errors(service, old))?;

    let mut errors = FieldErrors::new();
    let policy = service.part("spec").text("ipFamilyPolicy").to_owned();
    let policy_at = At::new("spec.ipFamilyPolicy");
    if let Some(old) = old {
        for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (now, before) = (service.list_at(&["spec", field]), old.list_at(&["spec", field]));
            if policy == "SingleStack" {
                if now == before && now.len() > 1 {
                    let first = now.first().cloned().into_iter().collect::<Vec<Value>>();
                    service.set_at(&["spec", field], first);
                }
            } else if !now.is_empty() && now.len() < before.len() {
                let detail = format!("must be 'SingleStack' to release the secondary {what}");
                errors.invalid(&policy_at, policy.as_str(), detail);
            }
        }
    }
    if policy == "SingleStack" {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if service.list_at(&["spec", field]).len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.invalid(&policy_at, policy.as_str(), detail);
            }
        }
    }
    let mut families = families_of(service);
    let addresses: Vec<String> = service.part("spec").texts("clusterIPs").map(str::to_owned).collect();
    for (i, address) in addresses.iter().enumerate().skip(families.len()) {
        if address == NONE {
            break;
        }
        let family = parse_ip_sloppy(address).map(family_of);
        match family {
            Some(family) if allocator.has(family) => families.push(family),
            family => {
                let at = At::new("spec.clusterIPs");
                let all = Value::list(addresses.iter().map(String::as_str));
                let name = family.map_or("unknown", Family::as_str);
                errors.invalid(&at.index(i), all, format!("{name} is not configured on this cluster"));
            }
        }
    }
    refuse(service, &errors)?;

    if headless_without_selector {
        if families.is_empty() {
            families.push(allocator.default_family());
        }
        if let [only] = families[..]
            && policy != "SingleStack"
        {
            families.push(only.other());
        }
        set_families(service, &families);
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let dual = allocator.has(Family::V4) && allocator.has(Family::V6);
    if policy == "RequireDualStack" && !dual {
        errors.invalid(&policy_at, policy.as_str(), "this cluster is not configured for dual-stack services");
    }
    for (i, family) in families.iter().enumerate() {
        if !allocator.has(*family) {
            errors.invalid(
                &At::new("spec.ipFamilies").index(i),
                family.as_str(),
                "not configured on this cluster",
            );
        }
    }
    refuse(service, &errors)?;
    if families.is_empty() {
        families.push(allocator.default_family());
    }
    if let [only] = families[..]
        && policy != "SingleStack"
        && dual
    {
        families.push(only.other());
    }
    set_families(service, &families);
    Ok(())
}

fn allocate_cluster_ips(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<(), Status> {
    if is_external_name(service) || first_ip(service) == NONE {
        return Ok(());
    }
    let wanted: Vec<String> = service.part("spec").texts("clusterIPs").map(str::to_owned).collect();
    let mut addresses = wanted.clone();
    for (i, family) in families_of(service).into_iter().enumerate() {
        let address = take_ip(service, family, wanted.get(i).map_or("", String::as_str), allocator, taken)?;
        match addresses.get_mut(i) {
            Some(place) => *place = address,
            None => addresses.push(address),
        }
    }
    set_cluster_ips(service, &addresses);
    Ok(())
}

fn update_cluster_ips(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<(), Status> {
    if keeps_dual_stack(new, old) {
        return Ok(());
    }
    if is_external_name(old) && !is_external_name(new) {
        return allocate_cluster_ips(new, allocator, taken);
    }
    if first_ip(old) == NONE {
        return Ok(());
    }
    let old_families = families_of(old);
    let old_addresses = old.part("spec").items("clusterIPs");
    let release = |i: usize| -> Option<(Family, IpAddr)> {
        let address = parse_ip_sloppy(old_addresses.get(i)?.as_str()?)?;
        Some((*old_families.get(i)?, address))
    };
    if !is_external_name(old) && is_external_name(new) {
        taken.to_release.addresses.extend((0..old_families.len()).filter_map(release));
        return Ok(());
    }
    let families = families_of(new);
    match (old_families.as_slice(), families.as_slice()) {
        ([_], [_, second]) => {
            let mut addresses: Vec<String> =
                new.part("spec").texts("clusterIPs").map(str::to_owned).collect();
            let wanted = addresses.get(1).cloned().unwrap_or_default();
            let address = take_ip(new, *second, &wanted, allocator, taken)?;
            addresses.truncate(1);
            addresses.push(address);
            set_cluster_ips(new, &addresses);
        }
        ([_, _], [_]) => taken.to_release.addresses.extend(release(1)),
        _ => {}
    }
    Ok(())
}

/// Takes `wanted`, or any address where it is empty.
fn take_ip(
    service: &Value,
    family: Family,
    wanted: &str,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<String, Status> {
    let refusal = |detail: String| {
        let mut errors = FieldErrors::new();
        let mut all: Vec<Value> = service.list_at(&["spec", "clusterIPs"]).to_vec();
        while all.len() < families_of(service).len() {
            all.push("".into()); // as Go shows places not yet filled in
        }
        errors.invalid(&At::new("spec.clusterIPs"), Value::List(all), detail);
        invalid(service, &errors)
    };
    if wanted.is_empty() {
        let address = allocator.allocate_next(family).map_err(|error| match error {
            AddressError::Full => Status::internal(format!(
                "failed to allocate a serviceIP for Service {}: {error}",
                api::field::quote(api::meta::name(service))
            )),
            error => refusal(format!("failed to allocate IP: {error}")),
        })?;
        taken.to_revert.addresses.push((family, address));
        return Ok(address.to_string());
    }
    let Some(address) = parse_ip_sloppy(wanted) else {
        return Err(Status::internal(format!("failed to parse service IP {}", api::field::quote(wanted))));
    };
    allocator
        .allocate(family, address)
        .map_err(|error| refusal(format!("failed to allocate IP {wanted}: {error}")))?;
    taken.to_revert.addresses.push((family, address));
    Ok(wanted.to_owned())
}

fn init_node_ports(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<(), Status> {
    let allocates = allocates_node_ports(service);
    let ports = service.list_at(&["spec", "ports"]).to_vec();
    let mut by_port: Vec<(i64, i64)> = Vec::new();
    let mut given: Vec<(usize, i64)> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let (number, asked) = (port.number("port"), port.number("nodePort"));
        if asked == 0 && !allocates {
            continue;
        }
        let known = by_port.iter().find(|(port, _)| *port == number).map(|(_, node_port)| *node_port);
        match known {
            None => {
                let requested = ports
                    .iter()
                    .find(|other| other.number("port") == number && other.number("nodePort") != 0)
                    .map(|other| other.number("nodePort"));
                let node_port = match requested {
                    Some(requested) => take_port(service, i, requested, allocator, taken)?,
                    None => take_any_port(allocator, taken)?,
                };
                by_port.push((number, node_port));
                given.push((i, node_port));
            }
            Some(known) if asked == 0 => given.push((i, known)),
            Some(known) if asked != known => {
                take_port(service, i, asked, allocator, taken)?;
            }
            Some(_) => {}
        }
    }
    set_node_ports(service, &given);
    Ok(())
}

fn update_node_ports(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<(), Status> {
    let before = node_ports(old);
    let allocates = allocates_node_ports(new);
    let ports = new.list_at(&["spec", "ports"]).to_vec();
    let mut seen: BTreeSet<(String, i64)> = BTreeSet::new();
    let mut fresh: BTreeSet<i64> = BTreeSet::new();
    let mut given: Vec<(usize, i64)> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let asked = port.number("nodePort");
        let node_port = match asked {
            0 if !allocates => continue,
            0 => {
                let node_port = take_any_port(allocator, taken)?;
                given.push((i, node_port));
                node_port
            }
            asked => {
                if !before.contains(&asked) && !fresh.contains(&asked) {
                    take_port(new, i, asked, allocator, taken)?;
                    fresh.insert(asked);
                }
                asked
            }
        };
        if !seen.insert((port.text("protocol").to_owned(), node_port)) {
            let message = format!("duplicate nodePort: {{{} {node_port}}}", port.text("protocol"));
            return Err(Status::failure(500, api::Reason::Unknown, message));
        }
    }
    set_node_ports(new, &given);
    let after = node_ports(new);
    taken.to_release.ports.extend(before.into_iter().filter(|port| !after.contains(port)));
    Ok(())
}

fn take_port(
    service: &Value,
    index: usize,
    port: i64,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<i64, Status> {
    allocator.allocate_port(port).map_err(|error| {
        let mut errors = FieldErrors::new();
        let ports = At::new("spec.ports");
        errors.invalid(&ports.index(index).field("nodePort"), port, error.to_string());
        invalid(service, &errors)
    })?;
    taken.to_revert.ports.push(port);
    Ok(port)
}

fn take_any_port(allocator: &mut dyn Allocator, taken: &mut Allocation) -> Result<i64, Status> {
    let port = allocator
        .allocate_next_port()
        .map_err(|error| Status::internal(format!("failed to allocate a nodePort: {error}")))?;
    taken.to_revert.ports.push(port);
    Ok(port)
}

fn allocate_health_check_port(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut Allocation,
) -> Result<(), Status> {
    let asked = service.part("spec").number("healthCheckNodePort");
    if asked != 0 {
        allocator.allocate_port(asked).map_err(|error| {
            Status::internal(format!("failed to allocate requested HealthCheck NodePort {asked}: {error}"))
        })?;
        taken.to_revert.ports.push(asked);
        return Ok(());
    }
    let port = allocator
        .allocate_next_port()
        .map_err(|error| Status::internal(format!("failed to allocate a HealthCheck NodePort 0: {error}")))?;
    taken.to_revert.ports.push(port);
    service.set_at(&["spec", "healthCheckNodePort"], port);
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
        let used: Vec<i64> =
            node_ports(new).into_iter().filter(|port| node_ports(old).contains(port)).collect();
        let mut given = Vec::new();
        for (i, port) in new.list_at(&["spec", "ports"]).iter().enumerate() {
            if port.number("nodePort") != 0 {
                continue;
            }
            let same_name =
                old.list_at(&["spec", "ports"]).iter().rfind(|p| p.text("name") == port.text("name"));
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

fn family_of(address: IpAddr) -> Family {
    match address.to_canonical() {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

fn families_of(service: &Value) -> Vec<Family> {
    service.part("spec").texts("ipFamilies").filter_map(Family::of).collect()
}

fn set_families(service: &mut Value, families: &[Family]) {
    service.set_at(&["spec", "ipFamilies"], Value::list(families.iter().map(|family| family.as_str())));
}

fn set_cluster_ips(service: &mut Value, addresses: &[String]) {
    if let Some(first) = addresses.first() {
        service.set_at(&["spec", "clusterIP"], first.as_str());
    }
    service.set_at(&["spec", "clusterIPs"], Value::list(addresses.iter().map(String::as_str)));
}

fn set_node_ports(service: &mut Value, given: &[(usize, i64)]) {
    let Some(ports) = service.at_mut(&["spec", "ports"]).and_then(Value::as_list_mut) else { return };
    for (i, node_port) in given {
        if let Some(port) = ports.get_mut(*i) {
            port.set_at(&["nodePort"], *node_port);
        }
    }
}

fn first_ip(service: &Value) -> &str {
    service.list_at(&["spec", "clusterIPs"]).first().and_then(Value::as_str).unwrap_or_default()
}

fn service_type(service: &Value) -> &str {
    service.str_at(&["spec", "type"]).unwrap_or_default()
}

fn is_external_name(service: &Value) -> bool {
    service_type(service) == "ExternalName"
}

fn is_load_balancer(service: &Value) -> bool {
    service_type(service) == "LoadBalancer"
}

fn has_selector(service: &Value) -> bool {
    service.part("spec").map_of("selector").is_some_and(|selector| !selector.is_empty())
}

fn has_node_ports(service: &Value) -> bool {
    matches!(service_type(service), "NodePort" | "LoadBalancer")
}

fn allocates_node_ports(service: &Value) -> bool {
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => service.part("spec").flag("allocateLoadBalancerNodePorts"),
        _ => false,
    }
}

fn needs_node_ports(service: &Value) -> bool {
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => service.part("spec").flag_if_set("allocateLoadBalancerNodePorts").unwrap_or(true),
        _ => false,
    }
}

fn needs_health_check(service: &Value) -> bool {
    is_load_balancer(service) && service.part("spec").text("externalTrafficPolicy") == "Local"
}

/// Whether a service can be reached from outside the cluster.
pub(crate) fn is_external(service: &Value) -> bool {
    match service_type(service) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !service.part("spec").items("externalIPs").is_empty(),
        _ => false,
    }
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.list_at(&["spec", "ports"]).iter();
    ports.map(|port| port.number("nodePort")).filter(|port| *port != 0).collect()
}
