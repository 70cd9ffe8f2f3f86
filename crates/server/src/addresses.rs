//! Allocates cluster IPs and node ports, so that no two Services have the same one, whichever server of the cluster writes them.
//!
//! As in Kubernetes, a cluster IP is allocated by creating an IPAddress object of that name ([`Allocations`]) in a range of a ServiceCIDR
//! ([`cidrs`]), and a node port by setting its bit in a stored RangeAllocation ([`ports`]). Both happen before the Service is written:
//! [`AddressClaims`] holds them until the outcome is known. A server that stops in between leaks them until the repair loops
//! ([`repair`]) find that no Service uses them. The loops also create what is missing, for example in a store of an earlier version; no
//! address is allocated before their first run.

mod cidrs;
mod claims;
mod default_cidr;
mod events;
mod ip_address;
mod limits;
mod ports;
mod repair;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use catalog::encode;
use catalog::keys;
use catalog::unreadable::Concern;
use heavy_lane::Effort;
use ipnet::IpNet;
use kinds::strategy::service::{
    AddressError, AddressesAndPorts, Family, ServiceAllocation, begin_create, begin_update, claims_of,
};
use service_addresses::{
    AddressAnswer, AllocationAttempt, AllocationRequest, DryRunAllocator, PortCounts, ServiceRange,
    ServiceRef, family_of,
};
pub use service_addresses::{DEFAULT_NODE_PORTS, NodePortRange};
use storage::Store;
use tokio::sync::watch;
use value::{Str, Value};

pub use claims::AddressClaims;
pub(crate) use default_cidr::keep_default_cidr;
pub(crate) use repair::start as start_repair;

use crate::loopback::Loopback;
use crate::metrics::AddressMetrics;
use crate::state::Storage;
use cidrs::ServiceCidrs;
use claims::ClaimedAddress;
use ports::{NodePorts, PortsInTurn, PortsNotWritten};

/// How long an allocation waits for the first run of the repair loops.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// Addresses that are tried between two points at which other tasks can run.
const CANDIDATES_PER_TURN: usize = 1024;

/// The ranges of Services (`--service-cluster-ip-range`, `--service-node-port-range`).
#[derive(Clone, Debug)]
pub struct AddressesConfig {
    /// The ranges of the ServiceCIDR `kubernetes`; the family of the first is the default.
    pub cluster_ips: Vec<IpNet>,
    pub node_ports: NodePortRange,
}

/// The allocation of cluster IPs and node ports.
#[derive(Clone, Debug)]
pub struct Addresses(Arc<Allocations>);

/// State and handles that all allocations share.
pub(crate) struct Allocations {
    /// The families with a range; the first is the default.
    families: Vec<Family>,
    /// The ranges of the ServiceCIDR `kubernetes`, by the flag.
    default_ranges: Vec<IpNet>,
    cidrs: ServiceCidrs,
    ports: NodePorts,
    store: Store,
    loopback: Loopback,
    metrics: Arc<AddressMetrics>,
    /// True once the addresses and ports of all stored Services are known to be allocated.
    repaired: watch::Sender<bool>,
}

impl std::fmt::Debug for Allocations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocations").field("default_ranges", &self.default_ranges).finish_non_exhaustive()
    }
}

impl AddressesConfig {
    /// The family of Services that do not state one.
    pub(crate) fn primary_family(&self) -> Family {
        self.cluster_ips.first().map_or(Family::V4, |net| family_of(net.addr()))
    }

    pub(crate) fn build(
        self,
        storage: &Storage,
        metrics: &Arc<AddressMetrics>,
        loopback: &Loopback,
    ) -> Addresses {
        for entry in &storage.store.snapshot(keys::SERVICES).entries {
            // The addresses of an unreadable Service are unknown, so no others can be allocated safely.
            if let Err(why) = encode::tree(entry) {
                storage.unreadable.note(entry, &why, Some(Concern::Addresses));
            }
        }
        let default_ranges: Vec<IpNet> = self.cluster_ips.iter().map(IpNet::trunc).collect();
        Addresses(Arc::new(Allocations {
            families: default_ranges.iter().map(|net| family_of(net.addr())).collect(),
            default_ranges,
            cidrs: ServiceCidrs::start(&storage.store, &storage.unreadable),
            ports: NodePorts::new(storage.store.clone(), self.node_ports, Arc::clone(metrics)),
            store: storage.store.clone(),
            loopback: loopback.clone(),
            metrics: Arc::clone(metrics),
            repaired: watch::Sender::new(false),
        }))
    }
}

impl Addresses {
    /// The ranges of the flag, in CIDR notation.
    pub fn ranges(&self) -> Vec<String> {
        self.0.default_ranges.iter().map(ToString::to_string).collect()
    }

    /// The address of the `kubernetes` Service: the first of the default range.
    pub fn first(&self) -> Option<IpAddr> {
        self.0.first()
    }

    /// Waits until the writes of ServiceCIDRs up to `revision` are in force.
    pub(crate) async fn reached(&self, revision: u64) {
        self.0.cidrs.reached(revision).await;
    }

    /// Allocates the addresses and ports a Service needs and sets its fields. A dry run allocates nothing. The Service is not validated
    /// yet, so the rules take their steps from `effort`.
    pub(crate) async fn allocate(
        &self,
        effort: &Effort,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<AddressClaims, Status> {
        if dry_run {
            effort.run(|| self.0.dry_run(service, old))??;
            return Ok(AddressClaims::default());
        }
        let mut claims = AddressClaims::begin(Arc::clone(&self.0), ServiceRef::of(service));
        match self.0.allocate(effort, service, old, &mut claims).await {
            Ok(()) => Ok(claims),
            Err(status) => {
                claims.revert().await;
                Err(status)
            }
        }
    }

    /// Releases the addresses and ports of a deleted Service.
    pub(crate) async fn release(&self, service: &Value) {
        self.0.release(&ServiceRef::of(service), &claims_of(service)).await;
    }

    /// The present ranges, as metrics name them.
    pub(crate) fn range_labels(&self) -> impl Iterator<Item = Str> {
        let ranges: Vec<ServiceRange> = self.0.cidrs.now().all().collect();
        ranges.into_iter().map(|range| range.net().to_string().into())
    }

    /// Sets the gauges of allocated and free addresses, by range.
    pub(crate) fn show_metrics(&self) {
        self.0.metrics.forget_ranges();
        let ranges: Vec<ServiceRange> = self.0.cidrs.now().all().collect();
        let mut used = vec![0_u64; ranges.len()];
        for address in ip_address::managed(&self.0.store) {
            for (range, used) in ranges.iter().zip(&mut used) {
                *used += u64::from(range.net().contains(&address));
            }
        }
        for (range, used) in ranges.iter().zip(used) {
            self.0.metrics.set_addresses(&range.net().to_string(), used, range.size());
        }
    }
}

/// The Service that the rules are run for, before and after the write, and the budget of the request.
struct AllocationInput<'a> {
    effort: &'a Effort,
    service: &'a mut Value,
    old: Option<&'a Value>,
}

impl Allocations {
    fn first(&self) -> Option<IpAddr> {
        ServiceRange::new(*self.default_ranges.first()?)?.nth(0)
    }

    /// Returns true for the first address of the default range, unless the `kubernetes` Service asks. It stays reserved while that
    /// Service does not exist. Kubernetes has no such rule: there, another Service can get the address.
    fn is_reserved(&self, address: IpAddr, service: &ServiceRef) -> bool {
        !service.is_kubernetes() && self.first() == Some(address)
    }

    fn dry_run(&self, service: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        let ranges = self.cidrs.now();
        let (families, ports) = (&self.families, self.ports.ports_in_memory());
        let mut allocator = DryRunAllocator { families, ranges: &ranges, ports, tried: BTreeSet::new() };
        match old {
            None => begin_create(service, &mut allocator).map(drop),
            Some(old) => begin_update(service, old, &mut allocator).map(drop),
        }
    }

    /// Runs the rules until all their requests are answered. What was allocated is in `claims`, also if it fails.
    async fn allocate(
        &self,
        effort: &Effort,
        service: &mut Value,
        old: Option<&Value>,
        claims: &mut AddressClaims,
    ) -> Result<(), Status> {
        let mut answers: Vec<AddressAnswer> = Vec::new();
        let mut input = AllocationInput { effort, service, old };
        if self.run_rules(&mut input, claims, &mut answers, None).await? {
            return Ok(());
        }
        self.check_repaired().await?;
        // Requests of other users wait for the ports, so this one must not wait for its own turn in the heavy lane.
        heavy_lane::without_turn(async {
            let turn = self.ports.in_turn().await.map_err(Status::internal)?;
            let is_done = self.run_rules(&mut input, claims, &mut answers, Some(turn)).await?;
            if is_done { Ok(()) } else { Err(Status::internal("the node ports are not known")) }
        })
        .await
    }

    /// Runs the rules until all their requests are answered, or the answer to one requires the turn of the node ports (false).
    async fn run_rules(
        &self,
        AllocationInput { effort, service, old }: &mut AllocationInput<'_>,
        claims: &mut AddressClaims,
        answers: &mut Vec<AddressAnswer>,
        mut turn: Option<PortsInTurn<'_>>,
    ) -> Result<bool, Status> {
        loop {
            let mut run = AllocationAttempt {
                families: &self.families,
                answers: answers.iter(),
                pending: None,
                port_range: self.ports.range(),
                ports: turn.as_ref().map(PortsInTurn::ports_of_range),
                port_counts: PortCounts::default(),
                random: random_below,
            };
            let (object, outcome) = effort.run(|| {
                let mut object = service.clone();
                let outcome = match old {
                    None => begin_create(&mut object, &mut run),
                    Some(old) => begin_update(&mut object, old, &mut run),
                };
                (object, outcome)
            })?;
            let (ports, counts) = (run.ports.and_then(Result::ok), run.port_counts);
            match run.pending {
                Some(AllocationRequest::Address(family, wanted)) => {
                    self.check_repaired().await?;
                    let answer = self.claim(family, wanted, claims).await;
                    answers.push(answer);
                    continue;
                }
                Some(AllocationRequest::Ports) => return Ok(false),
                None => {}
            }
            let allocation = match (outcome, &mut turn) {
                (Ok(allocation), _) => allocation,
                // The refusal may be due to ports that another server has released.
                (Err(status), Some(former)) => {
                    let before = former.stored().revision;
                    turn = None;
                    let newest = turn.insert(self.ports.in_turn_with_newest().await?);
                    if newest.stored().revision != before {
                        continue;
                    }
                    self.metrics.count_ports(counts);
                    return Err(status);
                }
                (Err(status), None) => {
                    self.metrics.count_ports(counts);
                    return Err(status);
                }
            };
            if let (Some(turn), Some(ports)) = (&mut turn, &ports)
                && !allocation.to_revert.ports.is_empty()
            {
                match turn.write(ports).await {
                    Ok(()) => self.metrics.count_ports(counts),
                    Err(PortsNotWritten::Conflict) => continue,
                    Err(PortsNotWritten::Failed(error)) => {
                        return Err(Status::internal(format!("failed to allocate a nodePort: {error}")));
                    }
                }
            }
            **service = object;
            if let Some(open) = claims.open() {
                let ServiceAllocation { to_revert, to_release } = allocation;
                (open.ports, open.to_release) = (to_revert.ports, to_release);
            }
            return Ok(true);
        }
    }

    /// Fails unless the repair loops have run, because stored Services may have addresses that are not allocated.
    async fn check_repaired(&self) -> Result<(), Status> {
        let mut repaired = self.repaired.subscribe();
        let waited = tokio::time::timeout(READY_WITHIN, repaired.wait_for(|repaired| *repaired)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Status::unavailable(
                "cluster IPs and node ports cannot be allocated yet, because those of the stored Services are not known; see the check poststarthook/start-service-ip-repair-controllers of /readyz",
            )),
        }
    }

    /// Allocates an address: `wanted`, or any of the family.
    async fn claim(
        &self,
        family: Family,
        wanted: Option<IpAddr>,
        claims: &mut AddressClaims,
    ) -> AddressAnswer {
        let began = Instant::now();
        let Some(open) = claims.open() else { return Err(AddressError::NotReady) };
        let (claimed, range) = match wanted {
            Some(address) => self.claim_requested(address, &open.service).await?,
            None => self.claim_any(family, &open.service).await?,
        };
        self.metrics.allocated(&range.net().to_string(), scope(wanted), began.elapsed());
        let address = claimed.address;
        open.addresses.push(claimed);
        Ok(address)
    }

    async fn claim_requested(
        &self,
        address: IpAddr,
        service: &ServiceRef,
    ) -> Result<(ClaimedAddress, ServiceRange), AddressError> {
        let range = self.cidrs.now().ready_range(address).ok_or(AddressError::OtherNetwork)?;
        let claimed = if self.is_reserved(address, service) {
            Err(AddressError::Allocated)
        } else {
            self.create_address(address, service).await
        };
        if claimed.is_err() {
            self.metrics.allocation_failed(&range.net().to_string(), scope(Some(address)));
        }
        Ok((claimed?, range))
    }

    async fn claim_any(
        &self,
        family: Family,
        service: &ServiceRef,
    ) -> Result<(ClaimedAddress, ServiceRange), AddressError> {
        let ranges = self.cidrs.now();
        let mut ready: Vec<ServiceRange> =
            ranges.of_family(family).filter_map(|(range, is_ready)| is_ready.then_some(range)).collect();
        if !ready.is_empty() {
            let start = usize::try_from(random_below(ready.len() as u64)).unwrap_or(0);
            ready.rotate_left(start);
        }
        for range in ready {
            match self.claim_in(range, service).await {
                Ok(claimed) => return Ok((claimed, range)),
                Err(error) => {
                    self.metrics.allocation_failed(&range.net().to_string(), scope(None));
                    if error != AddressError::Full {
                        return Err(error);
                    }
                }
            }
        }
        Err(AddressError::Full)
    }

    /// Allocates any free address of a range.
    async fn claim_in(
        &self,
        range: ServiceRange,
        service: &ServiceRef,
    ) -> Result<ClaimedAddress, AddressError> {
        for (tried, address) in range.candidates(random_below).enumerate() {
            if tried % CANDIDATES_PER_TURN == CANDIDATES_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            if self.is_reserved(address, service) || self.store.get(&ip_address::key(address)).is_some() {
                continue;
            }
            match self.create_address(address, service).await {
                // Another server was faster.
                Err(AddressError::Allocated) => {}
                claimed => return claimed,
            }
        }
        Err(AddressError::Full)
    }

    /// Releases what a Service no longer uses.
    async fn release(&self, service: &ServiceRef, released: &AddressesAndPorts) {
        for (_, address) in &released.addresses {
            // The address may belong to another Service by now, if the repair loop was faster.
            if let Some(uid) = ip_address::uid_if_owned(&self.store, *address, service) {
                self.delete_address(*address, &uid).await;
            }
        }
        if !released.ports.is_empty() {
            self.ports.release(&released.ports).await;
        }
    }
}

/// The value of the metric label `scope`.
fn scope(wanted: Option<IpAddr>) -> &'static str {
    if wanted.is_some() { "static" } else { "dynamic" }
}

/// A random number below `count`, which must not be 0.
fn random_below(count: u64) -> u64 {
    let random = u64::try_from(runtime::random::number()).unwrap_or_default();
    random.checked_rem(count).unwrap_or_default()
}
