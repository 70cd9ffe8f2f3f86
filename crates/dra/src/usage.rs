//! What is taken of the devices there are: by claims that are allocated, and for a while by an allocation that is being tried.

use std::collections::HashMap;

use value::{Str, Value};

use crate::capacity;
use crate::inventory::{DeviceAt, Inventory};

/// What is taken.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    devices: Vec<DeviceUsage>,
    /// How much is taken of each counter.
    counters: Vec<i128>,
    /// What each claim holds, by its uid.
    claims: HashMap<Str, Vec<Holding>>,
}

#[derive(Clone, Debug, Default)]
struct DeviceUsage {
    /// How many hold it for themselves. More than one only if somebody else than us allocated.
    owners: u32,
    /// How many hold a share of it.
    shares: u32,
    /// How much is taken of each capacity, in the order of the device.
    taken: Vec<i128>,
}

/// What one result takes of a device. Admin access takes nothing and has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) device: DeviceAt,
    /// `None` takes all of it; else how much of each capacity, in the order of the device.
    pub(crate) share: Option<Vec<i128>>,
}

impl Usage {
    /// Nothing is taken.
    pub(crate) fn new(inventory: &Inventory) -> Usage {
        Usage {
            devices: vec![DeviceUsage::default(); inventory.devices.len()],
            counters: vec![0; inventory.counters.len()],
            claims: HashMap::new(),
        }
    }

    /// Whether somebody has the device for himself.
    pub(crate) fn is_owned(&self, device: DeviceAt) -> bool {
        self.devices.get(device).is_some_and(|usage| usage.owners > 0)
    }

    /// Whether somebody has a share of the device.
    pub(crate) fn is_shared(&self, device: DeviceAt) -> bool {
        self.devices.get(device).is_some_and(|usage| usage.shares > 0)
    }

    /// How much is taken of a capacity.
    pub(crate) fn taken(&self, device: DeviceAt, capacity: usize) -> i128 {
        self.devices.get(device).and_then(|usage| usage.taken.get(capacity)).copied().unwrap_or(0)
    }

    /// Whether there is enough of the counters a device takes. One that is in use has taken them.
    pub(crate) fn has_counters(&self, device: DeviceAt, inventory: &Inventory) -> bool {
        let in_use = self.devices.get(device).is_some_and(|usage| usage.owners + usage.shares > 0);
        let consumes = inventory.devices.get(device).map(|d| d.consumes.as_slice()).unwrap_or_default();
        in_use
            || consumes.iter().all(|(counter, amount)| {
                let there = inventory.counters.get(*counter).copied().unwrap_or(0);
                let taken = self.counters.get(*counter).copied().unwrap_or(0);
                taken.saturating_add(*amount) <= there
            })
    }

    /// Takes what a result takes.
    pub(crate) fn take(&mut self, holding: &Holding, inventory: &Inventory) {
        self.change(holding, inventory, 1);
    }

    /// Gives it back.
    pub(crate) fn give_back(&mut self, holding: &Holding, inventory: &Inventory) {
        self.change(holding, inventory, -1);
    }

    fn change(&mut self, holding: &Holding, inventory: &Inventory, sign: i32) {
        let Some(usage) = self.devices.get_mut(holding.device) else { return };
        let was_in_use = usage.owners + usage.shares > 0;
        let holders = if holding.share.is_some() { &mut usage.shares } else { &mut usage.owners };
        *holders = holders.saturating_add_signed(sign);
        for (i, amount) in holding.share.iter().flatten().enumerate() {
            if usage.taken.len() <= i {
                usage.taken.resize(i + 1, 0);
            }
            if let Some(taken) = usage.taken.get_mut(i) {
                *taken = taken.saturating_add(amount.saturating_mul(i128::from(sign)));
            }
        }
        let is_in_use = usage.owners + usage.shares > 0;
        if was_in_use == is_in_use {
            return;
        }
        let consumes =
            inventory.devices.get(holding.device).map(|d| d.consumes.as_slice()).unwrap_or_default();
        for (counter, amount) in consumes {
            if let Some(taken) = self.counters.get_mut(*counter) {
                *taken = taken.saturating_add(amount.saturating_mul(i128::from(sign)));
            }
        }
    }

    /// Replaces what a claim holds.
    pub(crate) fn set(&mut self, uid: &str, holdings: Vec<Holding>, inventory: &Inventory) {
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
pub(crate) fn holdings(claim: &Value, inventory: &Inventory) -> Vec<Holding> {
    let mut found = Vec::new();
    for result in claim.list_at(&["status", "allocation", "devices", "results"]) {
        let text = |field: &str| result.str_at(&[field]).unwrap_or_default();
        if result.bool_at(&["adminAccess"]) == Some(true) {
            continue;
        }
        let Some(at) = inventory.find(text("driver"), text("pool"), text("device")) else { continue };
        let share = result.str_at(&["shareID"]).map(|_| {
            let consumed = result.get("consumedCapacity");
            let names = inventory.devices.get(at).and_then(|device| device.capacity.as_ref().ok());
            names
                .into_iter()
                .flatten()
                .map(|(name, _)| {
                    let amount = consumed.and_then(|consumed| consumed.get(name));
                    capacity::quantity(amount).map_or(0, |amount| amount.nanos())
                })
                .collect()
        });
        found.push(Holding { device: at, share });
    }
    found
}
