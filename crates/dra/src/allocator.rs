//! The allocator: device classes, inventory, usage, and the entry point of a search.

use std::collections::HashMap;

use value::{Str, Value};

use crate::allocation::ClaimAllocation;
use crate::budget::AllocationBudget;
use crate::claim::PendingClaim;
use crate::error::Error;
use crate::inventory::{Inventory, UnusablePool};
use crate::node::CandidateNode;
use crate::search::{DeviceCatalog, DeviceSearch};
use crate::selectors::{SelectorCache, SelectorEvaluator};
use crate::usage::{self, Usage};

/// The feature gates that affect allocation. The default is that of Kubernetes 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a gate of its own")]
pub struct DraGates {
    /// The feature gate `DRAAdminAccess`.
    pub admin_access: bool,
    /// The feature gate `DRAConsumableCapacity`.
    pub consumable_capacity: bool,
    /// The feature gate `DRADeviceTaints`.
    pub device_taints: bool,
    /// The feature gate `DRAPartitionableDevices`.
    pub partitionable_devices: bool,
}

impl Default for DraGates {
    fn default() -> Self {
        DraGates {
            admin_access: true,
            consumable_capacity: true,
            device_taints: true,
            partitionable_devices: true,
        }
    }
}

impl DraGates {
    /// True if a slice uses only enabled features.
    pub(crate) fn supports(self, slice: &Value) -> bool {
        let spec = |field: &str| slice.at(&["spec", field]).filter(|value| !value.is_null());
        let partitioned = spec("perDeviceNodeSelection").is_some()
            || !slice.list_at(&["spec", "sharedCounters"]).is_empty();
        let grouped = slice
            .list_at(&["spec", "devices"])
            .iter()
            .flat_map(|device| device.list_at(&["consumesCounters"]))
            .any(|set| !set.list_at(&["compatibilityGroups"]).is_empty());
        (self.partitionable_devices || !partitioned) && !grouped
    }
}

/// The parts of a DeviceClass that allocation needs.
#[derive(Debug)]
pub(crate) struct DeviceClass {
    pub(crate) name: Str,
    /// CEL expressions; `None` for a selector of an unknown type.
    pub(crate) selectors: Vec<Option<Str>>,
    /// Driver configurations, as stored.
    pub(crate) configs: Vec<Option<Value>>,
}

/// Allocates devices to claims. The crate documentation shows how to use it.
#[derive(Debug)]
pub struct DeviceAllocator {
    classes: HashMap<Str, DeviceClass>,
    inventory: Inventory,
    usage: Usage,
    selectors: SelectorCache,
    gates: DraGates,
}

impl DeviceAllocator {
    /// An allocator for these DeviceClasses and ResourceSlices, with all devices free.
    pub fn new<'a>(
        classes: impl IntoIterator<Item = &'a Value>,
        slices: impl IntoIterator<Item = &'a Value>,
        gates: DraGates,
    ) -> Self {
        let inventory = Inventory::read(slices, gates);
        let classes =
            classes.into_iter().map(DeviceClass::read).map(|class| (class.name.clone(), class)).collect();
        let usage = Usage::new(&inventory);
        DeviceAllocator { classes, inventory, usage, selectors: SelectorCache::default(), gates }
    }

    /// Replaces the taints of DeviceTaintRules by those of `rules`.
    pub fn taint<'a>(&mut self, rules: impl IntoIterator<Item = &'a Value>) {
        if self.gates.device_taints {
            self.inventory.taint(rules);
        }
    }

    /// Updates the usage from a stored claim: its status decides which devices it holds.
    pub fn observe(&mut self, claim: &Value) {
        let uid = claim.str_at(&["metadata", "uid"]).unwrap_or_default();
        self.usage.set(uid, usage::holdings(claim, &self.inventory), &self.inventory);
    }

    /// Marks an allocation as held by the claim with this uid, until the claim is observed or forgotten.
    pub fn hold(&mut self, uid: &str, allocation: &ClaimAllocation) {
        self.usage.set(uid, allocation.holdings(&self.inventory), &self.inventory);
    }

    /// Releases the devices held by the claim with this uid.
    pub fn forget(&mut self, uid: &str) {
        self.usage.set(uid, Vec::new(), &self.inventory);
    }

    /// Allocates all `claims` on `node`, or none: returns one allocation per claim, in order. `Ok(None)` means that
    /// the node cannot serve them now. The devices stay free until [`DeviceAllocator::hold`]. `budget` limits the
    /// work for the pod on all nodes.
    pub fn allocate(
        &mut self,
        claims: &[PendingClaim],
        node: &CandidateNode<'_>,
        budget: &mut AllocationBudget,
    ) -> Result<Option<Vec<ClaimAllocation>>, Error> {
        let reachable = self.inventory.reachable_from(node)?;
        let wanted = claims.iter().flat_map(|claim| &claim.requests).flat_map(|request| &request.choices);
        self.selectors.make_room(wanted.map(|choice| choice.selectors.len() + 32).sum());
        let mut search = DeviceSearch::new(
            claims,
            &reachable,
            DeviceCatalog { classes: &self.classes, inventory: &self.inventory, gates: self.gates },
            &mut self.usage,
            SelectorEvaluator::new(&mut self.selectors, budget),
        )?;
        let found = search.run();
        let chosen = search.finish();
        if found? {
            let build = claims.iter().zip(chosen);
            return build
                .map(|(claim, chosen)| {
                    ClaimAllocation::build(claim, chosen, &self.classes, &self.inventory, node)
                })
                .collect::<Result<Vec<_>, _>>()
                .map(Some);
        }
        for (at, state) in &reachable.unusable {
            if let Some(pool) = self.inventory.pools.get(*at)
                && let UnusablePool::Invalid(why) = state
            {
                return Err(Error::InvalidPools(format!("{}/{}: {why}", pool.driver, pool.name)));
            }
        }
        Ok(None)
    }
}

impl DeviceClass {
    fn read(class: &Value) -> DeviceClass {
        DeviceClass {
            name: class.str_at(&["metadata", "name"]).unwrap_or_default().into(),
            selectors: class
                .list_at(&["spec", "selectors"])
                .iter()
                .map(|selector| selector.str_at(&["cel", "expression"]).map(Str::from))
                .collect(),
            configs: class
                .list_at(&["spec", "config"])
                .iter()
                .map(|config| config.get("opaque").cloned())
                .collect(),
        }
    }
}
