//! The table of types: finding a type's line and keeping what was decoded from it.

use std::sync::{LazyLock, OnceLock};

use super::{Schema, text};

static DATA: &str = include_str!("../data/schema.txt");

/// Where each line begins, and the schemas decoded so far.
struct Table {
    lines: Box<[Line]>,
    /// The types that are kinds, sorted by group, version and kind.
    kinds: Box<[KindEntry]>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct KindEntry {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    position: u16,
}

struct Line {
    name: &'static str,
    rest: &'static str,
    schema: OnceLock<&'static Schema>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    // INVARIANT: the generator sorts the lines by name, and a test proves it.
    let lines: Box<[Line]> = DATA
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            Line { name, rest, schema: OnceLock::new() }
        })
        .collect();
    let mut kinds: Vec<_> = (0..)
        .zip(&lines)
        .filter_map(|(position, line)| {
            let group_version = line.rest.strip_prefix('@')?.split(' ').next()?;
            let (group, version) = match group_version.split_once('/') {
                Some(split) => split,
                None if group_version == "*" => ("*", ""),
                None => ("", group_version),
            };
            Some(KindEntry { group, version, kind: line.name.rsplit('.').next()?, position })
        })
        .collect();
    kinds.sort_unstable();
    Table { lines, kinds: kinds.into() }
});

/// The schema that stands in for a line that cannot be read. A test reads every line, so nobody meets it.
static ANYTHING: Schema = Schema::ANY;

/// The schema of a kind; `group` is empty for the core group.
pub fn of(group: &str, version: &str, kind: &str) -> Option<&'static Schema> {
    let find = |wanted: (&str, &str, &str)| {
        let kinds = &TABLE.kinds;
        let found =
            kinds.binary_search_by(|entry| (entry.group, entry.version, entry.kind).cmp(&wanted)).ok()?;
        kinds.get(found).map(|entry| at(entry.position))
    };
    find((group, version, kind)).or_else(|| find(("*", "", kind)))
}

/// The schema of a type by its name, as `core.v1.PodSpec`.
pub fn named(name: &str) -> Option<&'static Schema> {
    position(name).map(at)
}

/// The names of all types, sorted.
pub fn all() -> impl ExactSizeIterator<Item = &'static str> {
    TABLE.lines.iter().map(|line| line.name)
}

/// A type's position in the table.
pub(super) fn position(name: &str) -> Option<u16> {
    let found = TABLE.lines.binary_search_by(|line| line.name.cmp(name)).ok()?;
    u16::try_from(found).ok()
}

/// The type at a position, decoded now if nobody asked for it before.
pub(super) fn at(position: u16) -> &'static Schema {
    let Some(line) = TABLE.lines.get(usize::from(position)) else { return &ANYTHING };
    line.schema.get_or_init(|| match text::schema(line.name, line.rest) {
        // Kept for the life of the process: there are as many as there are lines.
        Ok(schema) => Box::leak(Box::new(schema)),
        Err(_) => &ANYTHING,
    })
}

/// Every line of the table, for the test that reads them all.
#[cfg(test)]
pub(super) fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines.iter().map(|line| (line.name, line.rest))
}
