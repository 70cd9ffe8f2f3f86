//! Checks that what a write runs outside of decoding, validation and plugins grows linearly with the length of every list field: the
//! allocation rules of Services, the assignment of a pod to a node, and the graph of the Node authorizer.
//!
//! The cases are those of `crates/kinds/tests/linear`, which measures the other stages of a write. Ten times as many items may take at most
//! fifteen times as many accesses to the trees (`value::steps`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "../../kinds/tests/linear/cases.rs"]
mod cases;
#[path = "../../kinds/tests/linear/samples.rs"]
mod samples;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use authz::node::{GraphKind, NodeGraph};
use kinds::strategy::assign_pod;
use kinds::strategy::service::{Allocator, Family, begin_create, begin_update};
use service_addresses::{
    AddressAnswer, AllocationAttempt, DEFAULT_NODE_PORTS, DryRunAllocator, KnownRanges, NodePortRange,
    PortBitmap, PortCounts,
};
use value::{Value, json, steps};

use cases::{LinearCase, cases};
use samples::{SampleStyle, bare_object, object, read_object};

const SHORT: usize = 300;
const LONG: usize = 3000;
const FACTOR: u64 = 15;

/// The nodes of pods and their references, for objects that are bound to a node, change, and are deleted.
fn apply_to_graph(case: &LinearCase, object: &Value) {
    let Some(kind) = GraphKind::parse(case.kind.kind) else { return };
    let on_node = |object: &Value| {
        let mut object = object.clone();
        object.set_at(&["spec", "nodeName"], "n1");
        object.set_at(&["spec", "claimRef", "name"], "c");
        object
    };
    let (object, bare) = (on_node(object), on_node(&bare_object(case)));
    let graph = NodeGraph::default();
    for (old, new) in [
        (None, Some(&object)),
        (Some(&object), Some(&object)),
        (Some(&object), Some(&bare)),
        (Some(&bare), Some(&object)),
        (Some(&object), None),
    ] {
        graph.apply(kind, old, new);
    }
}

type AllocationRun<'a> = &'a mut dyn FnMut(&mut dyn Allocator);

/// Creates and updates of Services of each type that allocates ports, with this allocator.
fn allocate(case: &LinearCase, object: &Value, allocator: &mut dyn FnMut(AllocationRun<'_>)) {
    for (kind, of_ports) in [("ClusterIP", None), ("NodePort", None), ("LoadBalancer", Some(0))] {
        let service = |object: &Value| {
            let mut service = object.clone();
            service.set_at(&["spec", "type"], kind);
            for port in service.at_mut(&["spec", "ports"]).and_then(Value::as_list_mut).into_iter().flatten()
            {
                if let Some(node_port) = of_ports {
                    port.set_at(&["nodePort"], node_port);
                }
            }
            service
        };
        let (object, bare) = (service(object), service(&bare_object(case)));
        allocator(&mut |allocator| drop(begin_create(&mut object.clone(), allocator)));
        for (new, old) in [(&object, &object), (&object, &bare), (&bare, &object)] {
            allocator(&mut |allocator| drop(begin_update(&mut new.clone(), old, allocator)));
        }
    }
}

fn allocate_in_dry_run(case: &LinearCase, object: &Value) {
    let ranges = ranges();
    allocate(case, object, &mut |run| {
        let ports = Some(PortBitmap::empty(DEFAULT_NODE_PORTS));
        run(&mut DryRunAllocator { families: &[Family::V4], ranges: &ranges, ports, tried: BTreeSet::new() });
    });
}

fn allocate_addresses_and_ports(case: &LinearCase, object: &Value) {
    let answers: Vec<AddressAnswer> = vec![Ok("10.0.0.9".parse().unwrap()); 2];
    let port_range = NodePortRange::new(1, u16::MAX).unwrap();
    allocate(case, object, &mut |run| {
        run(&mut AllocationAttempt {
            families: &[Family::V4],
            answers: answers.iter(),
            pending: None,
            port_range,
            ports: Some(Ok(PortBitmap::empty(port_range))),
            port_counts: PortCounts::default(),
            random: pseudo_random,
        });
    });
}

/// Spreads the ports, as random numbers do.
fn pseudo_random(count: u64) -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).rotate_left(20) % count
}

fn ranges() -> KnownRanges {
    let cidr =
        json::parse(br#"{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.0.0.0/16"]}}"#).unwrap();
    KnownRanges::of([cidr].iter())
}

fn assign(case: &LinearCase, object: &Value) {
    let binding = json::parse(br#"{"metadata":{"labels":{"a":"b"}},"target":{"name":"n1"}}"#).unwrap();
    let mut pod = object.clone();
    pod.remove_at(&["spec", "nodeName"]);
    let _ = assign_pod(&mut pod, &binding, 0);
    // The object as the binding of a pod.
    let _ = assign_pod(&mut bare_object(case), object, 0);
}

type MeasuredStage = fn(&LinearCase, &Value);

const STAGES: [(&str, &[&str], MeasuredStage); 4] = [
    (
        "node graph",
        &["pods", "persistentvolumes", "volumeattachments", "resourceslices", "podcertificaterequests"],
        apply_to_graph,
    ),
    ("dry-run allocation", &["services"], allocate_in_dry_run),
    ("allocation", &["services"], allocate_addresses_and_ports),
    ("assignment", &["pods"], assign),
];

#[test]
fn ten_times_as_many_items_take_allocations_and_references_at_most_fifteen_times_as_many_steps() {
    let (mut wrong, mut measured) = (Vec::new(), 0);
    let cases = cases();
    for (stage, plurals, run) in STAGES {
        for case in cases.iter().filter(|case| plurals.contains(&case.kind.plural)) {
            for style in [SampleStyle::Valid, SampleStyle::Invalid, SampleStyle::Equal] {
                let steps = |length| {
                    let object = read_object(case, &object(case, length, style));
                    steps::of(|| run(case, &object))
                };
                let (short, long) = (steps(SHORT), steps(LONG));
                if long > short.saturating_mul(FACTOR) {
                    wrong.push(format!("{stage}: {} {style:?}: {short} steps, then {long}", case.name));
                }
            }
            measured += 1;
        }
    }
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
    // The exact count detects lost cases.
    assert_eq!(measured, 250);
}
