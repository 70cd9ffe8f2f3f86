//! The inventory: the devices of all ResourceSlices, in the order in which a search tries them.
//!
//! A pool consists of the slices that one driver publishes under one pool name. A node sees the slices it can reach;
//! of these only the newest generation counts, and only if all slices of the pool are there. While a driver replaces
//! slices, the pool is not used. A node that sees a complete pool need not know that a newer generation is published
//! elsewhere.

mod reach;

use std::collections::{BTreeMap, HashMap, HashSet};

use value::{Str, Value};

pub(crate) use self::reach::{NodeReach, Reachable, UnusablePool};
use crate::allocator::DraGates;
use crate::capacity::{self, Capacity};
use crate::claim::DeviceToleration;

/// Index of a device in [`Inventory::devices`].
pub(crate) type DeviceIndex = usize;

/// All published slices, pools and devices.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) devices: Vec<PublishedDevice>,
    /// Sorted by driver and pool name.
    pub(crate) pools: Vec<Pool>,
    pub(crate) slices: Vec<PublishedSlice>,
    generations: Vec<PoolGeneration>,
    /// Total amount of each shared counter.
    pub(crate) counters: Vec<SharedCounter>,
    by_name: HashMap<DeviceName, DeviceIndex>,
    /// Slices with a `nodeName`, by that name.
    by_node: HashMap<Str, Vec<usize>>,
    /// Slices that more than one node may reach.
    shared: Vec<usize>,
}

/// Driver, pool and device name.
pub(crate) type DeviceName = (Str, Str, Str);

/// A resource pool: the devices of a driver under one pool name.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) driver: Str,
    pub(crate) name: Str,
    /// The newest generation in any slice of the pool.
    newest_generation: i64,
}

/// The slices of one generation of a pool.
#[derive(Debug)]
struct PoolGeneration {
    number: i64,
    /// Number of slices published.
    slices: usize,
    /// Error in the counters of these slices, which makes the generation unusable.
    invalid: Option<String>,
    /// A device name occurs more than once, which is an error for nodes that reach both devices.
    repeats_names: bool,
}

/// A counter shared by the devices of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedCounter {
    /// Total amount in billionths.
    pub(crate) amount: i128,
    /// Index of the pool generation it belongs to.
    pub(crate) generation: usize,
}

/// The parts of a ResourceSlice that allocation needs.
#[derive(Debug)]
pub(crate) struct PublishedSlice {
    pub(crate) name: Str,
    pub(crate) pool: usize,
    generation: usize,
    /// `resourceSliceCount`: the number of slices of a complete pool.
    slice_count: i64,
    pub(crate) reach: NodeReach,
    pub(crate) devices: std::ops::Range<DeviceIndex>,
    has_binding_conditions: bool,
}

#[derive(Debug)]
pub(crate) struct PublishedDevice {
    pub(crate) name: Str,
    pub(crate) pool: usize,
    pub(crate) slice: usize,
    pub(crate) generation: usize,
    /// Index of the first device with this name in the pool. It differs from the device's own index if other nodes'
    /// slices publish the name too; such devices share their usage.
    pub(crate) namesake: DeviceIndex,
    /// Indices of further devices with this name, if this is the first.
    pub(crate) namesakes: Vec<DeviceIndex>,
    /// The device as selectors see it, or the error of reading it.
    pub(crate) selectable: Result<cel::device::SelectableDevice, String>,
    pub(crate) attributes: HashMap<Str, DeviceAttribute>,
    pub(crate) capacity: Result<Vec<(Str, Capacity)>, String>,
    /// Consumed counters by index, with amounts in billionths.
    pub(crate) consumes: Vec<(usize, i128)>,
    /// Taints in the slice.
    pub(crate) taints: Vec<DeviceTaint>,
    /// Taints that DeviceTaintRules add.
    pub(crate) rule_taints: Vec<DeviceTaint>,
    /// `allowMultipleAllocations`: several claims may share the device.
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
    /// A type that constraints cannot compare.
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
    /// Reads all slices; those that use disabled features are left out.
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
            // Without a slice that uses unsupported features, its pool is incomplete and not used.
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
            // A slice with shared counters has no devices.
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
                    self.by_node.entry(node.clone()).or_default().push(self.slices.len());
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

    pub(crate) fn find(&self, driver: &str, pool: &str, device: &str) -> Option<DeviceIndex> {
        self.by_name.get(&(driver.into(), pool.into(), device.into())).copied()
    }

    /// Replaces the taints of DeviceTaintRules by those of `rules`.
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

    /// Driver name of a device.
    pub(crate) fn driver(&self, device: &PublishedDevice) -> &str {
        self.pools.get(device.pool).map_or("", |pool| pool.driver.as_str())
    }

    /// A device as `driver/pool/device`, for messages.
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

/// Counter indices by counter set and counter name.
type CounterSets = HashMap<Str, HashMap<Str, usize>>;

/// Reads the counters that a device consumes.
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

    /// True if a toleration matches, or the effect is unknown and so has no influence.
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
    /// An attribute by its qualified name. Attributes of the driver's own domain may be published without the domain.
    pub(crate) fn attribute(&self, name: &str, driver: &str) -> Option<&DeviceAttribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            if domain == driver { self.attributes.get(id) } else { None }
        })
    }
}
