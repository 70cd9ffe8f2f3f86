//! The observed DRA objects and the device allocator built from them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::meta;
use dra::{DeviceAllocator, DraGates};
use value::{Str, Value};

use super::cache::SchedulerCache;

/// The objects from which an allocator is built.
#[derive(Clone)]
pub(super) struct Devices {
    pub(super) classes: HashMap<Str, Arc<Value>>,
    pub(super) slices: HashMap<Str, Arc<Value>>,
    /// `DeviceTaintRule` objects by name.
    pub(super) taint_rules: HashMap<Str, Arc<Value>>,
    pub(super) claims: HashMap<(Str, Str), Arc<Value>>,
    gates: DraGates,
}

impl Devices {
    pub(super) fn new(gates: DraGates) -> Self {
        let (classes, slices, taint_rules) = (HashMap::new(), HashMap::new(), HashMap::new());
        Devices { classes, slices, taint_rules, claims: HashMap::new(), gates }
    }

    fn allocator(&self) -> DeviceAllocator {
        // Sorted by name, so that equal clusters produce equal allocations.
        let sorted = |map: &HashMap<Str, Arc<Value>>| {
            let mut all: Vec<(Str, Arc<Value>)> =
                map.iter().map(|(name, object)| (name.clone(), Arc::clone(object))).collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            all
        };
        let (classes, slices, rules) =
            (sorted(&self.classes), sorted(&self.slices), sorted(&self.taint_rules));
        let mut allocator = DeviceAllocator::new(
            classes.iter().map(|(_, class)| &**class),
            slices.iter().map(|(_, slice)| &**slice),
            self.gates,
        );
        allocator.taint(rules.iter().map(|(_, rule)| &**rule));
        #[expect(
            clippy::iter_over_hash_type,
            reason = "the order of claims does not affect the allocated devices"
        )]
        for claim in self.claims.values() {
            allocator.observe(claim);
        }
        allocator
    }
}

pub(super) fn apply_claim_change(allocator: &mut DeviceAllocator, claim: &Value, deleted: bool) {
    if deleted { allocator.forget(meta::uid(claim)) } else { allocator.observe(claim) }
}

/// Changes observed while the allocator was lent to a search.
#[derive(Default)]
pub(super) struct MissedChanges {
    /// Claims in order of observation, each with whether it was deleted.
    pub(super) claims: Vec<(Arc<Value>, bool)>,
    /// Classes, slices or taint rules changed, so the allocator must be rebuilt.
    pub(super) is_outdated: bool,
}

/// The allocator, taken out of [`SchedulerCache`] for a search without the lock. Dropping it applies the missed changes and returns it.
pub(super) struct LentAllocator<'c> {
    cache: &'c Mutex<SchedulerCache>,
    allocator: DeviceAllocator,
}

impl<'c> LentAllocator<'c> {
    /// Takes the allocator, or builds one from the observed objects. Only one pod is scheduled at a time, so it is not lent already.
    pub(super) fn take(cache: &'c Mutex<SchedulerCache>) -> Self {
        let (built, devices) = {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.lent = Some(MissedChanges::default());
            let built = cache.allocator.take();
            let devices = built.is_none().then(|| cache.devices.clone());
            (built, devices)
        };
        let allocator = built.or_else(|| devices.map(|devices| devices.allocator()));
        let allocator = allocator.unwrap_or_else(|| Devices::new(DraGates::default()).allocator());
        LentAllocator { cache, allocator }
    }

    pub(super) fn get(&mut self) -> &mut DeviceAllocator {
        &mut self.allocator
    }
}

impl Drop for LentAllocator<'_> {
    fn drop(&mut self) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let missed = cache.lent.take().unwrap_or_default();
        // After a panic it may hold devices that were not allocated to any claim.
        if missed.is_outdated || std::thread::panicking() {
            return;
        }
        let none = DeviceAllocator::new([], [], DraGates::default());
        let mut allocator = std::mem::replace(&mut self.allocator, none);
        for (claim, deleted) in &missed.claims {
            apply_claim_change(&mut allocator, claim, *deleted);
        }
        cache.allocator = Some(allocator);
    }
}
