//! Resource slices → the devices there are, in the order in which they are tried.
//!
//! A pool is what one driver publishes under one name, in one or more slices. Each node sees the slices that it can reach: of
//! those only the newest_generation generation counts, and only if all slices of the pool are there: while a driver replaces them, the pool is
//! not used. A node that sees a whole pool need not know that a newer generation of it is published elsewhere.

mod reach;

use std::collections::{BTreeMap, HashMap, HashSet};

use value::{Str, Value};

pub(crate) use self::reach::{NodeReach, Reachable, UnusablePool};
use crate::allocator::DraGates;
use crate::capacity::{self, Capacity};
use crate::claim::DeviceToleration;

/// The position of a device among all devices.
pub(crate) type DeviceIndex = usize;

/// Everything that is published.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) devices: Vec<PublishedDevice>,
    /// By driver and name.
    pub(crate) pools: Vec<Pool>,
    pub(crate) slices: Vec<PublishedSlice>,
    generations: Vec<PoolGeneration>,
    /// What there is of each counter.
    pub(crate) counters: Vec<SharedCounter>,
    by_name: HashMap<DeviceName, DeviceIndex>,
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
    /// The newest_generation generation that anybody publishes.
    newest_generation: i64,
}

/// The slices of a pool that were published together.
#[derive(Debug)]
struct PoolGeneration {
    number: i64,
    /// How many slices it has.
    slices: usize,
    /// What of their counters does not fit together.
    invalid: Option<String>,
    /// Whether a name is given to more than one device. That matters where a node reaches both.
    repeats_names: bool,
}

/// A counter that devices share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedCounter {
    /// How much there is.
    pub(crate) amount: i128,
    /// The generation of a pool it belongs to.
    pub(crate) generation: usize,
}

/// One slice.
#[derive(Debug)]
pub(crate) struct PublishedSlice {
    pub(crate) name: Str,
    pub(crate) pool: usize,
    generation: usize,
    /// How many slices it says its pool has.
    slice_count: i64,
    pub(crate) reach: NodeReach,
    pub(crate) devices: std::ops::Range<DeviceIndex>,
    /// Whether any of its devices must be made ready first.
    has_binding_conditions: bool,
}

/// One device.
#[derive(Debug)]
pub(crate) struct PublishedDevice {
    pub(crate) name: Str,
    pub(crate) pool: usize,
    pub(crate) slice: usize,
    pub(crate) generation: usize,
    /// The first device of this name in the pool, which is this one unless others than this node's publish it too: who uses one of
    /// them uses all of them.
    pub(crate) namesake: DeviceIndex,
    /// The others, if this is the first.
    pub(crate) namesakes: Vec<DeviceIndex>,
    /// What selectors see of it; an error if it cannot be read.
    pub(crate) selectable: Result<cel::device::SelectableDevice, String>,
    pub(crate) attributes: HashMap<Str, DeviceAttribute>,
    pub(crate) capacity: Result<Vec<(Str, Capacity)>, String>,
    /// Counters and how much of them the device takes.
    pub(crate) consumes: Vec<(usize, i128)>,
    /// Those that its driver publishes.
    pub(crate) taints: Vec<DeviceTaint>,
    /// Those that rules add.
    pub(crate) rule_taints: Vec<DeviceTaint>,
    /// Whether several claims may use it at the same time.
    pub(crate) allows_multiple: bool,
    pub(crate) reach: NodeReach,
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Option<Value>,
    pub(crate) binding_failure_conditions: Option<Value>,
}

/// The value of an attribute, as constraints compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceAttribute {
    String(Str),
    Int(i64),
    Bool(bool),
    Version(Str),
    /// Of a kind that constraints cannot compare.
    Other,
}

#[derive(Debug)]
pub(crate) struct DeviceTaint {
    pub(crate) key: Str,
    pub(crate) value: Str,
    pub(crate) effect: Str,
}

fn text(value: &Value, path: &[&str]) -> Str {
    value.str_at(path).unwrap_or_default().into()
}

impl Inventory {
    /// Reads slices.
    pub(crate) fn read<'a>(slices: impl IntoIterator<Item = &'a Value>, gates: DraGates) -> Inventory {
        let mut pools: BTreeMap<(Str, Str), Vec<&Value>> = BTreeMap::new();
        for slice in slices {
            let id = (text(slice, &["spec", "driver"]), text(slice, &["spec", "pool", "name"]));
            pools.entry(id).or_default().push(slice);
        }
        let mut inventory = Inventory::default();
        for ((driver, name), slices) in pools {
            inventory.add_pool(driver, name, slices, gates);
        }
        inventory
    }

    fn add_pool(&mut self, driver: Str, name: Str, slices: Vec<&Value>, gates: DraGates) {
        let pool = self.pools.len();
        let mut generations: BTreeMap<i64, Vec<&Value>> = BTreeMap::new();
        for slice in slices {
            let generation = slice.int_at(&["spec", "pool", "generation"]).unwrap_or(0);
            generations.entry(generation).or_default().push(slice);
        }
        let newest_generation = generations.last_key_value().map_or(0, |(number, _)| *number);
        for (number, mut slices) in generations {
            slices.sort_by_key(|slice| text(slice, &["metadata", "name"]));
            // A slice that says something unknown is left out, so that its pool is incomplete.
            slices.retain(|slice| gates.supports(slice));
            self.add_generation((&driver, &name), pool, number, &slices, gates);
        }
        self.pools.push(Pool { driver, name, newest_generation });
    }

    fn add_generation(
        &mut self,
        (driver, pool_name): (&Str, &Str),
        pool: usize,
        number: i64,
        slices: &[&Value],
        gates: DraGates,
    ) {
        let generation = self.generations.len();
        let mut wrong = None;
        let sets = counter_sets(slices, generation, &mut self.counters).unwrap_or_else(|why| {
            wrong = Some(why);
            HashMap::new()
        });
        let mut names = HashSet::new();
        let mut repeats_names = false;
        for slice in slices {
            let start = self.devices.len();
            // What has counters has no devices.
            let has_counters = !slice.list_at(&["spec", "sharedCounters"]).is_empty();
            for device in slice.list_at(&["spec", "devices"]).iter().filter(|_| !has_counters) {
                let consumes = consumed(device, &sets).unwrap_or_else(|why| {
                    wrong.get_or_insert(why);
                    Vec::new()
                });
                let mut device =
                    PublishedDevice { consumes, ..self.device(device, driver, pool, generation, gates) };
                repeats_names |= !names.insert(device.name.clone());
                let at = self.devices.len();
                let id = (driver.clone(), pool_name.clone(), device.name.clone());
                device.namesake = *self.by_name.entry(id).or_insert(at);
                if let Some(first) = self.devices.get_mut(device.namesake) {
                    first.namesakes.push(at);
                }
                self.devices.push(device);
            }
            let spec = slice.get("spec").unwrap_or(&Value::Null);
            let reach = NodeReach::of(spec);
            match &reach {
                NodeReach::Node(node) => {
                    self.by_node.entry(node.clone()).or_default().push(self.slices.len())
                }
                _ => self.shared.push(self.slices.len()),
            }
            self.slices.push(PublishedSlice {
                name: text(slice, &["metadata", "name"]),
                pool,
                generation,
                slice_count: slice.int_at(&["spec", "pool", "resourceSliceCount"]).unwrap_or(0),
                reach,
                devices: start..self.devices.len(),
                has_binding_conditions: has_binding_conditions(slice),
            });
        }
        self.generations.push(PoolGeneration { number, slices: slices.len(), invalid: wrong, repeats_names });
    }

    fn device(
        &self,
        device: &Value,
        driver: &str,
        pool: usize,
        generation: usize,
        gates: DraGates,
    ) -> PublishedDevice {
        let capacity = entries(device, "capacity")
            .map(|(name, capacity)| Ok((name.clone(), Capacity::read(capacity)?)))
            .collect::<Result<Vec<_>, String>>();
        let taints =
            device.list_at(&["taints"]).iter().filter(|_| gates.device_taints).map(DeviceTaint::read);
        let allows_multiple =
            gates.consumable_capacity && device.bool_at(&["allowMultipleAllocations"]) == Some(true);
        let list =
            |field: &str| device.get(field).filter(|list| list.as_list().is_some_and(|l| !l.is_empty()));
        PublishedDevice {
            name: text(device, &["name"]),
            pool,
            slice: self.slices.len(),
            generation,
            namesake: self.devices.len(),
            namesakes: Vec::new(),
            selectable: cel::device::SelectableDevice::read(driver, device),
            attributes: entries(device, "attributes")
                .map(|(name, attribute)| (name.clone(), DeviceAttribute::read(attribute)))
                .collect(),
            capacity,
            consumes: Vec::new(),
            taints: taints.collect(),
            rule_taints: Vec::new(),
            allows_multiple,
            reach: NodeReach::of(device),
            binds_to_node: device.bool_at(&["bindsToNode"]) == Some(true),
            binding_conditions: list("bindingConditions").cloned(),
            binding_failure_conditions: list("bindingFailureConditions").cloned(),
        }
    }

    /// The device with a name.
    pub(crate) fn find(&self, driver: &str, pool: &str, device: &str) -> Option<DeviceIndex> {
        self.by_name.get(&(driver.into(), pool.into(), device.into())).copied()
    }

    /// Taints devices by rules, and by no others.
    pub(crate) fn taint<'a>(&mut self, rules: impl IntoIterator<Item = &'a Value>) {
        self.devices.iter_mut().for_each(|device| device.rule_taints.clear());
        for rule in rules {
            let wanted = |field: &str| rule.str_at(&["spec", "deviceSelector", field]);
            let Some(taint) = rule.at(&["spec", "taint"]) else { continue };
            for device in &mut self.devices {
                let Some(pool) = self.pools.get(device.pool) else { continue };
                let names = [("driver", &pool.driver), ("pool", &pool.name), ("device", &device.name)];
                if names.iter().all(|(field, name)| wanted(field).is_none_or(|wanted| wanted == *name)) {
                    device.rule_taints.push(DeviceTaint::read(taint));
                }
            }
        }
    }

    /// The driver of a device.
    pub(crate) fn driver(&self, device: &PublishedDevice) -> &str {
        self.pools.get(device.pool).map_or("", |pool| pool.driver.as_str())
    }

    /// Driver, pool and name of a device.
    pub(crate) fn full_name(&self, device: &PublishedDevice) -> String {
        let pool = self.pools.get(device.pool).map_or("", |pool| pool.name.as_str());
        format!("{}/{pool}/{}", self.driver(device), device.name)
    }
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

/// The counters that a device takes of.
fn consumed(device: &Value, sets: &CounterSets) -> Result<Vec<(usize, i128)>, String> {
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
    Ok(consumes)
}

fn counter_sets(
    slices: &[&Value],
    generation: usize,
    counters: &mut Vec<SharedCounter>,
) -> Result<CounterSets, String> {
    let mut sets = CounterSets::new();
    for set in slices.iter().flat_map(|slice| slice.list_at(&["spec", "sharedCounters"])) {
        let name = text(set, &["name"]);
        let mut positions = HashMap::new();
        for (counter, amount) in entries(set, "counters") {
            positions.insert(counter.clone(), counters.len());
            let amount = capacity::quantity(amount.get("value"))?.nanos();
            counters.push(SharedCounter { amount, generation });
        }
        if sets.insert(name.clone(), positions).is_some() {
            return Err(format!("duplicate counter set name {name}"));
        }
    }
    Ok(sets)
}

impl DeviceAttribute {
    fn read(attribute: &Value) -> DeviceAttribute {
        let string = |field: &str| attribute.str_at(&[field]).map(Str::from);
        if let Some(text) = string("string") {
            DeviceAttribute::String(text)
        } else if let Some(number) = attribute.int_at(&["int"]) {
            DeviceAttribute::Int(number)
        } else if let Some(flag) = attribute.bool_at(&["bool"]) {
            DeviceAttribute::Bool(flag)
        } else if let Some(version) = string("version") {
            DeviceAttribute::Version(version)
        } else {
            DeviceAttribute::Other
        }
    }
}

impl DeviceTaint {
    fn read(taint: &Value) -> DeviceTaint {
        DeviceTaint {
            key: text(taint, &["key"]),
            value: text(taint, &["value"]),
            effect: text(taint, &["effect"]),
        }
    }

    /// Whether it does not matter to somebody with these tolerations. Effects that are not known do not matter to anybody.
    pub(crate) fn is_tolerated(&self, tolerations: &[DeviceToleration]) -> bool {
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

impl PublishedDevice {
    /// The value of an attribute by its full name; the driver's own may be published without their domain.
    pub(crate) fn attribute(&self, name: &str, driver: &str) -> Option<&DeviceAttribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            if domain == driver { self.attributes.get(id) } else { None }
        })
    }
}
