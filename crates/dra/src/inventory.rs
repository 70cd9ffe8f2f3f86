//! Resource slices → the devices there are, in the order in which they are tried.
//!
//! A pool is what one driver publishes under one name, in one or more slices. Only the slices of its newest generation count,
//! and only if all of them are there: while a driver replaces them, the pool is not used.

use std::collections::{BTreeMap, HashMap, HashSet};

use value::{Str, Value};

use crate::allocator::Gates;
use crate::capacity::{self, Capacity};
use crate::claim::Toleration;
use crate::node::{Node, NodeSelector};

/// The position of a device among all devices.
pub(crate) type DeviceAt = usize;

/// Everything that is published.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) devices: Vec<Device>,
    /// In the order in which they are tried.
    pub(crate) pools: Vec<Pool>,
    pub(crate) slices: Vec<Slice>,
    /// How much there is of each counter.
    pub(crate) counters: Vec<i128>,
    by_name: HashMap<DeviceName, DeviceAt>,
    /// The slices of one node.
    by_node: HashMap<Str, Vec<usize>>,
    /// The slices that several nodes may reach.
    shared: Vec<usize>,
}

/// The name of a device: driver, pool and device.
pub(crate) type DeviceName = (Str, Str, Str);

/// The devices of a driver under one name.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) driver: Str,
    pub(crate) name: Str,
    pub(crate) state: PoolState,
}

/// Whether the devices of a pool can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    Usable,
    /// Slices are missing.
    Incomplete,
    /// What the slices say does not fit together.
    Invalid(String),
}

/// One slice.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) name: Str,
    pub(crate) pool: usize,
    pub(crate) reach: Reach,
    pub(crate) devices: std::ops::Range<DeviceAt>,
}

/// Which nodes can use devices.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    Node(Str),
    /// The selector, as it was read and as it was written.
    Selector(Result<NodeSelector, String>, Value),
    Everywhere,
    PerDevice,
    /// Said in a way that is not known.
    Unknown,
}

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: Str,
    pub(crate) pool: usize,
    pub(crate) slice: usize,
    /// What selectors see of it; an error if it cannot be read.
    pub(crate) seen: Result<cel::device::Device, String>,
    pub(crate) attributes: HashMap<Str, Attribute>,
    pub(crate) capacity: Result<Vec<(Str, Capacity)>, String>,
    /// Counters and how much of them the device takes.
    pub(crate) consumes: Vec<(usize, i128)>,
    /// Those that its driver publishes.
    pub(crate) taints: Vec<Taint>,
    /// Those that rules add.
    pub(crate) ruled: Vec<Taint>,
    /// Whether several claims may use it at the same time.
    pub(crate) multiple: bool,
    pub(crate) reach: Reach,
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Option<Value>,
    pub(crate) binding_failure_conditions: Option<Value>,
}

/// The value of an attribute, as constraints compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    String(Str),
    Int(i64),
    Bool(bool),
    Version(Str),
    /// Of a kind that constraints cannot compare.
    Other,
}

#[derive(Debug)]
pub(crate) struct Taint {
    pub(crate) key: Str,
    pub(crate) value: Str,
    pub(crate) effect: Str,
}

fn text(value: &Value, path: &[&str]) -> Str {
    value.str_at(path).unwrap_or_default().into()
}

impl Reach {
    fn of(holder: &Value) -> Reach {
        let name = text(holder, &["nodeName"]);
        let is_set = |field: &str| holder.bool_at(&[field]) == Some(true);
        if !name.is_empty() {
            Reach::Node(name)
        } else if is_set("allNodes") {
            Reach::Everywhere
        } else if let Some(selector) = holder.get("nodeSelector").filter(|selector| !selector.is_null()) {
            Reach::Selector(NodeSelector::read(selector).map_err(|why| why.to_string()), selector.clone())
        } else if is_set("perDeviceNodeSelection") {
            Reach::PerDevice
        } else {
            Reach::Unknown
        }
    }

    fn includes(&self, node: &Node<'_>) -> Result<bool, String> {
        match self {
            Reach::Node(name) => Ok(name == node.name()),
            Reach::Selector(selector, _) => {
                selector.as_ref().map(|selector| selector.matches(node)).map_err(Clone::clone)
            }
            Reach::Everywhere => Ok(true),
            Reach::PerDevice | Reach::Unknown => Ok(false),
        }
    }
}

impl Inventory {
    /// Reads slices.
    pub(crate) fn read<'a>(slices: impl IntoIterator<Item = &'a Value>, gates: Gates) -> Inventory {
        let mut pools: BTreeMap<(Str, Str), Vec<&Value>> = BTreeMap::new();
        for slice in slices {
            let id = (text(slice, &["spec", "driver"]), text(slice, &["spec", "pool", "name"]));
            pools.entry(id).or_default().push(slice);
        }
        let mut inventory = Inventory::default();
        // Devices that must be made ready first are tried last.
        let (waiting, ready): (Vec<_>, Vec<_>) = pools
            .into_iter()
            .partition(|(_, slices)| slices.iter().any(|slice| has_binding_conditions(slice)));
        for ((driver, name), slices) in ready.into_iter().chain(waiting) {
            inventory.add_pool(driver, name, slices, gates);
        }
        inventory
    }

    fn add_pool(&mut self, driver: Str, name: Str, slices: Vec<&Value>, gates: Gates) {
        let generation = |slice: &Value| slice.int_at(&["spec", "pool", "generation"]).unwrap_or(0);
        let newest = slices.iter().map(|slice| generation(slice)).max().unwrap_or(0);
        let mut slices: Vec<&Value> =
            slices.into_iter().filter(|slice| generation(slice) == newest).collect();
        slices.sort_by_key(|slice| text(slice, &["metadata", "name"]));
        let wanted = slices.first().and_then(|slice| slice.int_at(&["spec", "pool", "resourceSliceCount"]));
        // A slice that says something unknown is left out, so that its pool is incomplete.
        slices.retain(|slice| gates.understands(slice));
        let complete = wanted == i64::try_from(slices.len()).ok();
        let at = self.pools.len();
        let mut state = if complete { PoolState::Usable } else { PoolState::Incomplete };
        let sets = match counter_sets(&slices, &mut self.counters) {
            Ok(sets) => sets,
            Err(why) => {
                state = invalid(state, why);
                HashMap::new()
            }
        };
        let mut names = HashSet::new();
        for slice in slices {
            let start = self.devices.len();
            for device in slice.list_at(&["spec", "devices"]) {
                let device = match self.device(device, &driver, at, &sets, gates) {
                    Ok(device) => device,
                    Err(why) => {
                        state = invalid(state, why);
                        continue;
                    }
                };
                if !names.insert(device.name.clone()) {
                    state = invalid(state, format!("duplicate device name {}", device.name));
                    continue;
                }
                let id = (driver.clone(), name.clone(), device.name.clone());
                self.by_name.insert(id, self.devices.len());
                self.devices.push(device);
            }
            let spec = slice.get("spec").unwrap_or(&Value::Null);
            let reach = Reach::of(spec);
            match &reach {
                Reach::Node(node) => self.by_node.entry(node.clone()).or_default().push(self.slices.len()),
                _ => self.shared.push(self.slices.len()),
            }
            let name = text(slice, &["metadata", "name"]);
            self.slices.push(Slice { name, pool: at, reach, devices: start..self.devices.len() });
        }
        self.pools.push(Pool { driver, name, state });
    }

    fn device(
        &self,
        device: &Value,
        driver: &str,
        pool: usize,
        sets: &CounterSets,
        gates: Gates,
    ) -> Result<Device, String> {
        let mut consumes = Vec::new();
        for consumption in device.list_at(&["consumesCounters"]) {
            let set = text(consumption, &["counterSet"]);
            let Some(counters) = sets.get(&set) else { return Err(format!("counter set {set} not found")) };
            for (counter, amount) in entries(consumption, "counters") {
                let Some(at) = counters.get(counter) else {
                    return Err(format!("counter {counter} not found in counter set {set}"));
                };
                consumes.push((*at, capacity::quantity(amount.get("value"))?.nanos()));
            }
        }
        let capacity = entries(device, "capacity")
            .map(|(name, capacity)| Ok((name.clone(), Capacity::read(capacity)?)))
            .collect::<Result<Vec<_>, String>>();
        let taints = device.list_at(&["taints"]).iter().filter(|_| gates.device_taints).map(Taint::read);
        let multiple =
            gates.consumable_capacity && device.bool_at(&["allowMultipleAllocations"]) == Some(true);
        let list =
            |field: &str| device.get(field).filter(|list| list.as_list().is_some_and(|l| !l.is_empty()));
        Ok(Device {
            name: text(device, &["name"]),
            pool,
            slice: self.slices.len(),
            seen: cel::device::Device::read(driver, device),
            attributes: entries(device, "attributes")
                .map(|(name, attribute)| (name.clone(), Attribute::read(attribute)))
                .collect(),
            capacity,
            consumes,
            taints: taints.collect(),
            ruled: Vec::new(),
            multiple,
            reach: Reach::of(device),
            binds_to_node: device.bool_at(&["bindsToNode"]) == Some(true),
            binding_conditions: list("bindingConditions").cloned(),
            binding_failure_conditions: list("bindingFailureConditions").cloned(),
        })
    }

    /// The device with a name.
    pub(crate) fn find(&self, driver: &str, pool: &str, device: &str) -> Option<DeviceAt> {
        self.by_name.get(&(driver.into(), pool.into(), device.into())).copied()
    }

    /// Taints devices by rules, and by no others.
    pub(crate) fn taint<'a>(&mut self, rules: impl IntoIterator<Item = &'a Value>) {
        self.devices.iter_mut().for_each(|device| device.ruled.clear());
        for rule in rules {
            let wanted = |field: &str| rule.str_at(&["spec", "deviceSelector", field]);
            let Some(taint) = rule.at(&["spec", "taint"]) else { continue };
            for device in &mut self.devices {
                let Some(pool) = self.pools.get(device.pool) else { continue };
                let names = [("driver", &pool.driver), ("pool", &pool.name), ("device", &device.name)];
                if names.iter().all(|(field, name)| wanted(field).is_none_or(|wanted| wanted == *name)) {
                    device.ruled.push(Taint::read(taint));
                }
            }
        }
    }

    /// The driver of a device.
    pub(crate) fn driver(&self, device: &Device) -> &str {
        self.pools.get(device.pool).map_or("", |pool| pool.driver.as_str())
    }

    /// Driver, pool and name of a device.
    pub(crate) fn full_name(&self, device: &Device) -> String {
        let pool = self.pools.get(device.pool).map_or("", |pool| pool.name.as_str());
        format!("{}/{pool}/{}", self.driver(device), device.name)
    }

    /// What a node can reach: its devices in the order in which they are tried, and the pools that cannot be used.
    pub(crate) fn on(&self, node: &Node<'_>) -> Result<Reachable, crate::Error> {
        let own = self.by_node.get(node.name()).map(Vec::as_slice).unwrap_or_default();
        // Both lists are in the order of pools, and of names within a pool.
        let mut slices = Vec::with_capacity(own.len());
        let mut own = own.iter().peekable();
        for shared in &self.shared {
            while let Some(next) = own.next_if(|next| *next < shared) {
                slices.push(*next);
            }
            slices.push(*shared);
        }
        slices.extend(own);
        let mut reachable = Reachable::default();
        for at in slices {
            let Some(slice) = self.slices.get(at) else { continue };
            let wrong = |reason: String| crate::Error::Slice { slice: slice.name.clone(), reason };
            let devices = self.devices.get(slice.devices.clone()).unwrap_or_default();
            let before = reachable.devices.len();
            let mut any = false;
            if matches!(slice.reach, Reach::PerDevice) {
                for (position, device) in slice.devices.clone().zip(devices) {
                    if device.reach.includes(node).map_err(wrong)? {
                        reachable.devices.push(position);
                        any = true;
                    }
                }
            } else if slice.reach.includes(node).map_err(wrong)? {
                reachable.devices.extend(slice.devices.clone());
                any = true;
            }
            match self.pools.get(slice.pool) {
                Some(Pool { state: PoolState::Usable, .. }) => {}
                Some(_) if any => {
                    reachable.devices.truncate(before);
                    if !reachable.unusable.contains(&slice.pool) {
                        reachable.unusable.push(slice.pool);
                    }
                }
                _ => reachable.devices.truncate(before),
            }
        }
        Ok(reachable)
    }
}

/// What a node can reach.
#[derive(Debug, Default)]
pub(crate) struct Reachable {
    pub(crate) devices: Vec<DeviceAt>,
    pub(crate) unusable: Vec<usize>,
}

fn invalid(state: PoolState, why: String) -> PoolState {
    // An incomplete pool is not judged: what is missing may make sense of it.
    if state == PoolState::Usable { PoolState::Invalid(why) } else { state }
}

fn has_binding_conditions(slice: &Value) -> bool {
    slice
        .list_at(&["spec", "devices"])
        .iter()
        .any(|device| device.get("bindingConditions").is_some_and(|conditions| !conditions.is_null()))
}

fn entries<'v>(holder: &'v Value, field: &str) -> impl Iterator<Item = (&'v Str, &'v Value)> {
    holder.get(field).and_then(Value::as_map).into_iter().flat_map(value::Map::iter)
}

/// Positions of counters, by set and name.
type CounterSets = HashMap<Str, HashMap<Str, usize>>;

fn counter_sets(slices: &[&Value], counters: &mut Vec<i128>) -> Result<CounterSets, String> {
    let mut sets = CounterSets::new();
    for set in slices.iter().flat_map(|slice| slice.list_at(&["spec", "sharedCounters"])) {
        let name = text(set, &["name"]);
        let mut positions = HashMap::new();
        for (counter, amount) in entries(set, "counters") {
            positions.insert(counter.clone(), counters.len());
            counters.push(capacity::quantity(amount.get("value"))?.nanos());
        }
        if sets.insert(name.clone(), positions).is_some() {
            return Err(format!("duplicate counter set name {name}"));
        }
    }
    Ok(sets)
}

impl Attribute {
    fn read(attribute: &Value) -> Attribute {
        let string = |field: &str| attribute.str_at(&[field]).map(Str::from);
        if let Some(text) = string("string") {
            Attribute::String(text)
        } else if let Some(number) = attribute.int_at(&["int"]) {
            Attribute::Int(number)
        } else if let Some(flag) = attribute.bool_at(&["bool"]) {
            Attribute::Bool(flag)
        } else if let Some(version) = string("version") {
            Attribute::Version(version)
        } else {
            Attribute::Other
        }
    }
}

impl Taint {
    fn read(taint: &Value) -> Taint {
        Taint { key: text(taint, &["key"]), value: text(taint, &["value"]), effect: text(taint, &["effect"]) }
    }

    /// Whether it does not matter to somebody with these tolerations. Effects that are not known do not matter to anybody.
    pub(crate) fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        if !matches!(self.effect.as_str(), "NoSchedule" | "NoExecute") {
            return true;
        }
        tolerations.iter().any(|toleration| {
            (toleration.effect.is_empty() || toleration.effect == self.effect)
                && (toleration.key.is_empty() || toleration.key == self.key)
                && (toleration.any_value || toleration.value == self.value)
        })
    }
}

impl Device {
    /// The value of an attribute by its full name; the driver's own may be published without their domain.
    pub(crate) fn attribute(&self, name: &str, driver: &str) -> Option<&Attribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            if domain == driver { self.attributes.get(id) } else { None }
        })
    }
}
