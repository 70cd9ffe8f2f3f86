//! The repair loops: they make the allocated addresses and ports agree with those that Services have.
//!
//! As in Kubernetes, every server runs them, and they write events about what they find ([`service_addresses::repair`]). What is allocated
//! but not used may belong to a Service that is just being written, here or by another server. So an IPAddress is deleted only after this
//! server has seen it unused for [`GRACE`], whatever the clocks of other servers say, and a port only in the third run. Nothing is changed
//! before the finding is confirmed by a read that sees every acknowledged write.

mod queue;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys;
use catalog::unreadable::Concern;
use service_addresses::ServiceRef;
use service_addresses::ip_address::parent;
use service_addresses::repair::cluster_ips::{self, AddressFinding, ServiceFinding};
use service_addresses::repair::ports::{self, LeakedPorts};
use service_addresses::repair::{Lookup, Warning};
use storage::{ChangeKind, ListWatch, ListWatchUpdate, StoredEntry};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};
use value::{Str, Value};

use super::events;
use super::limits::{GRACE, INTERVAL};
use super::ports::PortsNotWritten;
use super::{Allocations, ip_address};
use crate::bootstrap::{PostStartHook, RETRY};
use crate::client::LoopbackClient;
use crate::consistent_reads;
use crate::state::State;
use queue::{RepairKey, RepairQueue};

/// How long an attempt of the first run waits for the ServiceCIDR `kubernetes`.
const CIDR_WITHIN: Duration = Duration::from_secs(2);

/// Attempts to write the ports while other servers change them.
const PORT_ATTEMPTS: usize = 10;

const ADDRESS_CONTROLLER: &str = "ipallocator-repair-controller";
const PORT_CONTROLLER: &str = "portallocator-repair-controller";

/// The names of the first runs in `/readyz`.
const FIRST_ADDRESS_RUN: &str = "IPAddress objects of the stored Services";
const FIRST_PORT_RUN: &str = "the allocation of the node ports of the stored Services";

/// Starts the loops. They end when the server stops.
pub(crate) fn start(state: &Arc<State>) {
    for run in [FIRST_ADDRESS_RUN, FIRST_PORT_RUN] {
        state.bootstrap.begin(PostStartHook::ServiceIpRepair, run);
    }
    let repair = AddressRepair {
        client: LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer),
        allocations: Arc::clone(&state.addresses.0),
        state: Arc::clone(state),
        queue: RepairQueue::default(),
        unused: HashMap::new(),
        leaked: LeakedPorts::new(),
    };
    tokio::spawn(repair.run());
}

struct AddressRepair {
    state: Arc<State>,
    allocations: Arc<Allocations>,
    client: LoopbackClient,
    queue: RepairQueue,
    /// IPAddresses that no Service uses, with their uid and since when this server knows it.
    unused: HashMap<IpAddr, (Str, Instant)>,
    leaked: LeakedPorts,
}

impl AddressRepair {
    async fn run(mut self) {
        let store = self.allocations.store.clone();
        let mut stop = self.state.stopping();
        let (_, mut services) = ListWatch::start(&store, keys::SERVICES);
        let (_, mut addresses) = ListWatch::start(&store, keys::IP_ADDRESSES);
        let (_, mut node_ports) = ListWatch::start(&store, keys::NODE_PORTS);
        tokio::select! {
            () = self.first_run() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let mut timer = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while let Some((key, failures)) = self.queue.take(Instant::now()) {
                if let Err(status) = self.examine(&key).await {
                    warn!(
                        ?key,
                        error = status.message(),
                        "cannot repair the allocation of a cluster IP; retrying"
                    );
                    self.queue.retry(key, failures.saturating_add(1), Instant::now());
                }
            }
            let due = self.queue.due().unwrap_or_else(|| Instant::now() + INTERVAL);
            let is_time = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                update = services.next() => match update {
                    Some(update) => {
                        self.note_services(&update);
                        false
                    }
                    None => return,
                },
                update = addresses.next() => match update {
                    Some(update) => {
                        self.note_addresses(&update);
                        false
                    }
                    None => return,
                },
                update = node_ports.next() => match update {
                    Some(_) => {
                        self.note_ports();
                        false
                    }
                    None => return,
                },
                () = tokio::time::sleep_until(due) => false,
                _ = timer.tick() => true,
            };
            if is_time {
                self.add_all();
                if let Err(status) = self.repair_ports().await {
                    warn!(
                        error = status.message(),
                        "cannot repair the allocation of node ports; retrying in the next run"
                    );
                }
            }
        }
    }

    /// Repeats the first run until it succeeds, then allows allocations.
    async fn first_run(&mut self) {
        let mut pause = RETRY;
        loop {
            let addresses = self.repair_addresses().await;
            let ports = self.repair_ports().await;
            for (run, outcome) in [(FIRST_ADDRESS_RUN, &addresses), (FIRST_PORT_RUN, &ports)] {
                match outcome {
                    Ok(()) => self.state.bootstrap.done(run),
                    Err(status) => {
                        warn!(
                            run,
                            error = status.message(),
                            "the first run of a repair loop failed; no cluster IP or node port is allocated until it succeeds"
                        );
                        self.state.bootstrap.refused(run, status);
                    }
                }
            }
            if addresses.is_ok() && ports.is_ok() {
                self.allocations.repaired.send_replace(true);
                return;
            }
            pause.sleep().await;
        }
    }

    /// Examines all Services and addresses, once the ServiceCIDR `kubernetes` exists.
    async fn repair_addresses(&mut self) -> Result<(), Status> {
        let exists = tokio::time::timeout(CIDR_WITHIN, self.allocations.cidrs.has_default()).await;
        exists.map_err(|_| Status::internal("the ServiceCIDR `kubernetes` does not exist"))?;
        self.add_all();
        while let Some((key, _)) = self.queue.take(Instant::now()) {
            self.examine(&key).await?;
        }
        Ok(())
    }

    fn add_all(&mut self) {
        let (store, now) = (&self.allocations.store, Instant::now());
        for entry in &store.snapshot(keys::SERVICES).entries {
            self.queue.add(RepairKey::Service(Arc::clone(&entry.key)), now);
        }
        for address in ip_address::managed(store) {
            self.queue.add(RepairKey::Address(address), now);
        }
    }

    fn note_services(&mut self, update: &ListWatchUpdate) {
        match update {
            ListWatchUpdate::Event(event) => {
                let entry = &event.entry;
                self.queue.add(RepairKey::Service(Arc::clone(&entry.key)), Instant::now());
                if !self.leaked.is_empty()
                    && let Ok(service) = encode::tree(entry)
                {
                    for port in ports::node_ports(&service) {
                        self.leaked.remove(&port);
                    }
                }
            }
            ListWatchUpdate::Relisted(_) => {
                self.leaked.clear();
                self.add_all();
            }
        }
    }

    fn note_addresses(&mut self, update: &ListWatchUpdate) {
        match update {
            ListWatchUpdate::Event(event) => {
                if let Some(address) = ip_address::address_of_key(&event.entry.key) {
                    self.queue.add(RepairKey::Address(address), Instant::now());
                }
                // If the IPAddress was deleted, its Service may need it again.
                if event.kind == ChangeKind::Deleted
                    && let Some(service) = encode::tree(&event.entry).ok().as_ref().and_then(parent)
                {
                    let key = keys::namespaced(keys::SERVICES, &service.namespace, &service.name);
                    self.queue.add(RepairKey::Service(key.into()), Instant::now());
                }
            }
            ListWatchUpdate::Relisted(_) => self.add_all(),
        }
    }

    /// A port that was released since the last run did not leak; if it is allocated now, that is a new allocation.
    fn note_ports(&mut self) {
        if self.leaked.is_empty() {
            return;
        }
        match self.allocations.ports.ports_in_memory() {
            Some(bitmap) => self.leaked.retain(|port, _| bitmap.has(*port)),
            None => self.leaked.clear(),
        }
    }

    async fn examine(&mut self, key: &RepairKey) -> Result<(), Status> {
        match key {
            RepairKey::Service(key) => self.examine_service(key).await,
            RepairKey::Address(address) => self.examine_address(*address).await,
        }
    }

    fn find(&self, key: &str) -> Lookup {
        lookup_of(self.allocations.store.get(key).as_deref())
    }

    fn find_service(&self, service: &ServiceRef) -> Lookup {
        self.find(&keys::namespaced(keys::SERVICES, &service.namespace, &service.name))
    }

    async fn examine_service(&mut self, key: &str) -> Result<(), Status> {
        let Some(entry) = self.allocations.store.get(key) else { return Ok(()) };
        let service = match encode::tree(&entry) {
            Ok(service) => service,
            Err(why) => {
                self.state.storage.unreadable.note(&entry, &why, Some(Concern::Addresses));
                return Ok(());
            }
        };
        for text in cluster_ips::cluster_ips(&service) {
            match api::names::parse_ip_sloppy(text) {
                Some(address) => self.examine_cluster_ip(key, &service, address).await?,
                None => self.warn(&service, &cluster_ips::invalid_cluster_ip_warning()).await,
            }
        }
        Ok(())
    }

    /// The finding about a cluster IP of the Service at `key`, if the Service still has it.
    fn cluster_ip_finding(&self, key: &str, address: IpAddr) -> Option<ServiceFinding> {
        let store = &self.allocations.store;
        let is_in_range = self.allocations.cidrs.now().contains(address);
        let entry = store.get(key)?;
        let ip_address = self.find(&ip_address::key(address));
        // The IPAddress was read while the Service was as it is here; a changed Service is examined again.
        store.get(key).filter(|again| again.revision == entry.revision)?;
        let Lookup::Object(service) = lookup_of(Some(&entry)) else { return None };
        let referenced = |other: &ServiceRef| self.find_service(other);
        let own = ServiceRef::of(&service);
        cluster_ips::has_cluster_ip(&service, address)
            .then(|| cluster_ips::examine_cluster_ip(&own, address, is_in_range, &ip_address, referenced))
    }

    async fn examine_cluster_ip(
        &mut self,
        key: &str,
        service: &Value,
        address: IpAddr,
    ) -> Result<(), Status> {
        let finding = self.cluster_ip_finding(key, address);
        if finding == Some(ServiceFinding::Fine) {
            if self.unused.remove(&address).is_some() {
                self.queue.remove(&RepairKey::Address(address));
            }
            return Ok(());
        }
        self.confirm().await?;
        let Some(finding) = self.cluster_ip_finding(key, address) else { return Ok(()) };
        let own = ServiceRef::of(service);
        if finding == ServiceFinding::MissingService && !self.is_unused_for_long(address) {
            // The Service that the IPAddress refers to may be being written.
            self.queue.add(RepairKey::Service(key.into()), Instant::now() + GRACE);
            return Ok(());
        }
        if let Some(warning) = cluster_ips::cluster_ip_warning(finding, &own, address) {
            warn!(service = key, %address, reason = warning.message, "the cluster IP of a Service needs repair");
            self.warn(service, &warning).await;
        }
        match finding {
            ServiceFinding::Fine | ServiceFinding::OutOfRange | ServiceFinding::Shared => Ok(()),
            ServiceFinding::NotAllocated => self.create(address, &own).await,
            ServiceFinding::NotAService | ServiceFinding::MissingService | ServiceFinding::WrongLabels => {
                if let Lookup::Object(object) = self.find(&ip_address::key(address)) {
                    self.allocations.try_delete_address(address, meta::uid(&object)).await?;
                }
                self.create(address, &own).await
            }
        }
    }

    async fn create(&self, address: IpAddr, service: &ServiceRef) -> Result<(), Status> {
        let created = self.allocations.create_address(address, service).await;
        created.map(drop).map_err(|error| Status::internal(format!("IPAddress {address}: {error}")))
    }

    /// The finding about an IPAddress and the object; `None` if it does not exist or cannot be decoded.
    fn address_finding(&self, address: IpAddr) -> Option<(AddressFinding, Value)> {
        let Lookup::Object(object) = self.find(&ip_address::key(address)) else { return None };
        let referenced = |service: &ServiceRef| self.find_service(service);
        Some((cluster_ips::examine_ip_address(&object, address, referenced), object))
    }

    async fn examine_address(&mut self, address: IpAddr) -> Result<(), Status> {
        match self.address_finding(address) {
            None | Some((AddressFinding::Fine, _)) => {
                self.unused.remove(&address);
                return Ok(());
            }
            Some((AddressFinding::NotAService, _)) => {}
            Some((AddressFinding::Leaked | AddressFinding::WrongReference, object)) => {
                if !self.is_long_unused(address, &object) {
                    return Ok(());
                }
            }
        }
        self.confirm().await?;
        let Some((finding, object)) = self.address_finding(address) else { return Ok(()) };
        let Some(warning) = cluster_ips::ip_address_warning(finding, &object) else { return Ok(()) };
        warn!(%address, reason = warning.message, "an IPAddress needs repair");
        self.warn(&object, &warning).await;
        self.unused.remove(&address);
        self.allocations.try_delete_address(address, meta::uid(&object)).await
    }

    /// Records that no Service uses the address. Returns true if that has been so for [`GRACE`]; otherwise the address is examined again
    /// then.
    fn is_long_unused(&mut self, address: IpAddr, object: &Value) -> bool {
        let now = Instant::now();
        let uid = meta::uid(object);
        let since = match self.unused.get(&address) {
            Some((known, since)) if known == uid => *since,
            _ => {
                self.unused.insert(address, (uid.into(), now));
                now
            }
        };
        if now.duration_since(since) >= GRACE {
            return true;
        }
        self.queue.add(RepairKey::Address(address), since + GRACE);
        false
    }

    fn is_unused_for_long(&mut self, address: IpAddr) -> bool {
        match self.find(&ip_address::key(address)) {
            Lookup::Object(object) => self.is_long_unused(address, &object),
            Lookup::Absent | Lookup::Unreadable => false,
        }
    }

    /// Waits until reads see every acknowledged write.
    async fn confirm(&self) -> Result<(), Status> {
        consistent_reads::require_current(&self.allocations.store).await
    }

    async fn warn(&self, object: &Value, warning: &Warning) {
        events::warn(&self.client, object, warning, ADDRESS_CONTROLLER, self.state.now()).await;
    }

    /// Compares the allocated ports with those of the Services, and writes them if they differ.
    async fn repair_ports(&mut self) -> Result<(), Status> {
        let outcome = self.try_repair_ports().await;
        if outcome.is_err() {
            self.allocations.metrics.port_repair_failed();
        }
        outcome
    }

    async fn try_repair_ports(&mut self) -> Result<(), Status> {
        let allocations = Arc::clone(&self.allocations);
        let range = allocations.ports.range();
        for _ in 0..PORT_ATTEMPTS {
            let mut turn = allocations.ports.in_turn_with_newest().await?;
            // The Services are read after the ports: a port that a Service has was allocated before.
            let page = allocations.store.snapshot(keys::SERVICES);
            let read: Vec<Lookup> = page.entries.iter().map(|entry| lookup_of(Some(&**entry))).collect();
            let is_complete = !read.iter().any(|found| matches!(found, Lookup::Unreadable));
            let services: Vec<Value> = read
                .into_iter()
                .filter_map(|found| match found {
                    Lookup::Object(service) => Some(service),
                    Lookup::Absent | Lookup::Unreadable => None,
                })
                .collect();
            let stored = turn.stored().bitmap.as_ref();
            let repair = ports::examine(&services, is_complete, stored, range, &self.leaked);
            if stored != Some(&repair.bitmap) {
                match turn.write(&repair.bitmap).await {
                    Ok(()) => {}
                    Err(PortsNotWritten::Conflict) => continue,
                    Err(PortsNotWritten::Failed(error)) => return Err(Status::internal(error.to_string())),
                }
            }
            self.leaked = repair.leaked;
            // Allocations continue while the events are written.
            drop(turn);
            for port in repair.freed {
                info!(port, "freed a node port that was allocated but not used by any Service");
                allocations.metrics.port_error("leak");
            }
            for (service, port, finding) in repair.findings {
                let warning = finding.warning(port, range);
                warn!(service = %ServiceRef::of(service), reason = warning.message, "a node port of a Service needs repair");
                allocations.metrics.port_error(finding.metric());
                events::warn(&self.client, service, &warning, PORT_CONTROLLER, self.state.now()).await;
            }
            return Ok(());
        }
        Err(Status::internal(
            "cannot store the allocated node ports: every attempt conflicted with a write of another server",
        ))
    }
}

fn lookup_of(entry: Option<&StoredEntry>) -> Lookup {
    match entry.map(encode::tree) {
        None => Lookup::Absent,
        Some(Ok(object)) => Lookup::Object(object),
        Some(Err(_)) => Lookup::Unreadable,
    }
}
