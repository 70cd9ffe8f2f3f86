//! Runs every page under `spec/` as a test.
//!
//! `yaml cluster` blocks add objects: DeviceClasses, ResourceSlices, DeviceTaintRules, Nodes, and allocated
//! ResourceClaims; an object of the same kind and name replaces the earlier one. A `yaml allocate NODE` block has the
//! claims of a pod, with `gates=-NAME` after it to turn a feature gate off. The `text` block that follows has the
//! expected result: `CLAIM: REQUEST = POOL/DEVICE` for each device, `nothing`, or the error. With `keep`, the devices
//! stay allocated for the rest of the page.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::fmt::Write as _;

use dra::{AllocationBudget, CandidateNode, ClaimAllocation, DeviceAllocator, DraGates, Error, PendingClaim};
use pages::{Page, pages};
use value::{Value, yaml};

pages!(
    check, "":
    admin_access,
    alternatives,
    amounts,
    capacity,
    constraints,
    limits,
    nodes,
    partitions,
    pools,
    selectors,
    taints,
);

#[derive(Default)]
struct Cluster {
    objects: Vec<Value>,
}

fn text<'v>(object: &'v Value, path: &[&str]) -> &'v str {
    object.str_at(path).unwrap_or_default()
}

fn uid(claim: &Value) -> String {
    format!("uid of {}", text(claim, &["metadata", "name"]))
}

impl Cluster {
    fn store(&mut self, object: Value) {
        let key = |object: &Value| {
            (text(object, &["kind"]).to_owned(), text(object, &["metadata", "name"]).to_owned())
        };
        self.objects.retain(|other| key(other) != key(&object));
        self.objects.push(object);
    }

    fn of<'c>(&'c self, kind: &'c str) -> impl Iterator<Item = &'c Value> + 'c {
        self.objects.iter().filter(move |object| text(object, &["kind"]) == kind)
    }

    fn allocator(&self, gates: DraGates) -> DeviceAllocator {
        let mut allocator = DeviceAllocator::new(self.of("DeviceClass"), self.of("ResourceSlice"), gates);
        allocator.taint(self.of("DeviceTaintRule"));
        for claim in self.of("ResourceClaim") {
            allocator.observe(claim);
        }
        allocator
    }

    fn allocate(&mut self, words: &[&str], mut claims: Vec<Value>) -> String {
        let name = words.first().copied().unwrap_or_default();
        let node = self.of("Node").find(|node| text(node, &["metadata", "name"]) == name).cloned();
        let node = node.unwrap_or_else(|| panic!("no such node: {name}"));
        let mut gates = DraGates::default();
        for word in words.iter().filter_map(|word| word.strip_prefix("gates=-")) {
            match word {
                "DRAAdminAccess" => gates.admin_access = false,
                "DRAConsumableCapacity" => gates.consumable_capacity = false,
                "DRADeviceTaints" => gates.device_taints = false,
                "DRAPartitionableDevices" => gates.partitionable_devices = false,
                other => panic!("unknown gate {other}"),
            }
        }
        for claim in &mut claims {
            let uid = uid(claim);
            claim.set_at(&["metadata", "uid"], uid);
            claim.set_at(&["metadata", "namespace"], "default");
        }
        let outcome = claims.iter().map(PendingClaim::read).collect::<Result<Vec<PendingClaim>, Error>>();
        let outcome = outcome.and_then(|read| {
            self.allocator(gates).allocate(&read, &CandidateNode::of(&node), &mut AllocationBudget::default())
        });
        let found = match outcome {
            Err(error) => return format!("{error}\n"),
            Ok(None) => return "nothing\n".to_owned(),
            Ok(Some(found)) => found,
        };
        let mut said = String::new();
        for (mut claim, allocation) in claims.into_iter().zip(&found) {
            let status = shown(&claim, allocation, &mut said);
            if words.contains(&"keep") {
                claim.set_at(&["status", "allocation"], status);
                self.store(claim);
            }
        }
        said
    }
}

/// Appends the result of a claim to `said`, and returns the claim with its new status.
fn shown(claim: &Value, allocation: &ClaimAllocation, said: &mut String) -> Value {
    let mut shares = 0;
    let status = allocation.to_value(&mut || {
        shares += 1;
        format!("share {shares}")
    });
    for result in status.list_at(&["devices", "results"]) {
        let part = |field: &str| text(result, &[field]);
        let name = text(claim, &["metadata", "name"]);
        write!(said, "{name}: {} = {}/{}", part("request"), part("pool"), part("device")).unwrap();
        if result.get("adminAccess") == Some(&Value::Bool(true)) {
            said.push_str(" with admin access");
        }
        for (capacity, amount) in
            result.get("consumedCapacity").and_then(Value::as_map).into_iter().flat_map(value::Map::iter)
        {
            write!(said, " {capacity}={}", amount.as_str().unwrap_or_default()).unwrap();
        }
        said.push('\n');
    }
    status
}

fn objects(body: &str) -> Vec<Value> {
    let documents = yaml::documents(body.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {body}"));
    documents.into_iter().map(|document| document.value).collect()
}

fn check(page: &Page) {
    let mut cluster = Cluster::default();
    let mut said: Option<String> = None;
    page.check(|info, body| {
        match info.split(' ').collect::<Vec<_>>().as_slice() {
            ["yaml", "cluster"] => objects(body).into_iter().for_each(|one| cluster.store(one)),
            ["yaml", "allocate", rest @ ..] => said = Some(cluster.allocate(rest, objects(body))),
            ["text"] => {
                return Some(said.take().unwrap_or_else(|| panic!("nothing was asked before:\n{body}")));
            }
            other => panic!("what is a block of {other:?}?"),
        }
        None
    });
    assert!(said.is_none(), "a question without an answer");
}
