use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use value::{Budget, Value, json, steps};

use super::{GraphKind, NodeGraph, NodeObject};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

/// A pod with claims of templates; the statuses are in the reverse order of the entries.
fn with_claims(count: usize) -> Value {
    let list = |item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(",");
    let entries = list(&|i| format!(r#"{{"name":"n{i}","resourceClaimTemplateName":"t"}}"#));
    let statuses = list(&|i| format!(r#"{{"name":"n{0}","resourceClaimName":"c{0}"}}"#, count - 1 - i));
    parse(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{{"nodeName":"n1","resourceClaims":[{entries}]}},
        "status":{{"resourceClaimStatuses":[{statuses}]}}}}"#
    ))
}

/// A pod that refers to these secrets.
fn with_secrets(node: &str, secrets: impl Iterator<Item = usize>) -> Value {
    let secrets = secrets.map(|i| format!(r#"{{"name":"s{i}"}}"#)).collect::<Vec<_>>().join(",");
    parse(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{{"nodeName":"{node}","imagePullSecrets":[{secrets}]}}}}"#
    ))
}

#[test]
fn ten_times_as_many_claims_of_a_pod_take_ten_times_as_many_steps() {
    let steps_of = |count: usize| {
        let (graph, pod) = (NodeGraph::default(), with_claims(count));
        let steps = steps::of(|| graph.apply(GraphKind::Pod, None, Some(&pod)));
        let needs = |name: &str| graph.needs("n1", NodeObject::ResourceClaim, "ns", name);
        assert!(needs("c0") && needs(&format!("c{}", count - 1)) && !needs("t"));
        steps
    };
    let (short, long) = (steps_of(1000), steps_of(10_000));
    assert!(long <= 11 * short, "{short} steps, then {long}");
}

#[test]
fn the_first_status_of_a_name_decides_which_claim_a_node_needs() {
    let graph = NodeGraph::default();
    let pod = parse(
        r#"{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n1","resourceClaims":[
            {"name":"a","resourceClaimTemplateName":"t"},{"name":"b","resourceClaimTemplateName":"t"},
            {"name":"c","resourceClaimName":"direct"}]},
        "status":{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"first"},{"name":"a","resourceClaimName":"second"},
            {"name":"c","resourceClaimName":"ignored"},{"name":"d","resourceClaimName":"foreign"}]}}"#,
    );
    graph.apply(GraphKind::Pod, None, Some(&pod));
    for (claim, needed) in
        [("first", true), ("second", false), ("direct", true), ("ignored", false), ("foreign", false)]
    {
        assert_eq!(graph.needs("n1", NodeObject::ResourceClaim, "ns", claim), needed, "{claim}");
    }
}

#[test]
fn an_update_adds_and_removes_the_references_that_changed() {
    let graph = NodeGraph::default();
    let needs = |i: usize| graph.needs("n1", NodeObject::Secret, "ns", &format!("s{i}"));
    let first = with_secrets("n1", (0..3000).chain(0..3000));
    graph.apply(GraphKind::Pod, None, Some(&first));
    assert!((0..3000).all(needs));
    let second = with_secrets("n1", 2000..5000);
    graph.apply(GraphKind::Pod, Some(&first), Some(&second));
    assert!((2000..5000).all(needs) && !(0..2000).any(needs));
    graph.apply(GraphKind::Pod, Some(&second), Some(&second));
    assert!((2000..5000).all(needs));
    graph.apply(GraphKind::Pod, Some(&second), None);
    assert!(!(0..5000).any(needs));
    assert_eq!(format!("{graph:?}"), "Graph(0 objects)");
}

#[test]
fn an_object_stays_readable_while_a_pod_that_refers_to_it_changes() {
    let graph = NodeGraph::default();
    // The secret that both states refer to is the last in order.
    let states = [with_secrets("n1", (0..5000).chain([9999])), with_secrets("n1", 5000..10_000)];
    graph.apply(GraphKind::Pod, None, Some(&states[0]));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..20 {
                graph.apply(GraphKind::Pod, Some(&states[i % 2]), Some(&states[(i + 1) % 2]));
            }
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            assert!(graph.needs("n1", NodeObject::Secret, "ns", "s9999"));
        }
    });
}

#[test]
fn an_object_is_read_before_requests_of_nodes_have_to_wait() {
    let (graph, pod) = (NodeGraph::default(), with_claims(10_000));
    let whole = Budget::new(u64::MAX);
    steps::within(&whole, || graph.apply(GraphKind::Pod, None, Some(&pod))).unwrap();
    // The same again, with a request that is being decided: the change cannot take the lock.
    let (graph, budget) = (NodeGraph::default(), Budget::new(u64::MAX));
    std::thread::scope(|scope| {
        let deciding: Vec<_> = graph.needed.iter().map(|table| table.read().unwrap()).collect();
        scope.spawn(|| steps::within(&budget, || graph.apply(GraphKind::Pod, None, Some(&pod))));
        let began = Instant::now();
        // The last accesses are not taken from the budget until the scope ends.
        while budget.spent() + 2000 < whole.spent() {
            assert!(began.elapsed() < PATIENCE, "{} of {} steps", budget.spent(), whole.spent());
            std::thread::yield_now();
        }
        assert!(whole.spent() > 5000, "{}", whole.spent());
        drop(deciding);
    });
    assert!(graph.needs("n1", NodeObject::ResourceClaim, "ns", "c0"));
}

#[test]
fn a_closed_graph_has_nothing_and_ignores_later_changes() {
    let graph = NodeGraph::default();
    let pod = with_secrets("n1", 0..3);
    let volume = parse(
        r#"{"metadata":{"name":"v"},"spec":{"claimRef":{"namespace":"ns","name":"c"},"csi":{"nodeStageSecretRef":{"name":"s","namespace":"ns"}}}}"#,
    );
    graph.apply(GraphKind::Pod, None, Some(&pod));
    graph.apply(GraphKind::PersistentVolume, None, Some(&volume));
    assert_ne!(format!("{graph:?}"), "Graph(0 objects)");
    graph.close();
    for _ in 0..2 {
        assert_eq!(format!("{graph:?}"), "Graph(0 objects)");
        assert!(graph.volumes.read().unwrap().by_name.is_empty());
        graph.apply(GraphKind::Pod, None, Some(&pod));
        graph.apply(GraphKind::PersistentVolume, None, Some(&volume));
    }
}
