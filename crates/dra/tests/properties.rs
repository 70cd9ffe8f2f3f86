//! Properties of allocations on small random clusters, compared with an oracle that tries all solutions.

#[cfg(test)]
mod properties {
    use std::collections::BTreeMap;

    use dra::{
        AllocationBudget, CandidateNode, ClaimAllocation, DeviceAllocator, DraGates, Error, PendingClaim,
    };
    use proptest::prelude::*;
    use value::{Value, json};

    const NODES: usize = 2;

    /// A device of a random cluster.
    #[derive(Clone, Debug)]
    struct Device {
        /// Index of a node; `None` for all nodes.
        node: Option<usize>,
        numa: Option<u8>,
        fast: bool,
        tainted: bool,
        /// Amount taken from the pool's only counter.
        takes: u8,
    }

    /// A request of a random claim.
    #[derive(Clone, Debug)]
    #[expect(clippy::struct_excessive_bools, reason = "each is drawn on its own")]
    struct RequestSpec {
        /// Number of devices; `None` for all devices.
        count: Option<usize>,
        only_fast: bool,
        admin: bool,
        tolerates: bool,
        /// A second alternative: one device of any type.
        or_any: bool,
    }

    #[derive(Clone, Debug)]
    struct Wanted {
        requests: Vec<RequestSpec>,
        same_numa: bool,
    }

    fn device() -> impl Strategy<Value = Device> {
        (
            prop_oneof![3 => (0..NODES).prop_map(Some), 1 => Just(None)],
            prop_oneof![4 => (0..2u8).prop_map(Some), 1 => Just(None)],
            any::<bool>(),
            prop::bool::weighted(0.15),
            0..3u8,
        )
            .prop_map(|(node, numa, fast, tainted, takes)| Device {
                node,
                numa,
                fast,
                tainted,
                takes,
            })
    }

    fn request() -> impl Strategy<Value = RequestSpec> {
        (
            prop_oneof![4 => (1..3usize).prop_map(Some), 1 => Just(None)],
            any::<bool>(),
            prop::bool::weighted(0.25),
            prop::bool::weighted(0.3),
            prop::bool::weighted(0.25),
        )
            .prop_map(|(count, only_fast, admin, tolerates, or_any)| {
                // Alternatives cannot have admin access.
                RequestSpec { count, only_fast, admin: admin && !or_any, tolerates, or_any }
            })
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        (prop::collection::vec(request(), 1..3), prop::bool::weighted(0.3))
            .prop_map(|(requests, same_numa)| Wanted { requests, same_numa })
    }

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    const FAST: &str = "device.attributes['d.example.com'].fast";
    const COUNTER: u8 = 4;

    /// One pool per node and one for all nodes, each with its own counter.
    fn slices(devices: &[Device]) -> Vec<Value> {
        let mut pools: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (i, device) in devices.iter().enumerate() {
            let numa = device.numa.map_or_else(String::new, |numa| format!(r#", "numa": {{"int": {numa}}}"#));
            let taints =
                if device.tainted { r#", "taints": [{"key": "t", "effect": "NoSchedule"}]"# } else { "" };
            let takes = if device.takes == 0 {
                String::new()
            } else {
                format!(
                    r#", "consumesCounters": [{{"counterSet": "s", "counters": {{"c": {{"value": "{}"}}}}}}]"#,
                    device.takes
                )
            };
            let text = format!(
                r#"{{"name": "d{i}", "attributes": {{"fast": {{"bool": {}}}{numa}}}{taints}{takes}}}"#,
                device.fast
            );
            pools.entry(pool_of(device)).or_default().push(text);
        }
        let mut slices = Vec::new();
        for (pool, devices) in pools {
            let reach = if pool == "all" {
                r#""allNodes": true"#.to_owned()
            } else {
                format!(r#""nodeName": "{pool}""#)
            };
            let head = format!(
                r#""driver": "d.example.com", {reach}, "pool": {{"name": "{pool}", "generation": 1, "resourceSliceCount": 2}}"#
            );
            slices.push(parse(&format!(r#"{{"metadata": {{"name": "{pool}-c"}}, "spec": {{{head}, "sharedCounters": [{{"name": "s", "counters": {{"c": {{"value": "{COUNTER}"}}}}}}]}}}}"#)));
            slices.push(parse(&format!(
                r#"{{"metadata": {{"name": "{pool}-d"}}, "spec": {{{head}, "devices": [{}]}}}}"#,
                devices.join(",")
            )));
        }
        slices
    }

    fn pool_of(device: &Device) -> String {
        device.node.map_or_else(|| "all".to_owned(), |node| format!("n{node}"))
    }

    fn claim(wanted: &Wanted) -> PendingClaim {
        let requests: Vec<String> = wanted
        .requests
        .iter()
        .enumerate()
        .map(|(i, request)| {
            let amount = match request.count {
                Some(count) => format!(r#""allocationMode": "ExactCount", "count": {count}"#),
                None => r#""allocationMode": "All""#.to_owned(),
            };
            let selectors = if request.only_fast { format!(r#", "selectors": [{{"cel": {{"expression": "{FAST}"}}}}]"#) } else { String::new() };
            let tolerations = if request.tolerates { r#", "tolerations": [{"operator": "Exists"}]"# } else { "" };
            let body = format!(r#""deviceClassName": "any", {amount}{selectors}{tolerations}"#);
            if request.or_any {
                format!(r#"{{"name": "r{i}", "firstAvailable": [{{"name": "x", {body}}}, {{"name": "y", "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1{tolerations}}}]}}"#)
            } else {
                let admin = if request.admin { r#", "adminAccess": true"# } else { "" };
                format!(r#"{{"name": "r{i}", "exactly": {{{body}{admin}}}}}"#)
            }
        })
        .collect();
        let constraints = if wanted.same_numa {
            r#", "constraints": [{"matchAttribute": "d.example.com/numa"}]"#
        } else {
            ""
        };
        PendingClaim::read(&parse(&format!(
        r#"{{"metadata": {{"name": "c", "namespace": "ns"}}, "spec": {{"devices": {{"requests": [{}]{constraints}}}}}}}"#,
        requests.join(",")
    )))
    .unwrap()
    }

    fn allocator(devices: &[Device]) -> DeviceAllocator {
        let class = parse(r#"{"metadata": {"name": "any"}, "spec": {}}"#);
        DeviceAllocator::new(&[class], &slices(devices), DraGates::default())
    }

    fn node(at: usize) -> Value {
        parse(&format!(r#"{{"metadata": {{"name": "n{at}"}}}}"#))
    }

    /// The devices of an allocation by index, with the request and whether it is admin access.
    fn results(allocation: &ClaimAllocation) -> Vec<(String, usize, bool)> {
        allocation
            .results
            .iter()
            .map(|result| {
                (
                    result.request.to_string(),
                    result.device.trim_start_matches('d').parse().unwrap(),
                    result.admin_access,
                )
            })
            .collect()
    }

    /// State of the oracle: the user of each device while the claims of a pod are tried.
    #[derive(Clone)]
    struct World<'d> {
        devices: &'d [Device],
        node: usize,
        owned: Vec<bool>,
    }

    impl World<'_> {
        fn reaches(&self, at: usize) -> bool {
            self.devices[at].node.is_none_or(|node| node == self.node)
        }

        fn counter_left(&self, pool: &str) -> i32 {
            let taken: i32 = (0..self.devices.len())
                .filter(|at| self.owned[*at] && pool_of(&self.devices[*at]) == pool)
                .map(|at| i32::from(self.devices[at].takes))
                .sum();
            i32::from(COUNTER) - taken
        }

        /// True if a solution for all claims exists: tries every alternative and every set of devices.
        fn can_serve(&self, claims: &[Wanted]) -> bool {
            let Some((claim, rest)) = claims.split_first() else { return true };
            self.serve_requests(claim, 0, &mut Vec::new(), &mut |world| world.can_serve(rest))
        }

        fn serve_requests(
            &self,
            claim: &Wanted,
            at: usize,
            in_claim: &mut Vec<usize>,
            then: &mut dyn FnMut(&World<'_>) -> bool,
        ) -> bool {
            let Some(request) = claim.requests.get(at) else {
                let numa: Vec<Option<u8>> = in_claim.iter().map(|at| self.devices[*at].numa).collect();
                let alike = numa.iter().all(|value| value.is_some() && *value == numa[0]);
                return (!claim.same_numa || alike) && then(self);
            };
            let matching = |only_fast: bool| -> Vec<usize> {
                (0..self.devices.len())
                    .filter(|at| self.reaches(*at) && (!only_fast || self.devices[*at].fast))
                    .collect()
            };
            let mut ways: Vec<(Vec<usize>, Option<usize>)> =
                vec![(matching(request.only_fast), request.count)];
            if request.or_any {
                ways.push((matching(false), Some(1)));
            }
            ways.into_iter().any(|(from, count)| {
                let sets = match count {
                    None if from.is_empty() => Vec::new(),
                    None => vec![from],
                    Some(count) => subsets(&from, count),
                };
                sets.into_iter().any(|set| {
                    let mut world = self.clone();
                    for device in &set {
                        let tolerated = request.tolerates || !self.devices[*device].tainted;
                        let free = request.admin || !world.owned[*device];
                        if !tolerated || !free || in_claim.contains(device) {
                            return false;
                        }
                        if !request.admin {
                            let pool = pool_of(&self.devices[*device]);
                            if world.counter_left(&pool) < i32::from(self.devices[*device].takes) {
                                return false;
                            }
                            world.owned[*device] = true;
                        }
                    }
                    in_claim.extend(&set);
                    let served = world.serve_requests(claim, at + 1, in_claim, then);
                    in_claim.truncate(in_claim.len() - set.len());
                    served
                })
            })
        }
    }

    fn subsets(from: &[usize], size: usize) -> Vec<Vec<usize>> {
        if size == 0 {
            return vec![Vec::new()];
        }
        let Some((first, rest)) = from.split_first() else { return Vec::new() };
        let mut found: Vec<Vec<usize>> = subsets(rest, size - 1)
            .into_iter()
            .map(|mut set| {
                set.insert(0, *first);
                set
            })
            .collect();
        found.extend(subsets(rest, size));
        found
    }

    /// A claim that asks for all devices but forbids their combination.
    #[derive(Debug, PartialEq)]
    struct RefusedClaim;

    /// Maps the errors of unsatisfiable claims to [`RefusedClaim`]; all other errors are failures.
    fn answer(
        found: Result<Option<Vec<ClaimAllocation>>, Error>,
    ) -> Result<Option<Vec<ClaimAllocation>>, RefusedClaim> {
        match found {
            Ok(found) => Ok(found),
            Err(Error::Request { reason, .. }) if reason.contains("constraint") => Err(RefusedClaim),
            Err(error) => panic!("{error}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn no_device_is_allocated_twice_without_admin_access(
            devices in prop::collection::vec(device(), 1..7),
            pods in prop::collection::vec((prop::collection::vec(wanted(), 1..3), 0..NODES), 1..6),
        ) {
            let mut all = allocator(&devices);
            let mut owner: BTreeMap<usize, usize> = BTreeMap::new();
            for (pod, (claims, on)) in pods.iter().enumerate() {
                let claims: Vec<PendingClaim> = claims.iter().map(claim).collect();
                let on = node(*on);
                let Ok(Some(found)) = answer(all.allocate(&claims, &CandidateNode::of(&on), &mut AllocationBudget::default())) else { continue };
                for (i, allocation) in found.iter().enumerate() {
                    all.hold(&format!("{pod}-{i}"), allocation);
                    for (_, device, admin) in results(allocation) {
                        if !admin {
                            prop_assert_eq!(owner.insert(device, pod), None, "device {} is given twice", device);
                        }
                    }
                }
            }
            // No counter may be overdrawn.
            let mut taken: BTreeMap<String, u32> = BTreeMap::new();
            for device in owner.keys() {
                *taken.entry(pool_of(&devices[*device])).or_default() += u32::from(devices[*device].takes);
            }
            prop_assert!(taken.values().all(|taken| *taken <= u32::from(COUNTER)));
        }

        #[test]
        fn admin_access_never_changes_other_allocations(
            devices in prop::collection::vec(device(), 1..7),
            claims in prop::collection::vec(wanted(), 1..3),
            admins in prop::collection::vec(wanted(), 1..3),
        ) {
            let normal = |wanted: &Wanted| {
                let requests = wanted.requests.iter().map(|request| RequestSpec { admin: false, ..request.clone() });
                Wanted { requests: requests.collect(), ..wanted.clone() }
            };
            let admin = |wanted: &Wanted| {
                let requests = wanted.requests.iter().map(|request| RequestSpec { admin: true, or_any: false, ..request.clone() });
                Wanted { requests: requests.collect(), ..wanted.clone() }
            };
            let on = node(0);
            let claims: Vec<PendingClaim> = claims.iter().map(|wanted| claim(&normal(wanted))).collect();
            let admins: Vec<PendingClaim> = admins.iter().map(|wanted| claim(&admin(wanted))).collect();
            let alone = allocator(&devices).allocate(&claims, &CandidateNode::of(&on), &mut AllocationBudget::default());
            let mut all = allocator(&devices);
            let Ok(Some(looked_after)) = answer(all.allocate(&admins, &CandidateNode::of(&on), &mut AllocationBudget::default())) else { return Ok(()) };
            // With admin access in a pod of its own.
            for (i, allocation) in looked_after.iter().enumerate() {
                prop_assert!(allocation.results.iter().all(|result| result.admin_access));
                all.hold(&i.to_string(), allocation);
            }
            prop_assert_eq!(&all.allocate(&claims, &CandidateNode::of(&on), &mut AllocationBudget::default()), &alone);
            // With admin access in the same pod, before and after the other claims.
            let before: Vec<PendingClaim> = admins.iter().chain(&claims).cloned().collect();
            let after: Vec<PendingClaim> = claims.iter().chain(&admins).cloned().collect();
            if let Ok(Some(alone)) = &alone {
                let found = all.allocate(&before, &CandidateNode::of(&on), &mut AllocationBudget::default()).unwrap().unwrap();
                prop_assert_eq!(&found[admins.len()..], &alone[..]);
                let found = all.allocate(&after, &CandidateNode::of(&on), &mut AllocationBudget::default()).unwrap().unwrap();
                prop_assert_eq!(&found[..claims.len()], &alone[..]);
            }
        }

        #[test]
        fn all_with_admin_access_is_every_matching_device(
            devices in prop::collection::vec(device(), 1..7),
            used in prop::collection::vec(wanted(), 0..4),
            only_fast in any::<bool>(),
        ) {
            let mut all = allocator(&devices);
            let on = node(0);
            for (i, wanted) in used.iter().enumerate() {
                let Ok(Some(found)) = answer(all.allocate(&[claim(wanted)], &CandidateNode::of(&on), &mut AllocationBudget::default())) else { continue };
                all.hold(&i.to_string(), &found[0]);
            }
            let request = RequestSpec { count: None, only_fast, admin: true, tolerates: true, or_any: false };
            let wanted = Wanted { requests: vec![request], same_numa: false };
            let mut expected: Vec<usize> = (0..devices.len())
                .filter(|at| devices[*at].node.is_none_or(|node| node == 0) && (!only_fast || devices[*at].fast))
                .collect();
            let found = all.allocate(&[claim(&wanted)], &CandidateNode::of(&on), &mut AllocationBudget::default()).unwrap();
            let mut found: Vec<usize> =
                found.iter().flatten().flat_map(results).map(|(_, device, _)| device).collect();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn claims_are_allocated_if_and_only_if_a_solution_exists(
            devices in prop::collection::vec(device(), 1..6),
            used in prop::collection::vec(wanted(), 0..2),
            claims in prop::collection::vec(wanted(), 1..3),
            on in 0..NODES,
        ) {
            let mut all = allocator(&devices);
            let mut world = World { devices: &devices, node: on, owned: vec![false; devices.len()] };
            for (i, wanted) in used.iter().enumerate() {
                let other = node(1 - on);
                let Ok(Some(found)) = answer(all.allocate(&[claim(wanted)], &CandidateNode::of(&other), &mut AllocationBudget::default())) else { continue };
                all.hold(&i.to_string(), &found[0]);
                for (_, device, admin) in results(&found[0]) {
                    world.owned[device] |= !admin;
                }
            }
            let here = node(on);
            let wanted: Vec<PendingClaim> = claims.iter().map(claim).collect();
            let Ok(found) = answer(all.allocate(&wanted, &CandidateNode::of(&here), &mut AllocationBudget::default())) else { return Ok(()) };
            prop_assert_eq!(found.is_some(), world.can_serve(&claims));
            // The allocator is deterministic.
            prop_assert_eq!(answer(all.allocate(&wanted, &CandidateNode::of(&here), &mut AllocationBudget::default())), Ok(found));
        }
    }
}
