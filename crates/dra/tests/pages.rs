//! Every page under `spec/` is a test.
//!
//! A page is prose with fenced blocks. `yaml cluster` holds objects that are there from then on: device classes, slices, rules that
//! taint devices, nodes, and claims that have devices already (one with the same kind and name replaces the earlier one). `yaml
//! allocate NODE` holds the claims of a pod, with `gates=-NAME` after it where a feature is off; the `text` block after it says what
//! they get there: `CLAIM: REQUEST = POOL/DEVICE` for each device, `nothing`, or what is wrong. What they get is theirs from then on if the
//! block says `keep`. `UPDATE_PAGES=1` writes what comes now.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dra::{Allocation, Allocator, Claim, Error, Gates, Node};
use value::{Value, yaml};

macro_rules! pages {
    ($($page:ident),* $(,)?) => {
        const PAGES: &[&str] = &[$(stringify!($page)),*];
        $(#[test] fn $page() { check(stringify!($page)); })*
    };
}

pages!(
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

#[test]
fn every_page_is_listed() {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .collect();
    found.sort();
    assert_eq!(found, PAGES);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("spec")
}

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

    fn allocator(&self, gates: Gates) -> Allocator {
        let mut allocator = Allocator::new(self.of("DeviceClass"), self.of("ResourceSlice"), gates);
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
        let mut gates = Gates::default();
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
        let outcome = claims.iter().map(Claim::read).collect::<Result<Vec<Claim>, Error>>();
        let outcome = outcome.and_then(|read| self.allocator(gates).allocate(&read, &Node::of(&node)));
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

/// Writes what a claim gets, and returns what its status would say.
fn shown(claim: &Value, allocation: &Allocation, said: &mut String) -> Value {
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

fn check(page: &str) {
    let path = folder().join(format!("{page}.md"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut cluster = Cluster::default();
    let mut said: Option<String> = None;
    let (mut out, mut wrong, mut asked) = (String::new(), String::new(), 0);
    let mut block: Option<(Vec<&str>, String)> = None;
    for line in text.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(words)) => block = Some((words.split(' ').collect(), String::new())),
            (Some((words, body)), Some(_)) => {
                match words.as_slice() {
                    ["yaml", "cluster"] => objects(body).into_iter().for_each(|one| cluster.store(one)),
                    ["yaml", "allocate", rest @ ..] => said = Some(cluster.allocate(rest, objects(body))),
                    ["text"] => {
                        let now = said.take().unwrap_or_else(|| panic!("nothing was asked before:\n{body}"));
                        asked += 1;
                        if now != *body {
                            writeln!(wrong, "expected\n{body}\ngot\n{now}").unwrap();
                        }
                        out.push_str(&now);
                    }
                    other => panic!("what is a block of {other:?}?"),
                }
                if words.as_slice() != ["text"] {
                    out.push_str(body);
                }
                block = None;
            }
            (Some((_, body)), None) => {
                writeln!(body, "{line}").unwrap();
                continue;
            }
            (None, None) => {}
        }
        writeln!(out, "{line}").unwrap();
    }
    assert!(asked > 0 && said.is_none(), "{page}: a question without an answer");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(path, out).unwrap();
    } else {
        assert!(wrong.is_empty(), "{page}:\n{wrong}");
    }
}
