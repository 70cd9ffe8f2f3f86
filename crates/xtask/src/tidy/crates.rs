//! Checks of dependencies: those of the crate table, no I/O below decision crates, one cryptography provider.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::documents::CrateTable;

/// Crates that open sockets or files, or have a JSON tree of their own.
const IO: [&str; 9] = ["tokio", "mio", "socket2", "hyper", "http", "rustls", "redb", "reqwest", "serde_json"];

/// Crates that implement HTTP. The crate `http` has only types.
const HTTP: [&str; 5] = ["hyper", "hyper-util", "h2", "reqwest", "axum"];

/// The packages of the build and their dependencies.
#[derive(Debug, Default)]
pub(super) struct Packages {
    names: BTreeMap<String, String>,
    workspace: BTreeSet<String>,
    /// By id: the ids of normal and build dependencies.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// By id: the ids of test dependencies.
    tests_use: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    /// Parses the output of `cargo metadata`.
    pub(super) fn parse(metadata: &Value) -> Result<Self> {
        let mut packages = Packages::default();
        for package in list(metadata, "packages") {
            packages.names.insert(text(package, "id")?, text(package, "name")?);
        }
        for member in list(metadata, "workspace_members") {
            packages.workspace.extend(member.as_str().map(str::to_owned));
        }
        let resolve = metadata.get("resolve").context("cargo metadata resolves nothing")?;
        for node in list(resolve, "nodes") {
            let id = text(node, "id")?;
            for dependency in list(node, "deps") {
                let target = text(dependency, "pkg")?;
                for kind in list(dependency, "dep_kinds") {
                    let set = match kind.get("kind").and_then(Value::as_str) {
                        Some("dev") => &mut packages.tests_use,
                        _ => &mut packages.uses,
                    };
                    set.entry(id.clone()).or_default().insert(target.clone());
                }
            }
        }
        Ok(packages)
    }

    /// The names of the crates in this workspace.
    pub(super) fn workspace(&self) -> impl Iterator<Item = &str> {
        self.workspace.iter().filter_map(|id| self.names.get(id)).map(String::as_str)
    }

    fn id(&self, name: &str) -> Option<&String> {
        self.workspace.iter().find(|id| self.names.get(*id).is_some_and(|own| own == name))
    }

    fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.names.get(id).map_or(id, String::as_str)
    }

    /// The names of all packages that `name` is built from, at any depth.
    fn built_from(&self, name: &str) -> BTreeSet<&str> {
        let mut waiting: Vec<&String> = self.id(name).into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            for next in self.uses.get(id).into_iter().flatten() {
                if seen.insert(next) {
                    waiting.push(next);
                }
            }
        }
        seen.into_iter().map(|id| self.name(id)).collect()
    }
}

/// Every dependency between crates of the workspace, including those of tests, is in the table.
pub(super) fn arrows(map: &CrateTable, packages: &Packages) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in packages.workspace() {
        let Some(allowed) = map.allowed.get(name) else {
            complaints.push(format!("ARCHITECTURE.md has no row for the crate `{name}`"));
            continue;
        };
        let Some(id) = packages.id(name) else { continue };
        let uses = packages.uses.get(id).into_iter().flatten();
        let tests_use = packages.tests_use.get(id).into_iter().flatten();
        let targets: BTreeSet<_> = uses
            .chain(tests_use)
            // The tests of a crate may depend on the crate itself, with more features.
            .filter(|other| packages.workspace.contains(*other) && *other != id)
            .map(|id| packages.name(id))
            .collect();
        for other in targets {
            if !allowed.contains(other) {
                complaints
                    .push(format!("`{name}` depends on `{other}`, which ARCHITECTURE.md does not allow"));
            }
        }
    }
    let known: BTreeSet<_> = packages.workspace().collect();
    for name in map.allowed.keys().filter(|name| !known.contains(name.as_str())) {
        complaints.push(format!("ARCHITECTURE.md has a row for `{name}`, which is no crate"));
    }
    complaints
}

/// Every dependency that the table allows exists, so that the table permits no more than the code needs.
pub(super) fn unused_arrows(map: &CrateTable, packages: &Packages) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, allowed) in &map.allowed {
        let Some(id) = packages.id(name) else { continue };
        let sets = [packages.uses.get(id), packages.tests_use.get(id)];
        let used: BTreeSet<_> = sets.into_iter().flatten().flatten().map(|id| packages.name(id)).collect();
        for other in allowed.iter().filter(|other| !used.contains(other.as_str())) {
            complaints.push(format!(
                "ARCHITECTURE.md allows `{name}` to depend on `{other}`, which it does not use"
            ));
        }
    }
    complaints
}

/// Decision crates depend on no crate that does I/O, at any depth.
pub(super) fn without_io(packages: &Packages, decisions: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in decisions {
        let parts = packages.built_from(name);
        for io in IO.iter().filter(|io| parts.contains(*io)) {
            complaints.push(format!("`{name}` decides, but is built from `{io}`"));
        }
    }
    complaints
}

/// Only `speakers` depend directly on a crate that implements HTTP, apart from tests (invariant 3). Each of them does, so that the
/// list stays as short as possible.
pub(super) fn http_speakers(packages: &Packages, speakers: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in packages.workspace() {
        let uses = packages.id(name).and_then(|id| packages.uses.get(id)).into_iter().flatten();
        let http: Vec<_> = uses.map(|id| packages.name(id)).filter(|other| HTTP.contains(other)).collect();
        match http.first() {
            Some(other) if !speakers.contains(&name) => {
                complaints.push(format!("`{name}` depends on `{other}`, but is not listed as speaking HTTP"));
            }
            None if speakers.contains(&name) => {
                complaints.push(format!("`{name}` is listed as speaking HTTP, but depends on no HTTP crate"));
            }
            _ => {}
        }
    }
    complaints
}

/// With two cryptography providers in one build, rustls fails at the first connection. `ring_users` is the output of
/// `cargo tree --invert ring`; `cargo metadata` would also list dependencies that are not built.
pub(super) fn one_cryptography(ring_users: &str) -> Option<String> {
    let used = ring_users.lines().any(|line| line.starts_with("ring "));
    used.then(|| "`ring` is in the build; `cargo tree --workspace --invert ring` says for whom".to_owned())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> Result<String> {
    Ok(value.get(key).and_then(Value::as_str).with_context(|| format!("no `{key}`"))?.to_owned())
}
