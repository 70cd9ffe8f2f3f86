//! The cluster as the scheduler sees it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::meta;
use dra::{DeviceAllocator, DraGates};
use tokio::time::Instant;
use value::{Str, Value};

use super::devices::{self, Devices, MissedChanges};
use super::fit::SchedulerSnapshot;
use super::pause::Pause;

/// The cluster as observed, plus own writes that are not observed yet. Changes are observed on the threads that serve requests, so a
/// search must not hold this lock: see [`search`](super::search).
pub(super) struct SchedulerCache {
    pub(super) cluster: Arc<SchedulerSnapshot>,
    pub(super) pending: BTreeSet<(Str, Str)>,
    /// UIDs of pods bound by this scheduler. Older observations that show them unbound are ignored.
    pub(super) bound: HashMap<(Str, Str), Str>,
    pub(super) devices: Devices,
    /// Built from `devices` on demand; absent while outdated or lent.
    pub(super) allocator: Option<DeviceAllocator>,
    /// Changes to apply to the allocator while a search has it; `None` if it is not lent.
    pub(super) lent: Option<MissedChanges>,
    /// Namespaces whose claims exhausted a search budget: their pods that need devices are not retried before a given time.
    pub(super) costly: HashMap<Str, Pause>,
}

impl SchedulerCache {
    pub(super) fn new(gates: DraGates) -> Self {
        SchedulerCache {
            cluster: Arc::default(),
            pending: BTreeSet::new(),
            bound: HashMap::new(),
            devices: Devices::new(gates),
            allocator: None,
            lent: None,
            costly: HashMap::new(),
        }
    }

    /// Records the current state of a claim. Ignores states older than the known one, and the deletion of an earlier object of the name.
    pub(super) fn observe_claim(&mut self, at: (Str, Str), claim: &Value, deleted: bool) {
        let newer = |known: &Value| revision(known) > revision(claim);
        if self
            .devices
            .claims
            .get(&at)
            .is_some_and(|known| if deleted { meta::uid(known) != meta::uid(claim) } else { newer(known) })
        {
            return;
        }
        let claim = Arc::new(claim.clone());
        if let Some(allocator) = &mut self.allocator {
            devices::apply_claim_change(allocator, &claim, deleted);
        } else if let Some(missed) = &mut self.lent {
            missed.claims.push((Arc::clone(&claim), deleted));
        }
        if deleted {
            self.devices.claims.remove(&at);
        } else {
            self.devices.claims.insert(at, claim);
        }
    }

    /// Discards the allocator, because the objects it was built from have changed.
    pub(super) fn forget_allocator(&mut self) {
        self.allocator = None;
        if let Some(missed) = &mut self.lent {
            missed.is_outdated = true;
        }
    }
    /// Stops the search for devices for pods of a namespace, for longer each time. Returns for how long.
    pub(super) fn pause_searches(&mut self, namespace: Str, now: Instant) -> Duration {
        let pause = Pause::after(self.costly.get(&namespace), now);
        self.costly.retain(|_, former| !former.is_forgotten(now));
        self.costly.insert(namespace, pause);
        pause.length
    }
}

/// The resource version as a number, for comparison; 0 if unreadable.
fn revision(object: &Value) -> u64 {
    meta::resource_version(object).parse().unwrap_or(0)
}
