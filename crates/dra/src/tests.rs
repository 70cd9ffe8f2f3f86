//! Tests of the allocation rules.

use value::{Value, json};

use crate::{AllocationBudget, CandidateNode, DeviceAllocator, DraGates, Error, PendingClaim};

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{}: {text}", error.message))
}

fn class(name: &str, spec: &str) -> Value {
    parse(&format!(r#"{{"metadata": {{"name": "{name}"}}, "spec": {spec}}}"#))
}

/// A slice of `gpu.example.com` with devices on one node.
fn slice(node: &str, devices: &str) -> Value {
    pool(node, 1, 1, &format!(r#""nodeName": "{node}", "devices": {devices}"#))
}

fn pool(name: &str, generation: u32, count: u32, rest: &str) -> Value {
    parse(&format!(
        r#"{{"metadata": {{"name": "{name}-{generation}"}}, "spec": {{"driver": "gpu.example.com",
            "pool": {{"name": "{name}", "generation": {generation}, "resourceSliceCount": {count}}}, {rest}}}}}"#
    ))
}

fn claim_of(devices: &str) -> Value {
    parse(&format!(
        r#"{{"metadata": {{"name": "c", "namespace": "ns", "uid": "{UID}"}}, "spec": {{"devices": {devices}}}}}"#
    ))
}

/// A claim with one exact request for the class `gpu`.
fn claim(exactly: &str) -> Value {
    let comma = if exactly.is_empty() { "" } else { ", " };
    claim_of(&format!(
        r#"{{"requests": [{{"name": "r", "exactly": {{"deviceClassName": "gpu"{comma}{exactly}}}}}]}}"#
    ))
}

fn node(name: &str) -> Value {
    parse(&format!(r#"{{"metadata": {{"name": "{name}", "labels": {{"zone": "a", "size": "5"}}}}}}"#))
}

fn allocator(slices: &[Value]) -> DeviceAllocator {
    DeviceAllocator::new(&[class("gpu", "{}")], slices, DraGates::default())
}

/// The allocation status of each claim on a node.
fn statuses(
    allocator: &mut DeviceAllocator,
    claims: &[Value],
    on: &str,
) -> Result<Option<Vec<Value>>, Error> {
    let claims: Vec<PendingClaim> = claims.iter().map(|claim| PendingClaim::read(claim).unwrap()).collect();
    let found =
        allocator.allocate(&claims, &CandidateNode::of(&node(on)), &mut AllocationBudget::default())?;
    Ok(found.map(|found| found.iter().map(|one| one.to_value(&mut || UID.to_owned())).collect()))
}

/// The devices of each claim on the node `n`, as `request=device`.
fn devices(allocator: &mut DeviceAllocator, claims: &[Value]) -> Result<Option<Vec<String>>, Error> {
    let found = statuses(allocator, claims, "n")?;
    Ok(found.map(|found| {
        let each = found.iter().map(|status| {
            let results = status.list_at(&["devices", "results"]).iter();
            let results: Vec<String> = results
                .map(|result| {
                    format!(
                        "{}={}",
                        result.str_at(&["request"]).unwrap(),
                        result.str_at(&["device"]).unwrap()
                    )
                })
                .collect();
            results.join(" ")
        });
        each.collect()
    }))
}

fn one(allocator: &mut DeviceAllocator, claim: &Value) -> Option<String> {
    devices(allocator, std::slice::from_ref(claim)).unwrap().map(|found| found.join("; "))
}

fn reason(allocator: &mut DeviceAllocator, claim: &Value) -> String {
    devices(allocator, std::slice::from_ref(claim)).unwrap_err().to_string()
}

/// A claim whose status has these results.
fn allocated(uid: &str, results: &str) -> Value {
    parse(&format!(
        r#"{{"metadata": {{"uid": "{uid}"}}, "status": {{"allocation": {{"devices": {{"results": {results}}}}}}}}}"#
    ))
}

fn result(device: &str, more: &str) -> String {
    format!(r#"[{{"driver": "gpu.example.com", "pool": "n", "device": "{device}"{more}}}]"#)
}

const TWO: &str = r#"[{"name": "a"}, {"name": "b"}]"#;

#[test]
fn the_first_free_device_is_allocated_and_released() {
    let mut all = allocator(&[slice("n", TWO)]);
    assert_eq!(one(&mut all, &claim("")), Some("r=a".into()));
    all.observe(&allocated("1", &result("a", "")));
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
    all.observe(&allocated("2", &result("b", "")));
    assert_eq!(one(&mut all, &claim("")), None);
    // Observing again changes nothing; deallocating or deleting the claim frees the device.
    all.observe(&allocated("2", &result("b", "")));
    all.observe(&allocated("2", "[]"));
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
    all.forget("1");
    assert_eq!(one(&mut all, &claim("")), Some("r=a".into()));
}

#[test]
fn allocate_reserves_no_devices_until_the_allocation_is_held() {
    let mut all = allocator(&[slice("n", TWO)]);
    let claims = [PendingClaim::read(&claim(r#""count": 2"#)).unwrap()];
    let here = node("n");
    let found =
        all.allocate(&claims, &CandidateNode::of(&here), &mut AllocationBudget::default()).unwrap().unwrap();
    assert_eq!(
        all.allocate(&claims, &CandidateNode::of(&here), &mut AllocationBudget::default()).unwrap().as_ref(),
        Some(&found)
    );
    all.hold("1", &found[0]);
    assert_eq!(all.allocate(&claims, &CandidateNode::of(&here), &mut AllocationBudget::default()), Ok(None));
}

#[test]
fn several_claims_are_allocated_together_or_not_at_all() {
    let mut all = allocator(&[slice("n", TWO)]);
    let claims = [claim(""), claim("")];
    assert_eq!(devices(&mut all, &claims).unwrap().unwrap(), ["r=a", "r=b"]);
    let claims = [claim(""), claim(""), claim("")];
    assert_eq!(devices(&mut all, &claims), Ok(None));
}

#[test]
fn selectors_of_class_and_request_must_both_hold() {
    let slices = [slice(
        "n",
        r#"[{"name": "a", "attributes": {"model": {"string": "x"}, "size": {"int": 1}}},
            {"name": "b", "attributes": {"model": {"string": "y"}, "size": {"int": 2}}},
            {"name": "c", "attributes": {"model": {"string": "y"}, "size": {"int": 1}}}]"#,
    )];
    let spec =
        r#"{"selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].model == 'y'"}}]}"#;
    let mut all = DeviceAllocator::new(&[class("gpu", spec)], &slices, DraGates::default());
    let wanted =
        claim(r#""selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].size == 1"}}]"#);
    assert_eq!(one(&mut all, &wanted), Some("r=c".into()));
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
}

#[test]
fn a_selector_error_on_a_needed_device_ends_the_search() {
    let mut all =
        allocator(&[slice("n", r#"[{"name": "a", "attributes": {"fast": {"bool": true}}}, {"name": "b"}]"#)]);
    let wanted = |count: u32| {
        claim(&format!(
            r#""count": {count}, "selectors": [{{"cel": {{"expression": "device.attributes['gpu.example.com'].fast"}}}}]"#
        ))
    };
    assert_eq!(one(&mut all, &wanted(1)), Some("r=a".into()));
    assert_eq!(
        reason(&mut all, &wanted(2)),
        "claim ns/c: selector #0 on device gpu.example.com/n/b: CEL runtime error: no such key: fast. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
    );
    let broken = claim(r#""selectors": [{"cel": {"expression": "1 +"}}]"#);
    assert!(
        reason(&mut all, &broken)
            .starts_with("claim ns/c: selector #0: CEL compile error: compilation failed")
    );
}

#[test]
fn nodes_reach_slices_by_name_selector_everywhere_or_per_device() {
    let selector = r#"{"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}"#;
    let mut by_selector =
        allocator(&[pool("p", 1, 1, &format!(r#""nodeSelector": {selector}, "devices": {TWO}"#))]);
    let status = statuses(&mut by_selector, &[claim("")], "n").unwrap().unwrap().remove(0);
    assert_eq!(status.get("nodeSelector"), Some(&parse(selector)));

    let mut everywhere = allocator(&[pool("p", 1, 1, &format!(r#""allNodes": true, "devices": {TWO}"#))]);
    let status = statuses(&mut everywhere, &[claim("")], "n").unwrap().unwrap().remove(0);
    assert_eq!(status.get("nodeSelector"), None);

    let each = r#""perDeviceNodeSelection": true, "devices": [{"name": "a", "nodeName": "other"},
        {"name": "b", "allNodes": true}, {"name": "c", "nodeName": "n"}]"#;
    let mut per_device = allocator(&[pool("p", 1, 1, each)]);
    assert_eq!(one(&mut per_device, &claim(r#""allocationMode": "All""#)), Some("r=b r=c".into()));
    let status =
        statuses(&mut per_device, &[claim(r#""allocationMode": "All""#)], "n").unwrap().unwrap().remove(0);
    let name = r#"{"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}"#;
    assert_eq!(status.get("nodeSelector"), Some(&parse(name)));
    assert_eq!(CandidateNode::of(&node("n")).reaches(&status), Ok(true));
    assert_eq!(CandidateNode::of(&node("other")).reaches(&status), Ok(false));
    assert_eq!(one(&mut allocator(&[slice("other", TWO)]), &claim("")), None);
}

#[test]
fn pool_is_used_only_in_its_newest_generation_and_if_complete() {
    let old = pool("n", 1, 1, r#""nodeName": "n", "devices": [{"name": "old"}]"#);
    let new = pool("n", 2, 1, r#""nodeName": "n", "devices": [{"name": "new"}]"#);
    assert_eq!(one(&mut allocator(&[old.clone(), new]), &claim("")), Some("r=new".into()));
    let half = pool("n", 2, 2, r#""nodeName": "n", "devices": [{"name": "new"}]"#);
    let mut incomplete = allocator(&[old, half]);
    assert_eq!(one(&mut incomplete, &claim("")), None);
    assert_eq!(
        reason(&mut incomplete, &claim(r#""allocationMode": "All""#)),
        "claim ns/c, request r: asks for all devices, but resource pool gpu.example.com/n is currently being updated"
    );
    let twice = slice("n", r#"[{"name": "a"}, {"name": "a"}]"#);
    let mut invalid = allocator(&[twice]);
    let error = devices(&mut invalid, &[claim("")]).unwrap_err();
    assert!(error.concerns_only_the_node(), "{error}");
    assert_eq!(
        error.to_string(),
        "invalid resource pools were encountered: gpu.example.com/n: duplicate device name a"
    );
}

#[test]
fn allocation_mode_all_takes_every_matching_device_and_fails_if_one_is_in_use() {
    let wanted = claim(r#""allocationMode": "All""#);
    let mut all = allocator(&[slice("n", TWO)]);
    assert_eq!(one(&mut all, &wanted), Some("r=a r=b".into()));
    all.observe(&allocated("1", &result("b", "")));
    assert_eq!(one(&mut all, &wanted), None);
    assert_eq!(one(&mut allocator(&[slice("n", "[]")]), &wanted), None);
    let many: Vec<String> = (0..33).map(|i| format!(r#"{{"name": "d{i}"}}"#)).collect();
    let mut many = allocator(&[slice("n", &format!("[{}]", many.join(",")))]);
    assert_eq!(
        reason(&mut many, &wanted),
        "claim ns/c: number of requested devices 33 exceeds the claim limit of 32"
    );
}

#[test]
fn alternatives_are_tried_in_their_order() {
    let slices = [slice(
        "n",
        r#"[{"name": "a", "attributes": {"big": {"bool": false}}}, {"name": "b", "attributes": {"big": {"bool": true}}}]"#,
    )];
    let big = r#"[{"cel": {"expression": "device.attributes['gpu.example.com'].big"}}]"#;
    let wanted = claim_of(&format!(
        r#"{{"requests": [{{"name": "r", "firstAvailable": [
            {{"name": "many", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}},
            {{"name": "big", "deviceClassName": "gpu", "selectors": {big}, "allocationMode": "ExactCount", "count": 1}},
            {{"name": "any", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}]}}"#
    ));
    let mut all = allocator(&slices);
    assert_eq!(one(&mut all, &wanted), Some("r/big=b".into()));
    all.observe(&allocated("1", &result("b", "")));
    assert_eq!(one(&mut all, &wanted), Some("r/any=a".into()));
}

#[test]
fn the_search_backtracks_when_a_later_request_needs_a_device() {
    let slices = [slice(
        "n",
        r#"[{"name": "a", "attributes": {"x": {"int": 1}}}, {"name": "b", "attributes": {"x": {"int": 2}}}]"#,
    )];
    let wanted = claim_of(
        r#"{"requests": [{"name": "any", "exactly": {"deviceClassName": "gpu"}},
            {"name": "first", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].x == 1"}}]}}]}"#,
    );
    assert_eq!(one(&mut allocator(&slices), &wanted), Some("any=b first=a".into()));
}

#[test]
fn constraints_require_matching_or_distinct_attributes() {
    let slices = [slice(
        "n",
        r#"[{"name": "a", "attributes": {"numa": {"int": 0}}}, {"name": "b", "attributes": {"gpu.example.com/numa": {"int": 1}}},
            {"name": "c", "attributes": {"numa": {"int": 1}}}, {"name": "d"}, {"name": "e", "attributes": {"numa": {"string": "1"}}}]"#,
    )];
    let wanted = |count: u32, constraint: &str| {
        claim_of(&format!(
            r#"{{"requests": [{{"name": "r", "exactly": {{"deviceClassName": "gpu", "count": {count}}}}}],
                "constraints": [{{"{constraint}": "gpu.example.com/numa"}}]}}"#
        ))
    };
    let mut all = allocator(&slices);
    assert_eq!(one(&mut all, &wanted(2, "matchAttribute")), Some("r=b r=c".into()));
    assert_eq!(one(&mut all, &wanted(3, "matchAttribute")), None);
    assert_eq!(one(&mut all, &wanted(3, "distinctAttribute")), Some("r=a r=b r=e".into()));
    let everything = claim_of(
        r#"{"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}],
            "constraints": [{"matchAttribute": "gpu.example.com/numa"}]}"#,
    );
    assert_eq!(
        reason(&mut all, &everything),
        "claim ns/c, request r: cannot add device gpu.example.com/n/b because a claim constraint would not be satisfied"
    );
}

#[test]
fn taints_exclude_requests_without_a_toleration() {
    let slices = [slice(
        "n",
        r#"[{"name": "a", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "x", "effect": "None"}]}]"#,
    )];
    let mut all = allocator(&slices);
    assert_eq!(one(&mut all, &claim("")), None);
    for tolerated in [
        r#"{"key": "k", "operator": "Equal", "value": "v"}"#,
        r#"{"operator": "Exists"}"#,
        r#"{"key": "k", "operator": "Exists", "effect": "NoSchedule"}"#,
    ] {
        let wanted = claim(&format!(r#""tolerations": [{tolerated}]"#));
        let status = statuses(&mut all, &[wanted], "n").unwrap().unwrap().remove(0);
        let copied = status.list_at(&["devices", "results"])[0].get("tolerations").cloned();
        assert_eq!(copied, Some(parse(&format!("[{tolerated}]"))));
    }
    for not in [
        r#"{"key": "k", "operator": "Equal", "value": "w"}"#,
        r#"{"key": "k", "operator": "Exists", "effect": "NoExecute"}"#,
    ] {
        assert_eq!(one(&mut all, &claim(&format!(r#""tolerations": [{not}]"#))), None);
    }
    let ignored = DraGates { device_taints: false, ..DraGates::default() };
    let mut all = DeviceAllocator::new(&[class("gpu", "{}")], &slices, ignored);
    assert_eq!(one(&mut all, &claim("")), Some("r=a".into()));
}

#[test]
fn device_taint_rules_taint_the_devices_they_select() {
    let rule = |selector: &str| {
        parse(&format!(r#"{{"spec": {{{selector}"taint": {{"key": "k", "effect": "NoExecute"}}}}}}"#))
    };
    let mut all = allocator(&[slice("n", TWO)]);
    all.taint(&[rule(r#""deviceSelector": {"driver": "gpu.example.com", "pool": "n", "device": "a"}, "#)]);
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
    assert_eq!(one(&mut all, &claim(r#""tolerations": [{"operator": "Exists"}]"#)), Some("r=a".into()));
    all.taint(&[rule(r#""deviceSelector": {"driver": "other.example.com"}, "#)]);
    assert_eq!(one(&mut all, &claim("")), Some("r=a".into()));
    all.taint(&[rule("")]);
    assert_eq!(one(&mut all, &claim("")), None);
    all.taint(&[]);
    assert_eq!(one(&mut all, &claim("")), Some("r=a".into()));
}

const PARTITIONS: &str = r#"[
    {"name": "half-1", "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": "20Gi"}}}]},
    {"name": "half-2", "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": "20Gi"}}}]},
    {"name": "whole", "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": "40Gi"}}}]}]"#;

fn partitioned() -> [Value; 2] {
    let counters =
        r#""nodeName": "n", "sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]"#;
    let mut counters = pool("n", 1, 2, counters);
    counters.set_at(&["metadata", "name"], "counters");
    [counters, pool("n", 1, 2, &format!(r#""nodeName": "n", "devices": {PARTITIONS}"#))]
}

#[test]
fn partitioned_devices_consume_shared_counters() {
    let whole = claim(r#""selectors": [{"cel": {"expression": "true"}}], "count": 3"#);
    let mut all = allocator(&partitioned());
    assert_eq!(one(&mut all, &whole), None);
    assert_eq!(one(&mut all, &claim(r#""count": 2"#)), Some("r=half-1 r=half-2".into()));
    all.observe(&allocated("1", &result("whole", "")));
    assert_eq!(one(&mut all, &claim("")), None);
    all.forget("1");
    all.observe(&allocated("1", &result("half-1", "")));
    assert_eq!(one(&mut all, &claim("")), Some("r=half-2".into()));
    let without = DraGates { partitionable_devices: false, ..DraGates::default() };
    let mut all = DeviceAllocator::new(&[class("gpu", "{}")], &partitioned(), without);
    assert_eq!(one(&mut all, &claim("")), None);
    let unknown = slice(
        "n",
        r#"[{"name": "a", "consumesCounters": [{"counterSet": "gone", "counters": {"m": {"value": "1"}}}]}]"#,
    );
    assert!(reason(&mut allocator(&[unknown]), &claim("")).ends_with("counter set gone not found"));
}

const SHARED: &str = r#"[{"name": "nic", "allowMultipleAllocations": true, "capacity": {
    "bandwidth": {"value": "10", "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}}}}}]"#;

#[test]
fn shared_capacity_is_consumed_in_steps_until_exhausted() {
    let wanted = |amount: &str| claim(&format!(r#""capacity": {{"requests": {{"bandwidth": "{amount}"}}}}"#));
    let mut all = allocator(&[slice("n", SHARED)]);
    let status = statuses(&mut all, &[wanted("3")], "n").unwrap().unwrap().remove(0);
    let result_of = &status.list_at(&["devices", "results"])[0];
    assert_eq!(result_of.get("consumedCapacity"), Some(&parse(r#"{"bandwidth": "4"}"#)));
    assert_eq!(result_of.str_at(&["shareID"]), Some(UID));
    let taken = |uid: &str, amount: &str| {
        allocated(
            uid,
            &result(
                "nic",
                &format!(r#", "shareID": "{uid}", "consumedCapacity": {{"bandwidth": "{amount}"}}"#),
            ),
        )
    };
    all.observe(&taken("1", "4"));
    assert_eq!(one(&mut all, &wanted("6")), Some("r=nic".into()));
    assert_eq!(one(&mut all, &wanted("7")), None);
    // Without a requested amount, the default is taken.
    all.observe(&taken("2", "4"));
    assert_eq!(one(&mut all, &claim("")), Some("r=nic".into()));
    assert_eq!(one(&mut all, &wanted("9")), None);
    assert_eq!(one(&mut all, &claim(r#""capacity": {"requests": {"memory": "1"}}"#)), None);
    all.observe(&taken("3", "2"));
    assert_eq!(one(&mut all, &claim("")), None);
    let two = [wanted("4"), wanted("4")];
    let mut all = allocator(&[slice("n", SHARED)]);
    assert_eq!(devices(&mut all, &two).unwrap().unwrap(), ["r=nic", "r=nic"]);
    let off = DraGates { consumable_capacity: false, ..DraGates::default() };
    let mut all = DeviceAllocator::new(&[class("gpu", "{}")], &[slice("n", SHARED)], off);
    assert!(reason(&mut all, &wanted("2")).contains("DRAConsumableCapacity feature is disabled"));
}

#[test]
fn admin_access_ignores_allocations_and_takes_nothing() {
    let admin = claim(r#""allocationMode": "All", "adminAccess": true"#);
    let mut all = allocator(&[slice("n", TWO)]);
    all.observe(&allocated("1", &result("a", "")));
    let status = statuses(&mut all, std::slice::from_ref(&admin), "n").unwrap().unwrap().remove(0);
    let results = status.list_at(&["devices", "results"]);
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|result| result.bool_at(&["adminAccess"]) == Some(true)));
    // Admin access takes nothing, whether held or observed.
    let found = all
        .allocate(
            &[PendingClaim::read(&admin).unwrap()],
            &CandidateNode::of(&node("n")),
            &mut AllocationBudget::default(),
        )
        .unwrap()
        .unwrap();
    all.hold("2", &found[0]);
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
    all.observe(&allocated("2", &result("b", r#", "adminAccess": true"#)));
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
    // A pod may use a device and access it as an administrator in two claims; one claim gets a device only once.
    let both = [admin, claim("")];
    assert_eq!(devices(&mut all, &both).unwrap().unwrap(), ["r=a r=b", "r=b"]);
    let same = claim_of(
        r#"{"requests": [{"name": "x", "exactly": {"deviceClassName": "gpu", "adminAccess": true}},
            {"name": "y", "exactly": {"deviceClassName": "gpu"}}]}"#,
    );
    assert_eq!(one(&mut all, &same), Some("x=a y=b".into()));
}

#[test]
fn admin_access_takes_no_counters_and_no_capacity() {
    let admin = claim(r#""allocationMode": "All", "adminAccess": true"#);
    let mut all = allocator(&partitioned());
    all.observe(&allocated("1", &result("whole", "")));
    assert_eq!(one(&mut all, &admin), Some("r=half-1 r=half-2 r=whole".into()));
    let mut all = allocator(&[slice("n", SHARED)]);
    all.observe(&allocated(
        "1",
        &result("nic", r#", "shareID": "1", "consumedCapacity": {"bandwidth": "10"}"#),
    ));
    // The result shows the requested amount, as in Kubernetes, but nothing is taken from other claims.
    let status = statuses(&mut all, std::slice::from_ref(&admin), "n").unwrap().unwrap().remove(0);
    let result = &status.list_at(&["devices", "results"])[0];
    assert_eq!(result.str_at(&["consumedCapacity", "bandwidth"]), Some("2"));
    all.forget("1");
    let before = one(&mut all, &claim(""));
    let found = all
        .allocate(
            &[PendingClaim::read(&admin).unwrap()],
            &CandidateNode::of(&node("n")),
            &mut AllocationBudget::default(),
        )
        .unwrap()
        .unwrap();
    for uid in ["2", "3", "4", "5", "6", "7"] {
        all.hold(uid, &found[0]);
    }
    assert_eq!(one(&mut all, &claim("")), before);
}

#[test]
fn admin_access_needs_its_gate() {
    let off = DraGates { admin_access: false, ..DraGates::default() };
    let mut all = DeviceAllocator::new(&[class("gpu", "{}")], &[slice("n", TWO)], off);
    for asked in ["true", "false"] {
        let wanted = claim(&format!(r#""adminAccess": {asked}"#));
        let why = "claim ns/c, request r: admin access is requested, but the feature is disabled";
        assert_eq!(reason(&mut all, &wanted), why);
    }
    assert_eq!(one(&mut all, &claim("")), Some("r=a".into()));
}

#[test]
fn configurations_come_from_the_class_and_the_claim() {
    let config = |n: u32| format!(r#""opaque": {{"driver": "gpu.example.com", "parameters": {{"n": {n}}}}}"#);
    let gpu = class("gpu", &format!(r#"{{"config": [{{{}}}]}}"#, config(1)));
    let other = class("other", &format!(r#"{{"config": [{{{}}}]}}"#, config(2)));
    let mut all = DeviceAllocator::new(
        &[gpu, other],
        &[slice("n", r#"[{"name": "a"}, {"name": "b"}, {"name": "c"}]"#)],
        DraGates::default(),
    );
    let wanted = claim_of(&format!(
        r#"{{"requests": [{{"name": "x", "exactly": {{"deviceClassName": "gpu"}}}},
            {{"name": "y", "exactly": {{"deviceClassName": "other"}}}},
            {{"name": "z", "firstAvailable": [{{"name": "s", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
                {{"name": "t", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}],
            "config": [{{{}}}, {{"requests": ["y"], {}}}, {{"requests": ["x", "y", "z"], {}}}, {{"requests": ["z/s"], {}}}, {{"requests": ["z/t"], {}}}]}}"#,
        config(3),
        config(4),
        config(5),
        config(6),
        config(7)
    ));
    let status = statuses(&mut all, &[wanted], "n").unwrap().unwrap().remove(0);
    let expected = format!(
        r#"[{{"source": "FromClass", "requests": ["x", "z/s"], {}}}, {{"source": "FromClass", "requests": ["y"], {}}},
            {{"source": "FromClaim", {}}}, {{"source": "FromClaim", "requests": ["y"], {}}}, {{"source": "FromClaim", {}}},
            {{"source": "FromClaim", "requests": ["z/s"], {}}}]"#,
        config(1),
        config(2),
        config(3),
        config(4),
        config(5),
        config(6)
    );
    assert_eq!(status.at(&["devices", "config"]), Some(&parse(&expected)));
}

#[test]
fn devices_with_binding_conditions_are_tried_last() {
    let waiting = r#"[{"name": "a", "bindsToNode": true, "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}]"#;
    let first = pool("a", 1, 1, &format!(r#""allNodes": true, "devices": {waiting}"#));
    let second = pool("b", 1, 1, r#""allNodes": true, "devices": [{"name": "b"}]"#);
    let mut all = allocator(&[first, second]);
    assert_eq!(one(&mut all, &claim("")), Some("r=b".into()));
    let status = statuses(&mut all, &[claim(r#""count": 2"#)], "n").unwrap().unwrap().remove(0);
    let last = &status.list_at(&["devices", "results"])[1];
    assert_eq!(last.get("bindingConditions"), Some(&parse(r#"["ready"]"#)));
    assert_eq!(last.get("bindingFailureConditions"), Some(&parse(r#"["failed"]"#)));
    assert!(status.get("nodeSelector").is_some());
}

#[test]
fn unsupported_requests_and_missing_classes_are_refused() {
    let read = |devices: &str| PendingClaim::read(&claim_of(devices)).unwrap_err().to_string();
    assert_eq!(
        read(r#"{"requests": [{"name": "r"}]}"#),
        "claim ns/c, request r: neither `exactly` nor `firstAvailable` is set (unsupported request type?)"
    );
    assert!(read(r#"{"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}]}"#).contains("unsupported count mode Some"));
    assert!(
        read(r#"{"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{}]}}]}"#)
            .contains("unsupported selector type")
    );
    assert!(read(r#"{"requests": [], "constraints": [{}]}"#).contains("unsupported constraint type"));
    let mut none = DeviceAllocator::new(&[], &[slice("n", TWO)], DraGates::default());
    assert_eq!(
        reason(&mut none, &claim("")),
        "claim ns/c, request r: could not retrieve device class gpu: deviceclass.resource.k8s.io \"gpu\" not found"
    );
}

#[test]
fn a_hopeless_search_fails_or_ends_at_the_step_limit() {
    let devices: Vec<String> = (0..31).map(|i| format!(r#"{{"name": "d{i}"}}"#)).collect();
    let slices = [slice("n", &format!("[{}]", devices.join(",")))];
    assert_eq!(one(&mut allocator(&slices), &claim(r#""count": 32"#)), None);
    let requests: Vec<String> =
        (0..32).map(|i| format!(r#"{{"name": "r{i}", "exactly": {{"deviceClassName": "gpu"}}}}"#)).collect();
    let wanted = claim_of(&format!(r#"{{"requests": [{}]}}"#, requests.join(",")));
    let hopeless = devices_or_limit(&mut allocator(&slices), &wanted);
    assert!(hopeless, "it is found, or given up for being too complex");
}

#[test]
fn requests_for_all_devices_count_steps() {
    let each: Vec<String> = (0..128).map(|i| format!(r#"{{"name": "d{i}"}}"#)).collect();
    let each = each.join(", ");
    let slices: Vec<Value> = (0..8)
        .map(|i| pool(&format!("p{i}"), 1, 1, &format!(r#""nodeName": "n", "devices": [{each}]"#)))
        .collect();
    let mut all = allocator(&slices);
    let ways = |count: usize| {
        let way = |i: usize| {
            format!(
                r#"{{"name": "w{i}", "deviceClassName": "gpu", "allocationMode": "All",
                "selectors": [{{"cel": {{"expression": "device.driver == 'none'"}}}}]}}"#
            )
        };
        let ways: Vec<String> = (0..8).map(way).collect();
        let request = |i: usize| format!(r#"{{"name": "r{i}", "firstAvailable": [{}]}}"#, ways.join(", "));
        let requests: Vec<String> = (0..count).map(request).collect();
        claim_of(&format!(r#"{{"requests": [{}]}}"#, requests.join(", ")))
    };
    assert_eq!(devices(&mut all, &[ways(1)]), Ok(None));
    assert!(matches!(devices(&mut all, &[ways(32)]), Err(Error::TooComplex(_))));
}

fn devices_or_limit(allocator: &mut DeviceAllocator, claim: &Value) -> bool {
    matches!(devices(allocator, std::slice::from_ref(claim)), Ok(None) | Err(Error::TooComplex(_)))
}

#[test]
fn node_selectors_support_every_operator() {
    let matches = |requirement: &str| {
        let selector = format!(r#"{{"nodeSelectorTerms": [{{"matchExpressions": [{requirement}]}}]}}"#);
        crate::NodeSelector::read(&parse(&selector))
            .map(|selector| selector.matches(&CandidateNode::of(&node("n"))))
    };
    for (requirement, expected) in [
        (r#"{"key": "zone", "operator": "NotIn", "values": ["b"]}"#, true),
        (r#"{"key": "zone", "operator": "Exists"}"#, true),
        (r#"{"key": "zone", "operator": "DoesNotExist"}"#, false),
        (r#"{"key": "size", "operator": "Gt", "values": ["4"]}"#, true),
        (r#"{"key": "size", "operator": "Lt", "values": ["4"]}"#, false),
        (r#"{"key": "zone", "operator": "Gt", "values": ["4"]}"#, false),
    ] {
        assert_eq!(matches(requirement), Ok(expected), "{requirement}");
    }
    assert!(matches(r#"{"key": "zone", "operator": "Like"}"#).is_err());
    assert!(matches(r#"{"key": "zone", "operator": "In"}"#).is_err());
    let empty = crate::NodeSelector::read(&parse(r#"{"nodeSelectorTerms": [{}]}"#)).unwrap();
    assert!(!empty.matches(&CandidateNode::of(&node("n"))));
}

#[test]
fn the_selectors_of_a_pod_share_a_budget_on_all_nodes() {
    let each: Vec<String> = (0..20).map(|i| format!(r#"{{"name": "d{i}"}}"#)).collect();
    let slice = pool("p", 1, 1, &format!(r#""allNodes": true, "devices": [{}]"#, each.join(", ")));
    let mut all = allocator(&[slice]);
    let items = vec!["1"; 100].join(",");
    // Matches nothing, after ten thousand additions per device.
    let costly = format!("[{items}].all(x, [{items}].all(y, x + y > 0)) && device.driver == 'none'");
    let claims =
        [PendingClaim::read(&claim(&format!(r#""selectors": [{{"cel": {{"expression": "{costly}"}}}}]"#)))
            .unwrap()];
    let mut plenty = AllocationBudget::default();
    assert_eq!(all.allocate(&claims, &CandidateNode::of(&node("n")), &mut plenty), Ok(None));
    assert!(!plenty.is_used_up());
    let spent = AllocationBudget::default().cost - plenty.cost;
    assert!(spent > 20 * 10_000, "{spent}");
    // Results of a selector for a device are cached and cost nothing.
    let before = plenty.clone();
    assert_eq!(all.allocate(&claims, &CandidateNode::of(&node("m")), &mut plenty), Ok(None));
    assert_eq!(plenty.cost, before.cost);
    let mut all =
        allocator(&[pool("p", 1, 1, &format!(r#""allNodes": true, "devices": [{}]"#, each.join(", ")))]);
    let mut little = AllocationBudget { cost: spent / 2, ..AllocationBudget::default() };
    assert_eq!(all.allocate(&claims, &CandidateNode::of(&node("n")), &mut little), Err(Error::TooCostly));
    assert!(little.is_used_up());
    // Each pod has its own budget, and a failed search leaves no usage behind.
    let plain = [PendingClaim::read(&claim("")).unwrap()];
    assert!(
        all.allocate(&plain, &CandidateNode::of(&node("n")), &mut AllocationBudget::default())
            .unwrap()
            .is_some()
    );
    let mut few_steps = AllocationBudget { steps: 5, ..AllocationBudget::default() };
    assert_eq!(all.allocate(&claims, &CandidateNode::of(&node("n")), &mut few_steps), Err(Error::TooCostly));
    let attempt = value::Budget::new(1);
    attempt.cancel();
    assert_eq!(
        all.allocate(&claims, &CandidateNode::of(&node("n")), &mut AllocationBudget::of(&attempt)),
        Err(Error::TooCostly)
    );
}
