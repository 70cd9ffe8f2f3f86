//! Builds `status.allocation` of a claim from the chosen devices.

use std::collections::HashMap;

use value::quantity::Quantity;
use value::{Map, Str, Value};

use crate::allocator::DeviceClass;
use crate::claim::{Choice, PendingClaim};
use crate::error::Error;
use crate::inventory::{Inventory, NodeReach, PublishedDevice};
use crate::node::CandidateNode;
use crate::search::ChosenDevice;
use crate::usage::DeviceHolding;

/// The allocation of one claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimAllocation {
    /// Allocated devices, in the order of the requests.
    pub results: Vec<DeviceResult>,
    /// `devices.config`: configurations for the drivers, first those of classes, then those of the claim.
    pub config: Vec<Value>,
    /// Nodes that can use the devices; `None` for all nodes.
    pub node_selector: Option<Value>,
}

/// One device of an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceResult {
    /// Request name, or `request/alternative`.
    pub request: Str,
    /// Driver of the device.
    pub driver: Str,
    /// Pool of the device.
    pub pool: Str,
    /// Name of the device within its pool.
    pub device: Str,
    /// True for admin access: other claims may use the device too.
    pub admin_access: bool,
    /// True if the device allows multiple allocations: the result gets a `shareID`.
    pub shared: bool,
    /// Amounts taken from the capacities of a shared device.
    pub consumed_capacity: Vec<(Str, Quantity)>,
    /// Tolerations of the request, as stored.
    pub tolerations: Option<Value>,
    /// Conditions that must become true before a pod uses the device, from the slice.
    pub binding_conditions: Option<Value>,
    /// Conditions that end the wait for the binding conditions.
    pub binding_failure_conditions: Option<Value>,
}

impl ClaimAllocation {
    /// Encodes `status.allocation`. `share_id` generates the `shareID` of each shared device.
    pub fn to_value(&self, share_id: &mut dyn FnMut() -> String) -> Value {
        let results: Vec<Value> = self.results.iter().map(|result| result.to_value(share_id)).collect();
        let mut devices = Map::new();
        if !self.config.is_empty() {
            devices.insert("config", self.config.clone());
        }
        devices.insert("results", results);
        let mut allocation = Map::new();
        allocation.insert("devices", devices);
        if let Some(selector) = &self.node_selector {
            allocation.insert("nodeSelector", selector.clone());
        }
        allocation.into()
    }

    /// Usage of the allocation's devices.
    pub(crate) fn holdings(&self, inventory: &Inventory) -> Vec<DeviceHolding> {
        let mut found = Vec::new();
        for result in self.results.iter().filter(|result| !result.admin_access) {
            let Some(at) = inventory.find(&result.driver, &result.pool, &result.device) else { continue };
            let consumed = || {
                result.consumed_capacity.iter().map(|(name, amount)| (name.clone(), amount.nanos())).collect()
            };
            let share = result.shared.then(consumed);
            found.push(DeviceHolding { device: at, share });
        }
        found
    }

    pub(crate) fn build(
        claim: &PendingClaim,
        chosen: Vec<ChosenDevice>,
        classes: &HashMap<Str, DeviceClass>,
        inventory: &Inventory,
        node: &CandidateNode<'_>,
    ) -> Result<ClaimAllocation, Error> {
        let mut results = Vec::with_capacity(chosen.len());
        let mut devices = Vec::with_capacity(chosen.len());
        // The chosen alternative per request; a request without devices has its first one.
        let mut taken = vec![0; claim.requests.len()];
        for chosen in chosen {
            if let Some(slot) = taken.get_mut(chosen.request) {
                *slot = chosen.choice;
            }
            let choice = claim.requests.get(chosen.request).and_then(|r| r.choices.get(chosen.choice));
            let (Some(choice), Some(device)) = (choice, inventory.devices.get(chosen.device)) else {
                continue;
            };
            results.push(DeviceResult::new(choice, device, &chosen, inventory));
            devices.push(device);
        }
        let choices: Vec<(&Str, &Choice)> = claim
            .requests
            .iter()
            .zip(taken)
            .filter_map(|(request, taken)| Some((&request.name, request.choices.get(taken)?)))
            .collect();
        let node_selector = node_selector(&devices, inventory, node)
            .map_err(|reason| Error::Claim { claim: claim.id.clone(), reason })?;
        Ok(ClaimAllocation { results, config: configs(claim, &choices, classes), node_selector })
    }
}

impl DeviceResult {
    fn new(
        choice: &Choice,
        device: &PublishedDevice,
        chosen: &ChosenDevice,
        inventory: &Inventory,
    ) -> DeviceResult {
        let pool = inventory.pools.get(device.pool);
        let shares = chosen.share.as_deref().unwrap_or_default();
        DeviceResult {
            request: choice.name.clone(),
            driver: pool.map(|pool| pool.driver.clone()).unwrap_or_default(),
            pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
            device: device.name.clone(),
            admin_access: choice.admin,
            shared: chosen.share.is_some(),
            consumed_capacity: shares
                .iter()
                .map(|share| (share.capacity.clone(), share.amount.clone()))
                .collect(),
            tolerations: choice.raw_tolerations.clone(),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        }
    }

    fn to_value(&self, share_id: &mut dyn FnMut() -> String) -> Value {
        let mut result = Map::new();
        for (field, text) in [
            ("request", &self.request),
            ("driver", &self.driver),
            ("pool", &self.pool),
            ("device", &self.device),
        ] {
            result.insert(field, text.clone());
        }
        if self.admin_access {
            result.insert("adminAccess", true);
        }
        for (field, list) in [
            ("tolerations", &self.tolerations),
            ("bindingConditions", &self.binding_conditions),
            ("bindingFailureConditions", &self.binding_failure_conditions),
        ] {
            if let Some(list) = list {
                result.insert(field, list.clone());
            }
        }
        if self.shared {
            result.insert("shareID", share_id());
        }
        if !self.consumed_capacity.is_empty() {
            let consumed: Map = self
                .consumed_capacity
                .iter()
                .map(|(name, amount)| (name.clone(), amount.to_string().into()))
                .collect();
            result.insert("consumedCapacity", consumed);
        }
        result.into()
    }
}

/// Collects the driver configurations: those of each class once, with the requests that use it, then those of the
/// claim that apply to the chosen alternatives. Request names are left out if a configuration applies to all
/// requests.
fn configs(
    claim: &PendingClaim,
    choices: &[(&Str, &Choice)],
    classes: &HashMap<Str, DeviceClass>,
) -> Vec<Value> {
    let mut found: Vec<(&str, Vec<Str>, Option<&Value>)> = Vec::new();
    let mut selectable: Vec<&Str> = Vec::new();
    for (_, choice) in choices {
        if selectable.contains(&&choice.class) {
            continue;
        }
        selectable.push(&choice.class);
        let Some(class) = classes.get(&choice.class) else { continue };
        let users: Vec<Str> = choices
            .iter()
            .filter(|(_, other)| other.class == choice.class)
            .map(|(_, other)| other.name.clone())
            .collect();
        found.extend(class.configs.iter().map(|config| ("FromClass", users.clone(), config.as_ref())));
    }
    for config in &claim.configs {
        let concerns = |(name, choice): &(&Str, &Choice)| {
            config.requests.contains(name) || config.requests.contains(&choice.name)
        };
        if config.requests.is_empty() || choices.iter().any(concerns) {
            found.push(("FromClaim", config.requests.clone(), config.opaque.as_ref()));
        }
    }
    let of_all = |requests: &[Str]| {
        choices.iter().all(|(name, choice)| requests.contains(name) || requests.contains(&choice.name))
    };
    found
        .into_iter()
        .map(|(source, requests, opaque)| {
            let mut config = Map::new();
            config.insert("source", source);
            if !requests.is_empty() && !of_all(&requests) {
                config.insert("requests", Value::list(requests));
            }
            if let Some(opaque) = opaque {
                config.insert("opaque", opaque.clone());
            }
            config.into()
        })
        .collect()
}

/// The nodes that can use all allocated devices.
fn node_selector(
    devices: &[&PublishedDevice],
    inventory: &Inventory,
    node: &CandidateNode<'_>,
) -> Result<Option<Value>, String> {
    let (mut fields, mut expressions): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for device in devices {
        let slice = inventory.slices.get(device.slice).map(|slice| &slice.reach);
        let reach = match slice {
            Some(NodeReach::PerDevice) | None => &device.reach,
            Some(reach) => reach,
        };
        if device.binds_to_node || matches!(reach, NodeReach::Node(_)) {
            let name = Value::map([
                ("key", Value::from("metadata.name")),
                ("operator", Value::from("In")),
                ("values", Value::list([node.name()])),
            ]);
            return Ok(Some(one_term(vec![name], Vec::new())));
        }
        let NodeReach::Selector(_, selector) = reach else { continue };
        match selector.list_at(&["nodeSelectorTerms"]) {
            [] => {}
            [term] => {
                add_new(term.list_at(&["matchFields"]), &mut fields);
                add_new(term.list_at(&["matchExpressions"]), &mut expressions);
            }
            terms => {
                return Err(format!("unsupported ResourceSlice.NodeSelector with {} terms", terms.len()));
            }
        }
    }
    let is_empty = fields.is_empty() && expressions.is_empty();
    Ok((!is_empty).then(|| one_term(fields, expressions)))
}

fn one_term(fields: Vec<Value>, expressions: Vec<Value>) -> Value {
    let mut term = Map::new();
    if !expressions.is_empty() {
        term.insert("matchExpressions", expressions);
    }
    if !fields.is_empty() {
        term.insert("matchFields", fields);
    }
    Value::map([("nodeSelectorTerms", Value::list([Value::from(term)]))])
}

fn add_new(from: &[Value], to: &mut Vec<Value>) {
    let key = |requirement: &Value| {
        let mut values: Vec<String> = requirement
            .list_at(&["values"])
            .iter()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect();
        values.sort();
        values.dedup();
        let text = |field: &str| requirement.str_at(&[field]).unwrap_or_default().to_owned();
        (text("key"), text("operator"), values)
    };
    for requirement in from {
        if !to.iter().any(|known| key(known) == key(requirement)) {
            to.push(requirement.clone());
        }
    }
}
