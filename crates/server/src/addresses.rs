//! Allocates cluster IPs and node ports.
//!
//! The stored Services are authoritative; this is an in-memory index of them, filled at startup. While a Service is being written,
//! [`AllocatedAddresses`] owns its new addresses and ports and releases them unless the write succeeds.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Status;
use ipnet::IpNet;
use kinds::strategy::service::{
    AddressError, AddressesAndPorts, Allocator, Family, PortError, ServiceAllocation, begin_create,
    begin_update, claims_of,
};
use value::Value;

/// The range of node ports.
const PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

/// The address ranges and the allocations in them.
#[derive(Clone, Debug)]
pub struct Addresses {
    taken: Arc<Mutex<AllocationTable>>,
}

#[derive(Clone, Debug, Default)]
struct AllocationTable {
    ranges: Vec<(Family, IpNet)>,
    addresses: HashSet<IpAddr>,
    ports: HashSet<i64>,
    /// An address that the Service being written must not get: that of the `kubernetes` Service, through which pods reach this server.
    /// Reserved even while that Service does not exist.
    reserved: Option<IpAddr>,
    /// Where the next search starts, so that a released address is not reused immediately.
    turn: u128,
    /// Whether this is the scratch copy of a dry run.
    dry_run: bool,
    /// The highest port that a dry run has tried.
    tried: Option<i64>,
}

/// The allocations for a Service being written. Dropping it without [`AllocatedAddresses::commit`] reverts them.
#[derive(Debug)]
pub struct AllocatedAddresses {
    addresses: Addresses,
    allocation: Option<ServiceAllocation>,
}

impl Addresses {
    /// `ranges` is the value of `--service-cluster-ip-range`; its first range is the default.
    pub fn new(ranges: &[IpNet]) -> Self {
        let ranges = ranges.iter().map(|net| (family(net.addr()), net.trunc())).collect();
        Addresses { taken: Arc::new(Mutex::new(AllocationTable { ranges, ..AllocationTable::default() })) }
    }

    fn lock(&self) -> MutexGuard<'_, AllocationTable> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the addresses and ports of a stored Service as allocated.
    pub fn load(&self, service: &Value) {
        let claims = claims_of(service);
        let mut taken = self.lock();
        taken.addresses.extend(claims.addresses.iter().map(|(_, address)| *address));
        taken.ports.extend(claims.ports);
    }

    /// The ranges in CIDR notation.
    pub fn ranges(&self) -> Vec<String> {
        self.lock().ranges.iter().map(|(_, net)| net.to_string()).collect()
    }

    /// The address of the `kubernetes` Service: the first of the default range.
    pub fn first(&self) -> Option<IpAddr> {
        let taken = self.lock();
        taken.ranges.first().and_then(|(_, net)| nth(net, 1))
    }

    /// Allocates the addresses and ports a Service needs and sets its fields. A dry run allocates nothing.
    pub fn allocate(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<AllocatedAddresses, Status> {
        let first = self.first().filter(|_| !is_kubernetes(new));
        let mut taken = self.lock();
        taken.reserved = first;
        let mut copy;
        let allocator: &mut AllocationTable = if dry_run {
            copy = AllocationTable { dry_run, ..taken.clone() };
            &mut copy
        } else {
            &mut taken
        };
        let allocation = match old {
            None => begin_create(new, allocator)?,
            Some(old) => begin_update(new, old, allocator)?,
        };
        Ok(AllocatedAddresses { addresses: self.clone(), allocation: (!dry_run).then_some(allocation) })
    }

    /// Releases the addresses and ports of a deleted Service.
    pub fn release(&self, service: &Value) {
        claims_of(service).release(&mut *self.lock());
    }
}

impl AllocatedAddresses {
    /// Commits the allocations after a successful write, and releases those that the Service no longer uses.
    pub fn commit(mut self) {
        self.give_back(|allocation| allocation.to_release);
    }

    fn give_back(&mut self, which: impl FnOnce(ServiceAllocation) -> AddressesAndPorts) {
        if let Some(allocation) = self.allocation.take() {
            which(allocation).release(&mut *self.addresses.lock());
        }
    }
}

impl Drop for AllocatedAddresses {
    fn drop(&mut self) {
        self.give_back(|allocation| allocation.to_revert);
    }
}

impl AllocationTable {
    fn range(&self, family: Family) -> Option<&IpNet> {
        self.ranges.iter().find(|(f, _)| *f == family).map(|(_, net)| net)
    }
}

impl Allocator for AllocationTable {
    fn default_family(&self) -> Family {
        self.ranges.first().map_or(Family::V4, |(family, _)| *family)
    }

    fn has(&self, family: Family) -> bool {
        self.range(family).is_some()
    }

    fn allocate(&mut self, family: Family, address: IpAddr) -> Result<(), AddressError> {
        let net = self.range(family).ok_or(AddressError::OtherNetwork)?;
        let usable =
            net.contains(&address) && address != net.network() && !(is_v4(net) && address == net.broadcast());
        if !usable {
            return Err(if self.dry_run {
                AddressError::NotInRange(address, net.to_string())
            } else {
                AddressError::OtherNetwork
            });
        }
        if self.reserved == Some(address) {
            return Err(AddressError::Allocated);
        }
        if self.addresses.insert(address) { Ok(()) } else { Err(AddressError::Allocated) }
    }

    fn allocate_next(&mut self, family: Family) -> Result<IpAddr, AddressError> {
        let net = *self.range(family).ok_or(AddressError::Full)?;
        if self.dry_run {
            // As in Kubernetes: a dry run cannot promise an address, because another Service may get it in the meantime.
            return Ok(net.network());
        }
        let size = usable(&net);
        // Like Kubernetes, allocate from the first sixteenth (16 to 256 addresses) last: it is meant for explicitly requested addresses.
        let reserved = if size < 16 { 0 } else { (size / 16).clamp(16, 256).min(size - 1) };
        let upper = size.saturating_sub(reserved);
        for step in 0..size.min(1 << 20) {
            let offset =
                if step < upper { reserved + (self.turn + step) % upper.max(1) } else { step - upper };
            if let Some(address) = nth(&net, offset + 1)
                && self.reserved != Some(address)
                && self.addresses.insert(address)
            {
                self.turn = self.turn.wrapping_add(step + 1) % upper.max(1);
                return Ok(address);
            }
        }
        Err(AddressError::Full)
    }

    fn allocate_port(&mut self, port: i64) -> Result<(), PortError> {
        // Kubernetes does not check the port range in a dry run.
        if self.dry_run {
            self.tried = self.tried.max(Some(port));
        } else if !PORTS.contains(&port) {
            return Err(PortError::NotInRange(format!("{}-{}", PORTS.start(), PORTS.end())));
        }
        if self.ports.insert(port) { Ok(()) } else { Err(PortError::Allocated) }
    }

    fn allocate_next_port(&mut self) -> Result<i64, PortError> {
        if self.dry_run {
            // A placeholder: above the range, or one above the highest port tried so far.
            let port = self.tried.unwrap_or(PORTS.end() + 1).saturating_add(1);
            self.tried = Some(port);
            return Ok(port);
        }
        let free = PORTS.skip(86).chain(PORTS.take(86)).find(|port| !self.ports.contains(port));
        let port = free.ok_or(PortError::Full)?;
        self.ports.insert(port);
        Ok(port)
    }

    fn release(&mut self, _: Family, address: IpAddr) {
        self.addresses.remove(&address);
    }

    fn release_port(&mut self, port: i64) {
        self.ports.remove(&port);
    }
}

/// Whether this is the `kubernetes` Service, through which pods reach this server.
fn is_kubernetes(service: &Value) -> bool {
    api::meta::namespace(service) == "default" && api::meta::name(service) == "kubernetes"
}

fn family(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

fn is_v4(net: &IpNet) -> bool {
    net.addr().is_ipv4()
}

/// The number of allocatable addresses: without the network address, and without the broadcast address of IPv4.
fn usable(net: &IpNet) -> u128 {
    let host_bits = u32::from(net.max_prefix_len() - net.prefix_len());
    let all = 1_u128.checked_shl(host_bits).unwrap_or(u128::MAX);
    all.saturating_sub(if is_v4(net) { 2 } else { 1 })
}

/// The address at an offset from the network address.
fn nth(net: &IpNet, offset: u128) -> Option<IpAddr> {
    match net.network() {
        IpAddr::V4(base) => {
            let offset = u32::try_from(offset).ok()?;
            Some(IpAddr::V4(u32::from(base).checked_add(offset)?.into()))
        }
        IpAddr::V6(base) => Some(IpAddr::V6(u128::from(base).checked_add(offset)?.into())),
    }
}

#[cfg(test)]
mod tests {
    use value::json;

    use super::Addresses;

    fn service(spec: &str) -> value::Value {
        let text =
            format!(r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s"}},"spec":{spec}}}"#);
        json::parse(text.as_bytes()).unwrap()
    }

    fn addresses() -> Addresses {
        Addresses::new(&["10.0.0.0/29".parse().unwrap()])
    }

    #[test]
    fn a_cluster_ip_is_released_when_the_write_of_its_service_fails() {
        let addresses = addresses();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            let mut object = service(r#"{"type":"ClusterIP","ports":[{"port":80}]}"#);
            drop(addresses.allocate(&mut object, None, false).unwrap());
            seen.insert(object.str_at(&["spec", "clusterIP"]).unwrap().to_owned());
        }
        assert!(seen.iter().all(|ip| ip.starts_with("10.0.0.")));
    }

    #[test]
    fn a_full_service_range_refuses_services_and_dry_runs_allocate_no_address() {
        let addresses = addresses();
        let make = || service(r#"{"type":"ClusterIP","ports":[{"port":80}]}"#);
        for _ in 0..30 {
            let mut object = make();
            drop(addresses.allocate(&mut object, None, true).unwrap());
            assert_eq!(
                object.str_at(&["spec", "clusterIP"]),
                Some("10.0.0.0"),
                "an address that nobody gets"
            );
        }
        // Five of the six addresses: the first belongs to the `kubernetes` Service.
        for _ in 0..5 {
            addresses.allocate(&mut make(), None, false).unwrap().commit();
        }
        assert!(
            addresses.allocate(&mut make(), None, false).unwrap_err().message().contains("range is full")
        );
    }

    #[test]
    fn the_first_address_is_reserved_for_the_kubernetes_service() {
        let addresses = addresses();
        let make = |namespace: &str, name: &str| {
            let mut service = service(
                r#"{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":443}]}"#,
            );
            api::meta::set(&mut service, "namespace", namespace);
            api::meta::set(&mut service, "name", name);
            service
        };
        for (namespace, name) in [("default", "thief"), ("other", "kubernetes")] {
            for dry_run in [false, true] {
                let refused = addresses.allocate(&mut make(namespace, name), None, dry_run).unwrap_err();
                assert!(refused.message().contains("provided IP is already allocated"), "{refused}");
            }
        }
        let mut own = make("default", "kubernetes");
        addresses.allocate(&mut own, None, false).unwrap().commit();
        addresses.release(&own);
        assert!(addresses.allocate(&mut make("default", "thief"), None, false).is_err(), "after a deletion");
        assert!(addresses.allocate(&mut own, None, false).is_ok());
    }

    #[test]
    fn dry_runs_assign_placeholder_node_ports_without_allocating_them() {
        let addresses = addresses();
        let ports = |spec: &str, dry_run: bool| {
            let mut object = service(spec);
            let held =
                addresses.allocate(&mut object, None, dry_run).map_err(|refused| refused.to_string())?;
            drop(held);
            let ports = object.list_at(&["spec", "ports"]).iter().map(|port| port.int_at(&["nodePort"]));
            Ok::<Vec<Option<i64>>, String>(ports.collect())
        };
        let any = r#"{"type":"NodePort","ports":[{"port":80},{"port":81}]}"#;
        assert_eq!(ports(any, true), Ok(vec![Some(32769), Some(32770)]));
        let beside = r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30080},{"port":81}]}"#;
        assert_eq!(ports(beside, true), Ok(vec![Some(30080), Some(30081)]));
        let foreign = r#"{"type":"NodePort","ports":[{"port":80,"nodePort":7}]}"#;
        assert_eq!(ports(foreign, true), Ok(vec![Some(7)]));
        assert!(ports(foreign, false).unwrap_err().contains("not in the valid range"));
    }

    #[test]
    fn an_allocated_cluster_ip_is_refused_until_it_is_released() {
        let addresses = addresses();
        let make = || {
            service(
                r#"{"type":"ClusterIP","clusterIP":"10.0.0.3","clusterIPs":["10.0.0.3"],"ports":[{"port":80}]}"#,
            )
        };
        let mut first = make();
        addresses.allocate(&mut first, None, false).unwrap().commit();
        let refused = addresses.allocate(&mut make(), None, false).unwrap_err();
        assert!(refused.message().contains("provided IP is already allocated"), "{refused}");
        addresses.release(&first);
        assert!(addresses.allocate(&mut make(), None, false).is_ok());
    }
}
