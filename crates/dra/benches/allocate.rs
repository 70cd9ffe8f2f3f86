//! Benchmark: ten pods per node, eight devices per node, every tenth pod with admin access, for growing numbers of
//! nodes. Like kube-scheduler, each search starts at the node where the last one ended.

use std::time::{Duration, Instant};

use dra::{AllocationBudget, CandidateNode, DeviceAllocator, DraGates, PendingClaim};
use value::{Value, json};

const DEVICES: usize = 8;
const PODS_PER_NODE: usize = 10;
const MODEL: &str = r#"{"cel": {"expression": "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'A100'"}}"#;
const MEMORY: &str = r#"{"cel": {"expression": "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"}}"#;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or_default()
}

fn slice(node: usize) -> Value {
    let devices: Vec<String> = (0..DEVICES)
        .map(|i| {
            format!(
                r#"{{"name": "gpu-{i}", "attributes": {{"model": {{"string": "A100"}}, "index": {{"int": {i}}}}}, "capacity": {{"memory": {{"value": "80Gi"}}}}}}"#
            )
        })
        .collect();
    parse(&format!(
        r#"{{"metadata": {{"name": "node-{node}-gpu"}}, "spec": {{"driver": "gpu.example.com", "nodeName": "node-{node}",
            "pool": {{"name": "node-{node}", "generation": 1, "resourceSliceCount": 1}}, "devices": [{}]}}}}"#,
        devices.join(",")
    ))
}

fn claim(pod: usize) -> Value {
    let admin = if pod % 10 == 9 { r#", "adminAccess": true"# } else { "" };
    parse(&format!(
        r#"{{"metadata": {{"name": "pod-{pod}-gpu", "namespace": "default", "uid": "{pod}"}}, "spec": {{"devices": {{"requests": [
            {{"name": "gpu", "exactly": {{"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [{MEMORY}]{admin}}}}}]}}}}}}"#
    ))
}

struct Run {
    served: usize,
    unserved: usize,
    serving: Duration,
    refusing: Duration,
}

/// Schedules every pod: reads its claim, tries nodes until one can serve it, and holds the devices.
fn run(nodes: usize) -> Option<Run> {
    let class = parse(&format!(r#"{{"metadata": {{"name": "gpu"}}, "spec": {{"selectors": [{MODEL}]}}}}"#));
    let slices: Vec<Value> = (0..nodes).map(slice).collect();
    let claims: Vec<Value> = (0..nodes * PODS_PER_NODE).map(claim).collect();
    let stored: Vec<Value> =
        (0..nodes).map(|i| parse(&format!(r#"{{"metadata": {{"name": "node-{i}"}}}}"#))).collect();
    let mut allocator = DeviceAllocator::new([&class], &slices, DraGates::default());
    let mut next = 0;
    let mut run = Run { served: 0, unserved: 0, serving: Duration::ZERO, refusing: Duration::ZERO };
    for (pod, claim) in claims.iter().enumerate() {
        let start = Instant::now();
        let claims = [PendingClaim::read(claim).ok()?];
        let mut served = false;
        for node in stored.iter().cycle().skip(next).take(nodes) {
            next = (next + 1) % nodes;
            if let Some(found) = allocator
                .allocate(&claims, &CandidateNode::of(node), &mut AllocationBudget::default())
                .ok()?
            {
                allocator.hold(&pod.to_string(), found.first()?);
                served = true;
                break;
            }
        }
        if served {
            run.served += 1;
            run.serving += start.elapsed();
        } else {
            run.unserved += 1;
            run.refusing += start.elapsed();
        }
    }
    Some(run)
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown")]
fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

fn main() {
    println!("| nodes | pods | served | pods/s | served/s | refused/s (every node tried) |");
    println!("|---|---|---|---|---|---|");
    for nodes in [100, 300, 1000] {
        let Some(run) = run(nodes) else {
            println!("| {nodes} | failed |");
            continue;
        };
        let pods = run.served + run.unserved;
        println!(
            "| {nodes} | {pods} | {} | {:.0} | {:.0} | {:.0} |",
            run.served,
            rate(pods, run.serving + run.refusing),
            rate(run.served, run.serving),
            rate(run.unserved, run.refusing),
        );
    }
}
