//! Compares allocations with those recorded from Kubernetes 1.37 for random clusters, with its default feature gates.
//!
//! A line of `recorded.jsonl` has a cluster, the claims of a pod, and the result for each node: allocations, an
//! error, or null. Share ids are left out. Messages about invalid pools are compared by their prefix, because ours
//! have more details.

use dra::{AllocationBudget, CandidateNode, DeviceAllocator, DraGates, PendingClaim};
use value::{Value, json};

const INVALID: &str = "invalid resource pools were encountered";

fn answer(allocator: &mut DeviceAllocator, claims: &[PendingClaim], node: &Value) -> Value {
    match allocator.allocate(claims, &CandidateNode::of(node), &mut AllocationBudget::default()) {
        Ok(None) => Value::Null,
        Ok(Some(all)) => {
            Value::List(all.iter().map(|one| one.to_value(&mut || "share".to_owned())).collect())
        }
        Err(error) => {
            let said = error.to_string();
            Value::from(if said.starts_with(INVALID) { INVALID } else { said.as_str() })
        }
    }
}

#[test]
fn allocations_equal_those_recorded_from_kubernetes() {
    let recorded =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.jsonl")).unwrap();
    let mut kinds = [0; 3];
    for (line, text) in recorded.lines().enumerate() {
        let case = json::parse(text.as_bytes()).unwrap();
        let mut allocator =
            DeviceAllocator::new(case.list_at(&["classes"]), case.list_at(&["slices"]), DraGates::default());
        case.list_at(&["allocated"]).iter().for_each(|claim| allocator.observe(claim));
        let claims: Vec<PendingClaim> =
            case.list_at(&["claims"]).iter().map(|claim| PendingClaim::read(claim).unwrap()).collect();
        for (node, expected) in case.list_at(&["nodes"]).iter().zip(case.list_at(&["answers"])) {
            let found = answer(&mut allocator, &claims, node);
            assert_eq!(found, *expected, "line {}, {}", line + 1, CandidateNode::of(node).name());
            let kind = match expected {
                Value::List(_) => 0,
                Value::Null => 1,
                _ => 2,
            };
            if let Some(count) = kinds.get_mut(kind) {
                *count += 1;
            }
        }
    }
    assert!(kinds.iter().all(|count| *count >= 30), "allocated, nothing, wrong: {kinds:?}");
}
