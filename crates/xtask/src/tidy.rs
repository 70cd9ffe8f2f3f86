//! `cargo xtask tidy`: the tree is what `ARCHITECTURE.md` says.
//!
//! Each check is a function from what it reads to the lines it complains of; [`run`] reads, and fails if there is one line.

mod crates;
mod documents;
mod sources;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, output};
use crates::Packages;
use documents::Map;
use sources::Source;

/// The documents whose claims are checked.
const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Crates that decide and therefore do no I/O and read no clock, and the two that they stand on.
const DECISION_CRATES: [&str; 13] = [
    "value",
    "api",
    "cel",
    "x509",
    "authn",
    "authz",
    "flowcontrol",
    "schema",
    "crd",
    "kinds",
    "documents",
    "admission",
    "dra",
];

/// Where files decide, though their crate does more: by how their paths below `crates/` begin.
const DECISION_FILES: [&str; 1] = ["webhook-auth/src/verify"];

/// A file longer than this is named.
const LONG: usize = 900;

/// Runs every check.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut complaints = Vec::new();

    let metadata = output(cargo(root).args(["metadata", "--format-version=1", "--locked"]))?;
    let packages = Packages::parse(&serde_json::from_str::<Value>(&metadata)?)?;
    let read =
        |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("cannot read `{name}`"));
    let architecture = read("ARCHITECTURE.md")?;
    let map = Map::parse(&architecture);
    complaints.extend(crates::arrows(&map, &packages));
    complaints.extend(crates::without_io(&packages, &DECISION_CRATES));
    let ring_users =
        cargo(root).args(["tree", "--workspace", "--invert", "ring", "--target=all"]).output()?;
    complaints.extend(crates::one_cryptography(&String::from_utf8_lossy(&ring_users.stdout)));
    complaints.extend(documents::headings(&architecture, &packages));
    for document in DOCUMENTS {
        complaints.extend(documents::paths(document, &read(document)?, |path| root.join(path).exists()));
    }

    let sources = sources::read(root)?;
    for source in &sources {
        complaints.extend(sources::no_io(source, &DECISION_CRATES, &DECISION_FILES));
        complaints.extend(sources::one_writer(source));
        complaints.extend(sources::keys_at_home(source));
        complaints.extend(sources::nothing_left_to_do(source));
    }
    complaints.extend(sources::the_writer_exists(&sources));
    for Source { path, lines, .. } in sources.iter().filter(|source| source.lines > LONG) {
        println!("long: {path} has {lines} lines");
    }

    if complaints.is_empty() {
        println!("tidy: {} crates, {} files", packages.workspace().count(), sources.len());
        return Ok(());
    }
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    bail!("{} things are not as ARCHITECTURE.md says", complaints.len())
}
