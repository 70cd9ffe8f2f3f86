//! `cargo xtask tidy`: checks the claims of `ARCHITECTURE.md` and of other documents, and the language of the sources.
//!
//! Each check is a pure function from texts to complaints. [`run`] reads the texts and fails if there is a complaint.

mod crates;
mod documents;
mod language;
mod sources;
mod stages;
mod test_tables;
#[cfg(test)]
mod tests;
mod type_names;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, output};
use crates::Packages;
use documents::{CrateTable, FileTree};

/// Crates that do no I/O, read no clock, start no thread and use no random values (invariant 1).
const DECISION_CRATES: [&str; 14] = [
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
    "service-addresses",
];

/// Crates that speak HTTP (invariant 3); `conformance` is only for tests.
const HTTP_CRATES: [&str; 7] =
    ["transport", "outbound", "grpc", "maintenance", "server", "webhook-auth", "conformance"];

/// Files that do no I/O although their crate does, by the beginning of their path below `crates/`.
const DECISION_FILES: [&str; 1] = ["webhook-auth/src/verify"];

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut complaints = Vec::new();

    let metadata = output(cargo(root).args(["metadata", "--format-version=1", "--locked"]))?;
    let packages = Packages::parse(&serde_json::from_str::<Value>(&metadata)?)?;
    let read =
        |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("cannot read `{name}`"));
    let architecture = read("ARCHITECTURE.md")?;
    let map = CrateTable::parse(&architecture);
    complaints.extend(crates::arrows(&map, &packages));
    complaints.extend(crates::unused_arrows(&map, &packages));
    complaints.extend(crates::without_io(&packages, &DECISION_CRATES));
    complaints.extend(crates::http_speakers(&packages, &HTTP_CRATES));
    let ring_users =
        cargo(root).args(["tree", "--workspace", "--invert", "ring", "--target=all"]).output()?;
    complaints.extend(crates::one_cryptography(&String::from_utf8_lossy(&ring_users.stdout)));
    complaints.extend(documents::headings(&architecture, &packages));
    complaints.extend(stages::same_order(&architecture, &read(stages::PIPELINE)?));
    complaints.extend(stages::same_refusals(&architecture, &read(stages::PAGE)?));
    let tree = FileTree::read(root)?;
    let documents = documents::read(root, &tree)?;
    for document in &documents {
        complaints.extend(documents::paths(document, &tree));
        complaints.extend(documents::links(document, &tree, |path| read(path).ok()));
        complaints.extend(documents::items(document, |path| read(path).ok()));
        complaints.extend(test_tables::check(document, &tree, |path| read(path).ok()));
        complaints.extend(language::check_markdown(&document.path, &document.text));
    }

    let sources = sources::read(root)?;
    for source in &sources {
        complaints.extend(sources::no_io(source, &DECISION_CRATES, &DECISION_FILES));
        complaints.extend(sources::one_writer(source));
        complaints.extend(sources::keys_at_home(source));
        complaints.extend(sources::storage_keys_at_home(source));
        complaints.extend(sources::storage_keys_taken_apart_at_home(source));
        complaints.extend(sources::nothing_left_to_do(source));
        complaints.extend(sources::not_too_long(source));
        complaints.extend(language::check(source));
    }
    for (path, text) in sources::read_other(root)? {
        complaints.extend(language::check_other(&path, &text));
    }
    complaints.extend(sources::server_is_small(&sources));
    complaints.extend(sources::the_writer_exists(&sources));
    complaints.extend(sources::exceptions_are_used(&sources));
    complaints.extend(sources::constants_declared_once(&sources));
    complaints.extend(type_names::unique(&sources));

    if complaints.is_empty() {
        let crates = packages.workspace().count();
        println!("tidy: {crates} crates, {} sources, {} documents", sources.len(), documents.len());
        return Ok(());
    }
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    bail!("tidy found {} problems", complaints.len())
}
