//! Usage of devices: by allocated claims, and temporarily by a running search.

use std::collections::{BTreeMap, HashMap};

use value::{Str, Value};

use crate::capacity;
use crate::inventory::{DeviceIndex, Inventory, PublishedDevice};

/// Usage of all devices and counters.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    devices: Vec<DeviceUsage>,
    /// Amount in use of each counter, in billionths.
    counters: Vec<i128>,
    /// Number of overdrawn counters per pool generation. Counters can be overdrawn if another scheduler allocates, or
    /// slices change.
    overdrawn: HashMap<usize, usize>,
    /// Devices held by each claim, by uid.
    claims: HashMap<Str, Vec<DeviceHolding>>,
}

#[derive(Clone, Debug, Default)]
struct DeviceUsage {
    /// Number of exclusive users. More than one is possible only if another scheduler allocates too.
    owners: u32,
    /// Number of claims that share the device.
    shares: u32,
    /// Amount in use of each capacity, in billionths; zeros are left out.
    taken: BTreeMap<Str, i128>,
}

/// The usage of a device by one allocation result. Admin access has no usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceHolding {
    /// Index of the first device with this name.
    pub(crate) device: DeviceIndex,
    /// `None` for exclusive use, else the amounts of each capacity in billionths.
    pub(crate) share: Option<Vec<(Str, i128)>>,
}

impl Usage {
    /// Usage with all devices free.
    pub(crate) fn new(inventory: &Inventory) -> Usage {
        Usage {
            devices: vec![DeviceUsage::default(); inventory.devices.len()],
            counters: vec![0; inventory.counters.len()],
            overdrawn: HashMap::new(),
            claims: HashMap::new(),
        }
    }

    /// Usage of a device, shared by all devices with its name.
    fn of(&self, device: &PublishedDevice) -> Option<&DeviceUsage> {
        self.devices.get(device.namesake)
    }

    /// True if a claim uses the device exclusively.
    pub(crate) fn is_owned(&self, device: &PublishedDevice) -> bool {
        self.of(device).is_some_and(|usage| usage.owners > 0)
    }

    /// True if claims share the device.
    pub(crate) fn is_shared(&self, device: &PublishedDevice) -> bool {
        self.of(device).is_some_and(|usage| usage.shares > 0)
    }

    /// Amount in use of a capacity, in billionths.
    pub(crate) fn consumed_capacity(&self, device: &PublishedDevice, capacity: &str) -> i128 {
        self.of(device).and_then(|usage| usage.taken.get(capacity)).copied().unwrap_or(0)
    }

    /// True if the counters that a device consumes suffice. A device in use has consumed them already. If any counter
    /// of the pool generation is overdrawn, no device may consume counters.
    pub(crate) fn has_counters(&self, device: &PublishedDevice, inventory: &Inventory) -> bool {
        let is_in_use = self.of(device).is_some_and(|usage| usage.owners + usage.shares > 0);
        if is_in_use || device.consumes.is_empty() {
            return true;
        }
        !self.overdrawn.contains_key(&device.generation)
            && device.consumes.iter().all(|(counter, amount)| {
                let there = inventory.counters.get(*counter).map_or(0, |counter| counter.amount);
                let taken = self.counters.get(*counter).copied().unwrap_or(0);
                taken.saturating_add(*amount) <= there
            })
    }

    /// Adds the usage of one result.
    pub(crate) fn take(&mut self, holding: &DeviceHolding, inventory: &Inventory) {
        self.change(holding, inventory, 1);
    }

    /// Removes the usage of one result.
    pub(crate) fn give_back(&mut self, holding: &DeviceHolding, inventory: &Inventory) {
        self.change(holding, inventory, -1);
    }

    fn change(&mut self, holding: &DeviceHolding, inventory: &Inventory, sign: i32) {
        let Some(first) = inventory.devices.get(holding.device) else { return };
        let Some(usage) = self.devices.get_mut(holding.device) else { return };
        let was_in_use = usage.owners + usage.shares > 0;
        let holders = if holding.share.is_some() { &mut usage.shares } else { &mut usage.owners };
        *holders = holders.saturating_add_signed(sign);
        for (capacity, amount) in holding.share.iter().flatten() {
            let amount = amount.saturating_mul(i128::from(sign));
            let taken = usage.taken.entry(capacity.clone()).or_insert(0);
            *taken = taken.saturating_add(amount);
            if *taken == 0 {
                usage.taken.remove(capacity);
            }
        }
        let is_in_use = usage.owners + usage.shares > 0;
        if was_in_use == is_in_use {
            return;
        }
        let others = first.namesakes.iter().filter_map(|other| inventory.devices.get(*other));
        for (counter, amount) in std::iter::once(first).chain(others).flat_map(|device| &device.consumes) {
            self.count(*counter, amount.saturating_mul(i128::from(sign)), inventory);
        }
    }

    fn count(&mut self, at: usize, more: i128, inventory: &Inventory) {
        let (Some(taken), Some(counter)) = (self.counters.get_mut(at), inventory.counters.get(at)) else {
            return;
        };
        let was_overdrawn = *taken > counter.amount;
        *taken = taken.saturating_add(more);
        let is_overdrawn = *taken > counter.amount;
        if was_overdrawn == is_overdrawn {
            return;
        }
        let overdrawn = self.overdrawn.entry(counter.generation).or_insert(0);
        *overdrawn = if is_overdrawn { *overdrawn + 1 } else { overdrawn.saturating_sub(1) };
        if *overdrawn == 0 {
            self.overdrawn.remove(&counter.generation);
        }
    }

    /// Replaces the usage of a claim.
    pub(crate) fn set(&mut self, uid: &str, holdings: Vec<DeviceHolding>, inventory: &Inventory) {
        if self.claims.get(uid).is_some_and(|before| *before == holdings) {
            return;
        }
        for holding in self.claims.remove(uid).unwrap_or_default() {
            self.give_back(&holding, inventory);
        }
        for holding in &holdings {
            self.take(holding, inventory);
        }
        if !holdings.is_empty() {
            self.claims.insert(uid.into(), holdings);
        }
    }
}

/// Usage of a stored claim's results. Devices that are no longer published are left out.
pub(crate) fn holdings(claim: &Value, inventory: &Inventory) -> Vec<DeviceHolding> {
    let mut found = Vec::new();
    for result in claim.list_at(&["status", "allocation", "devices", "results"]) {
        let text = |field: &str| result.str_at(&[field]).unwrap_or_default();
        if result.bool_at(&["adminAccess"]) == Some(true) {
            continue;
        }
        let Some(at) = inventory.find(text("driver"), text("pool"), text("device")) else { continue };
        let share = result.str_at(&["shareID"]).map(|_| {
            let consumed = result.get("consumedCapacity").and_then(Value::as_map);
            consumed
                .into_iter()
                .flat_map(value::Map::iter)
                .map(|(name, amount)| {
                    (name.clone(), capacity::quantity(Some(amount)).map_or(0, |amount| amount.nanos()))
                })
                .collect()
        });
        found.push(DeviceHolding { device: at, share });
    }
    found
}

#[cfg(test)]
mod tests;
