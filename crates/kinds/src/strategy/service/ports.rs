//! Allocation of node ports: requested ones, and free ones for ports that request none.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, Status};
use value::Value;

use super::facts::{allocates_node_ports, node_ports, set_node_ports};
use super::{Allocator, ServiceAllocation, invalid};

pub(super) fn init_node_ports(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<(), Status> {
    let allocates = allocates_node_ports(service);
    let ports = service.list_at(&["spec", "ports"]).to_vec();
    let mut by_port: HashMap<i64, i64> = HashMap::new();
    let mut requested_for: HashMap<i64, i64> = HashMap::new();
    for port in ports.iter().filter(|port| port.number("nodePort") != 0) {
        requested_for.entry(port.number("port")).or_insert_with(|| port.number("nodePort"));
    }
    let mut given: Vec<(usize, i64)> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let (number, asked) = (port.number("port"), port.number("nodePort"));
        if asked == 0 && !allocates {
            continue;
        }
        match by_port.get(&number).copied() {
            None => {
                let node_port = match requested_for.get(&number) {
                    Some(requested) => take_port(service, i, *requested, allocator, taken)?,
                    None => take_any_port(allocator, taken)?,
                };
                by_port.insert(number, node_port);
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

pub(super) fn update_node_ports(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<(), Status> {
    let released = node_ports(old);
    let before: HashSet<i64> = released.iter().copied().collect();
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
            return Err(Status::failure(500, api::StatusReason::Unknown, message));
        }
    }
    set_node_ports(new, &given);
    let after: HashSet<i64> = node_ports(new).into_iter().collect();
    taken.to_release.ports.extend(released.into_iter().filter(|port| !after.contains(port)));
    Ok(())
}

fn take_port(
    service: &Value,
    index: usize,
    port: i64,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
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

fn take_any_port(allocator: &mut dyn Allocator, taken: &mut ServiceAllocation) -> Result<i64, Status> {
    let port = allocator
        .allocate_next_port()
        .map_err(|error| Status::internal(format!("failed to allocate a nodePort: {error}")))?;
    taken.to_revert.ports.push(port);
    Ok(port)
}

pub(super) fn allocate_health_check_port(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
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
