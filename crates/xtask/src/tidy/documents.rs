//! What the documents claim: the table of crates, a heading for each, paths that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::crates::Packages;

/// The table of crates: what each may depend on.
#[derive(Debug, Default)]
pub(super) struct Map {
    pub(super) allowed: BTreeMap<String, BTreeSet<String>>,
}

impl Map {
    /// Reads the table under `## Crates`: rows of crate, responsibility, what it may depend on.
    pub(super) fn parse(architecture: &str) -> Self {
        let table = architecture
            .lines()
            .skip_while(|line| *line != "## Crates")
            .skip(1)
            .take_while(|line| !line.starts_with('#'));
        let mut map = Map::default();
        for line in table.filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if let [name, _, uses] = cells.as_slice() {
                map.allowed
                    .insert(name.trim_matches('`').to_owned(), spans(uses).map(str::to_owned).collect());
            }
        }
        map
    }
}

/// Every crate has a heading of its own.
pub(super) fn headings(architecture: &str, packages: &Packages) -> Vec<String> {
    let headings: BTreeSet<_> = architecture.lines().filter(|line| line.starts_with('#')).collect();
    let missing = packages.workspace().filter(|name| !headings.contains(format!("### `{name}`").as_str()));
    missing.map(|name| format!("ARCHITECTURE.md has no heading for the crate `{name}`")).collect()
}

/// Every path in backticks is there. Of a path with a `<placeholder>`, what comes before it.
pub(super) fn paths(document: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for span in spans(line).filter(|span| is_path(span)) {
            for path in spread(span) {
                let named = path.split_once('<').map_or(path.as_str(), |(before, _)| before);
                let named = if named.len() < path.len() {
                    named.rsplit_once('/').map_or("", |(d, _)| d)
                } else {
                    named
                };
                if !exists(named.trim_end_matches('/')) {
                    complaints.push(format!("{document}:{}: `{span}` is not there", number + 1));
                }
            }
        }
    }
    complaints
}

/// The texts between single backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a span names something in this tree, by how it begins or ends.
fn is_path(span: &str) -> bool {
    let in_the_tree = ["crates/", ".ci/", ".cargo/"].iter().any(|start| span.starts_with(start));
    let at_the_root = [".md", ".toml", ".lock"].iter().any(|end| span.ends_with(end)) && !span.contains('/');
    (in_the_tree || at_the_root) && !span.contains(' ')
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn spread(span: &str) -> Vec<String> {
    let Some((before, rest)) = span.split_once('{') else { return vec![span.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![span.to_owned()] };
    choices.split(',').flat_map(|choice| spread(&format!("{before}{choice}{after}"))).collect()
}
