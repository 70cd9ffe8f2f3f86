//! One run of the allocation rules of Services.
//!
//! The rules ([`kinds::strategy::service`]) are synchronous, and an address is allocated by creating an object. So the rules run
//! repeatedly: each run repeats the answers to the requests so far, and ends at the first request without an answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kinds::strategy::service::{AddressError, Allocator, Family, PortError};

use super::known_ranges::KnownRanges;
use super::port_bitmap::{NodePortRange, PortBitmap};

/// A request of the rules that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationRequest {
    /// Allocate this address, or any address of the family.
    Address(Family, Option<IpAddr>),
    /// Read the allocated ports.
    Ports,
}

/// The allocated address, or why none is available.
pub type AddressAnswer = Result<IpAddr, AddressError>;

/// A run of the rules.
pub struct AllocationAttempt<'a> {
    /// The families with a range; the first is the default.
    pub families: &'a [Family],
    /// Answers to the requests for addresses, in order.
    pub answers: std::slice::Iter<'a, AddressAnswer>,
    /// The request at which the run ended.
    pub pending: Option<AllocationRequest>,
    pub port_range: NodePortRange,
    /// The allocated ports; the run adds those of the Service. `None` until they are read.
    pub ports: Option<Result<PortBitmap, PortError>>,
    pub port_counts: PortCounts,
    /// `random(n)` returns a random number below `n`, which is not 0.
    pub random: fn(u64) -> u64,
}

/// Allocations of ports and their failures in one run, by scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    pub requested: u64,
    pub chosen: u64,
    pub requested_failed: u64,
    pub chosen_failed: u64,
}

impl AllocationAttempt<'_> {
    fn answer(&mut self, family: Family, address: Option<IpAddr>) -> AddressAnswer {
        if let Some(answer) = self.answers.next() {
            return answer.clone();
        }
        self.pending.get_or_insert(AllocationRequest::Address(family, address));
        Err(AddressError::Other("not allocated yet".to_owned()))
    }

    fn ports(&mut self) -> Result<&mut PortBitmap, PortError> {
        match &mut self.ports {
            Some(Ok(ports)) => Ok(ports),
            Some(Err(error)) => Err(error.clone()),
            None => {
                self.pending.get_or_insert(AllocationRequest::Ports);
                Err(PortError::Other("not allocated yet".to_owned()))
            }
        }
    }

    fn request_port(&mut self, port: i64) -> Result<(), PortError> {
        if !self.port_range.contains(port) {
            return Err(PortError::NotInRange(self.port_range.to_string()));
        }
        if self.ports()?.set(port, true) { Ok(()) } else { Err(PortError::Allocated) }
    }

    fn choose_port(&mut self) -> Result<i64, PortError> {
        let random = self.random;
        let ports = self.ports()?;
        let port = ports.any_free(random).ok_or(PortError::Full)?;
        ports.set(port, true);
        Ok(port)
    }
}

impl Allocator for AllocationAttempt<'_> {
    fn families(&self) -> &[Family] {
        self.families
    }

    fn allocate(&mut self, family: Family, address: IpAddr) -> Result<(), AddressError> {
        self.answer(family, Some(address)).map(drop)
    }

    fn allocate_next(&mut self, family: Family) -> Result<IpAddr, AddressError> {
        self.answer(family, None)
    }

    fn allocate_port(&mut self, port: i64) -> Result<(), PortError> {
        let allocated = self.request_port(port);
        let PortCounts { requested, requested_failed, .. } = &mut self.port_counts;
        *(if allocated.is_ok() { requested } else { requested_failed }) += 1;
        allocated
    }

    fn allocate_next_port(&mut self) -> Result<i64, PortError> {
        let allocated = self.choose_port();
        let PortCounts { chosen, chosen_failed, .. } = &mut self.port_counts;
        *(if allocated.is_ok() { chosen } else { chosen_failed }) += 1;
        allocated
    }

    // The ports of a failed run are discarded with it, and the server deletes the IPAddresses that it has created for the answers.
    fn release(&mut self, _: Family, _: IpAddr) {}

    fn release_port(&mut self, _: i64) {}
}

/// The allocator of dry runs: like kube-apiserver's, it checks ranges but not whether an address is free, and returns placeholders.
pub struct DryRunAllocator<'a> {
    pub families: &'a [Family],
    pub ranges: &'a KnownRanges,
    pub ports: Option<PortBitmap>,
    /// Ports that this dry run has tried: as many as the client sends, because validation comes later.
    pub tried: BTreeSet<i64>,
}

/// The first placeholder for a node port is the port after this one.
const PLACEHOLDER_PORT: i64 = 32768;

impl Allocator for DryRunAllocator<'_> {
    fn families(&self) -> &[Family] {
        self.families
    }

    fn allocate(&mut self, family: Family, address: IpAddr) -> Result<(), AddressError> {
        if self.ranges.ready_range(address).is_some() {
            return Ok(());
        }
        match self.ranges.of_family(family).find(|(_, is_ready)| *is_ready) {
            Some((range, _)) => Err(AddressError::NotInRange(address, range.net().to_string())),
            None => Err(AddressError::NotReady),
        }
    }

    fn allocate_next(&mut self, family: Family) -> Result<IpAddr, AddressError> {
        // The network address, which no Service gets: a dry run cannot promise an address, because another Service may get it first.
        let ready = self.ranges.of_family(family).find(|(_, is_ready)| *is_ready);
        ready.map(|(range, _)| range.net().network()).ok_or(AddressError::NotReady)
    }

    fn allocate_port(&mut self, port: i64) -> Result<(), PortError> {
        // Kubernetes does not check the port range in a dry run.
        let is_taken = self.ports.as_ref().is_some_and(|ports| ports.has(port)) || self.tried.contains(&port);
        if is_taken {
            return Err(PortError::Allocated);
        }
        self.tried.insert(port);
        Ok(())
    }

    fn allocate_next_port(&mut self) -> Result<i64, PortError> {
        let port = self.tried.last().copied().unwrap_or(PLACEHOLDER_PORT).saturating_add(1);
        self.tried.insert(port);
        Ok(port)
    }

    fn release(&mut self, _: Family, _: IpAddr) {}

    fn release_port(&mut self, _: i64) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use kinds::strategy::service::{AddressError, Allocator, Family, PortError, begin_create};
    use value::{Value, json};

    use super::super::known_ranges::KnownRanges;
    use super::super::port_bitmap::{DEFAULT_NODE_PORTS, PortBitmap};
    use super::{AddressAnswer, AllocationAttempt, AllocationRequest, DryRunAllocator, PortCounts};

    fn service() -> Value {
        let text = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},
            "spec":{"type":"NodePort","ipFamilyPolicy":"RequireDualStack","ports":[{"port":80,"nodePort":30080},{"port":81}]}}"#;
        json::parse(text.as_bytes()).unwrap()
    }

    fn attempt(answers: &[AddressAnswer], ports: Option<PortBitmap>) -> AllocationAttempt<'_> {
        AllocationAttempt {
            families: &[Family::V4, Family::V6],
            answers: answers.iter(),
            pending: None,
            port_range: DEFAULT_NODE_PORTS,
            ports: ports.map(Ok),
            port_counts: PortCounts::default(),
            random: |_| 0,
        }
    }

    #[test]
    fn a_run_ends_at_the_first_request_without_an_answer() {
        let mut answers: Vec<AddressAnswer> = Vec::new();
        for expected in [
            AllocationRequest::Address(Family::V4, None),
            AllocationRequest::Address(Family::V6, None),
            AllocationRequest::Ports,
        ] {
            let mut run = attempt(&answers, None);
            assert!(begin_create(&mut service(), &mut run).is_err());
            assert_eq!(run.pending, Some(expected));
            let answer = if answers.is_empty() { "10.0.0.9" } else { "fd00::9" };
            answers.push(Ok(answer.parse().unwrap()));
        }
        let mut object = service();
        let mut run = attempt(&answers, Some(PortBitmap::empty(DEFAULT_NODE_PORTS)));
        let allocation = begin_create(&mut object, &mut run).unwrap();
        assert_eq!(run.pending, None);
        assert_eq!(object.list_at(&["spec", "clusterIPs"]).len(), 2);
        assert_eq!(allocation.to_revert.ports.len(), 2);
        let ports = run.ports.unwrap().unwrap();
        assert!(ports.has(30080) && ports.count() == 2);
        assert_eq!((run.port_counts.requested, run.port_counts.chosen), (1, 1));
    }

    #[test]
    fn a_refused_address_ends_the_rules_with_its_error() {
        let answers = [Ok("10.0.0.9".parse().unwrap()), Err(AddressError::Full)];
        let mut run = attempt(&answers, None);
        let refused = begin_create(&mut service(), &mut run).unwrap_err();
        assert_eq!(run.pending, None);
        assert!(refused.message().contains("range is full"), "{refused}");
    }
    #[test]
    fn a_dry_run_refuses_ports_in_use_and_gives_placeholders_above_those_it_has_tried() {
        let mut ports = PortBitmap::empty(DEFAULT_NODE_PORTS);
        ports.set(30080, true);
        let ranges = KnownRanges::default();
        let mut run =
            DryRunAllocator { families: &[], ranges: &ranges, ports: Some(ports), tried: BTreeSet::new() };
        assert_eq!(run.allocate_port(30080), Err(PortError::Allocated));
        assert_eq!(run.allocate_port(30081), Ok(()));
        assert_eq!(run.allocate_port(30081), Err(PortError::Allocated));
        assert_eq!(run.allocate_next_port(), Ok(30082));
        assert_eq!(run.allocate_port(40000), Ok(()));
        assert_eq!(run.allocate_port(5), Ok(()));
        assert_eq!([run.allocate_next_port(), run.allocate_next_port()], [Ok(40001), Ok(40002)]);
        let mut empty =
            DryRunAllocator { families: &[], ranges: &ranges, ports: None, tried: BTreeSet::new() };
        assert_eq!(empty.allocate_next_port(), Ok(32769));
    }

    /// As many ports as fit into the largest body. The allocators use no trees, so their work is no step of a budget; searching all ports
    /// for each takes some minutes here.
    #[test]
    fn a_dry_run_of_as_many_ports_as_a_body_can_have_takes_less_than_seconds() {
        let ranges = KnownRanges::default();
        let mut run = DryRunAllocator { families: &[], ranges: &ranges, ports: None, tried: BTreeSet::new() };
        let began = Instant::now();
        for port in 0..100_000 {
            assert_eq!(run.allocate_port(-port), Ok(()));
            run.allocate_next_port().unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
