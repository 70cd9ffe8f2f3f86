//! What is taken of the devices there are: by claims that are allocated, and for a while by an allocation that is being tried.

use std::collections::{BTreeMap, HashMap};

use value::{Str, Value};

use crate::capacity;
use crate::inventory::{DeviceIndex, Inventory, PublishedDevice};

/// What is taken.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    devices: Vec<DeviceUsage>,
    /// How much is taken of each counter.
    counters: Vec<i128>,
    /// How many counters of each generation of a pool more is taken of than there is: somebody else allocated, or slices changed.
    overdrawn: HashMap<usize, usize>,
    /// What each claim holds, by its uid.
    claims: HashMap<Str, Vec<DeviceHolding>>,
}

#[derive(Clone, Debug, Default)]
struct DeviceUsage {
    /// How many hold it for themselves. More than one only if somebody else than us allocated.
    owners: u32,
    /// How many hold a share of it.
    shares: u32,
    /// How much is taken of each capacity of which anything is.
    taken: BTreeMap<Str, i128>,
}

/// What one result takes of a device. Admin access takes nothing and has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceHolding {
    /// The first of its name.
    pub(crate) device: DeviceIndex,
    /// `None` takes all of it; else how much of each capacity.
    pub(crate) share: Option<Vec<(Str, i128)>>,
}

impl Usage {
    /// Nothing is taken.
    pub(crate) fn new(inventory: &Inventory) -> Usage {
        Usage {
            devices: vec![DeviceUsage::default(); inventory.devices.len()],
            counters: vec![0; inventory.counters.len()],
            overdrawn: HashMap::new(),
            claims: HashMap::new(),
        }
    }

    /// The same for all devices of one name.
    fn of(&self, device: &PublishedDevice) -> Option<&DeviceUsage> {
        self.devices.get(device.namesake)
    }

    /// Whether somebody has the device for himself.
    pub(crate) fn is_owned(&self, device: &PublishedDevice) -> bool {
        self.of(device).is_some_and(|usage| usage.owners > 0)
    }

    /// Whether somebody has a share of the device.
    pub(crate) fn is_shared(&self, device: &PublishedDevice) -> bool {
        self.of(device).is_some_and(|usage| usage.shares > 0)
    }

    /// How much is taken of a capacity.
    pub(crate) fn taken(&self, device: &PublishedDevice, capacity: &str) -> i128 {
        self.of(device).and_then(|usage| usage.taken.get(capacity)).copied().unwrap_or(0)
    }

    /// Whether there is enough of the counters a device takes. One that is in use has taken them; where more is taken of any of a
    /// pool's counters than there is, none of them is given.
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

    /// Takes what a result takes.
    pub(crate) fn take(&mut self, holding: &DeviceHolding, inventory: &Inventory) {
        self.change(holding, inventory, 1);
    }

    /// Gives it back.
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

    /// Replaces what a claim holds.
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

/// What the results of a stored claim take. Devices that are no longer published are left out.
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
