//! Finds the slices and devices that a node can reach.

use std::collections::HashSet;

use value::{Str, Value};

use super::{DeviceIndex, Inventory, PublishedSlice, text};
use crate::node::{CandidateNode, NodeSelector};

/// The nodes that can reach a slice or device.
#[derive(Clone, Debug)]
pub(crate) enum NodeReach {
    Node(Str),
    /// The parsed node selector, and the selector as stored.
    Selector(Result<NodeSelector, String>, Value),
    Everywhere,
    PerDevice,
    /// No known field selects nodes.
    Unknown,
}

/// Why a pool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnusablePool {
    /// Slices of the pool are missing.
    Incomplete,
    /// The slices contradict each other.
    Invalid(String),
}

/// Devices and unusable pools of a node.
#[derive(Debug, Default)]
pub(crate) struct Reachable {
    pub(crate) devices: Vec<DeviceIndex>,
    /// Indices of the pools that cannot be used, with reasons.
    pub(crate) unusable: Vec<(usize, UnusablePool)>,
}

impl NodeReach {
    pub(super) fn of(holder: &Value) -> NodeReach {
        let name = text(holder, &["nodeName"]);
        let is_set = |field: &str| holder.bool_at(&[field]) == Some(true);
        if !name.is_empty() {
            NodeReach::Node(name)
        } else if is_set("allNodes") {
            NodeReach::Everywhere
        } else if let Some(selector) = holder.get("nodeSelector").filter(|selector| !selector.is_null()) {
            NodeReach::Selector(NodeSelector::read(selector).map_err(|why| why.to_string()), selector.clone())
        } else if is_set("perDeviceNodeSelection") {
            NodeReach::PerDevice
        } else {
            NodeReach::Unknown
        }
    }

    fn includes(&self, node: &CandidateNode<'_>) -> Result<bool, String> {
        match self {
            NodeReach::Node(name) => Ok(name == node.name()),
            NodeReach::Selector(selector, _) => {
                selector.as_ref().map(|selector| selector.matches(node)).map_err(Clone::clone)
            }
            NodeReach::Everywhere => Ok(true),
            NodeReach::PerDevice | NodeReach::Unknown => Ok(false),
        }
    }
}

impl Inventory {
    /// Finds the devices that a node can reach, in the order in which they are tried, and the pools that cannot be
    /// used.
    pub(crate) fn reachable_from(&self, node: &CandidateNode<'_>) -> Result<Reachable, crate::Error> {
        let own = self.by_node.get(node.name()).map(Vec::as_slice).unwrap_or_default();
        // Both lists are sorted by pool, generation and slice name; merge them.
        let mut slices = Vec::with_capacity(own.len());
        let mut own = own.iter().peekable();
        for shared in &self.shared {
            while let Some(next) = own.next_if(|next| *next < shared) {
                slices.push(*next);
            }
            slices.push(*shared);
        }
        slices.extend(own);
        let mut found: Vec<ReachedPool> = Vec::new();
        for at in slices {
            let Some(slice) = self.slices.get(at) else { continue };
            let wrong = |reason: String| crate::Error::Slice { slice: slice.name.clone(), reason };
            let devices = if matches!(slice.reach, NodeReach::PerDevice) {
                let mut reached = Vec::new();
                let all = self.devices.get(slice.devices.clone()).unwrap_or_default();
                for (position, device) in slice.devices.clone().zip(all) {
                    if device.reach.includes(node).map_err(wrong)? {
                        reached.push(position);
                    }
                }
                if reached.is_empty() {
                    continue;
                }
                Some(reached)
            } else if slice.reach.includes(node).map_err(wrong)? {
                None
            } else {
                continue;
            };
            match found.last_mut() {
                Some(last) if last.pool == slice.pool => {
                    // Generations are ascending: a newer one replaces the older one.
                    if last.generation != slice.generation {
                        *last = ReachedPool::new(slice);
                    }
                    last.slices.push((slice, devices));
                }
                _ => {
                    let mut one = ReachedPool::new(slice);
                    one.slices.push((slice, devices));
                    found.push(one);
                }
            }
        }
        Ok(self.usable_devices(found))
    }

    /// Collects the devices of complete and valid pools. Pools with binding conditions are tried last.
    fn usable_devices(&self, found: Vec<ReachedPool<'_>>) -> Reachable {
        let mut reachable = Reachable::default();
        let mut waiting = Vec::new();
        for found in found {
            let (Some(pool), Some(generation)) =
                (self.pools.get(found.pool), self.generations.get(found.generation))
            else {
                continue;
            };
            let is = |count: usize| i64::try_from(count).is_ok_and(|count| count == found.slice_count);
            if !is(found.slices.len()) {
                if pool.newest_generation > generation.number {
                    // The node sees an old generation that is being replaced by slices it cannot see.
                    continue;
                }
                if !is(generation.slices) {
                    reachable.unusable.push((found.pool, UnusablePool::Incomplete));
                    continue;
                }
            }
            let repeated = if generation.repeats_names { self.repeated(&found) } else { None };
            let wrong = repeated.map(|name| format!("duplicate device name {name}"));
            if let Some(why) = wrong.or_else(|| generation.invalid.clone()) {
                reachable.unusable.push((found.pool, UnusablePool::Invalid(why)));
                continue;
            }
            let waits = found.slices.iter().any(|(slice, _)| slice.has_binding_conditions);
            let into = if waits { &mut waiting } else { &mut reachable.devices };
            for (slice, devices) in found.slices {
                match devices {
                    Some(devices) => into.extend(devices),
                    None => into.extend(slice.devices.clone()),
                }
            }
        }
        reachable.devices.extend(waiting);
        reachable
    }

    /// A device name that occurs twice among the slices a node reaches.
    fn repeated(&self, found: &ReachedPool<'_>) -> Option<&Str> {
        let mut names = HashSet::new();
        let devices = found.slices.iter().flat_map(|(slice, _)| slice.devices.clone());
        devices
            .filter_map(|at| self.devices.get(at))
            .map(|device| &device.name)
            .find(|name| !names.insert(name.as_str()))
    }
}

/// The slices of a pool that a node reaches, all of one generation.
struct ReachedPool<'a> {
    pool: usize,
    generation: usize,
    slice_count: i64,
    /// Slices with the devices that the node reaches; `None` means all devices.
    slices: Vec<(&'a PublishedSlice, Option<Vec<DeviceIndex>>)>,
}

impl ReachedPool<'_> {
    fn new(first: &PublishedSlice) -> Self {
        ReachedPool {
            pool: first.pool,
            generation: first.generation,
            slice_count: first.slice_count,
            slices: Vec::new(),
        }
    }
}
