//! The table of built-in types, which finds the line of a type and caches its decoded schema.

use std::sync::{LazyLock, OnceLock};

use super::{Schema, text};

/// The files with one line per type. No type is in two of them.
static DATA: &[&str] = &[
    include_str!("../data/schema.txt"),
    include_str!("../data/unpublished_schema.txt"),
    #[cfg(feature = "fixture-kind")]
    include_str!("../data/fixture_schema.txt"),
];

/// All lines, with the schemas decoded so far.
struct TypeTable {
    lines: Box<[TypeLine]>,
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

struct TypeLine {
    name: &'static str,
    rest: &'static str,
    schema: OnceLock<&'static Schema>,
}

static TABLE: LazyLock<TypeTable> = LazyLock::new(|| {
    let mut lines: Box<[TypeLine]> = DATA
        .iter()
        .flat_map(|file| file.lines())
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            TypeLine { name, rest, schema: OnceLock::new() }
        })
        .collect();
    lines.sort_unstable_by_key(|line| line.name);
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
    TypeTable { lines, kinds: kinds.into() }
});

/// Replaces a line that cannot be parsed. A test parses every line, so it is never used.
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

/// The schema of a type by its short name, such as `core.v1.PodSpec`.
pub fn named(name: &str) -> Option<&'static Schema> {
    position(name).map(at)
}

/// The names of all types, sorted.
pub fn all() -> impl ExactSizeIterator<Item = &'static str> {
    TABLE.lines.iter().map(|line| line.name)
}

/// The index of a type in the table.
pub(super) fn position(name: &str) -> Option<u16> {
    let found = TABLE.lines.binary_search_by(|line| line.name.cmp(name)).ok()?;
    u16::try_from(found).ok()
}

/// The type at an index, decoded on first use.
pub(super) fn at(position: u16) -> &'static Schema {
    let Some(line) = TABLE.lines.get(usize::from(position)) else { return &ANYTHING };
    line.schema.get_or_init(|| match text::schema(line.name, line.rest) {
        // Leaked on purpose: at most one schema per line.
        Ok(schema) => Box::leak(Box::new(schema)),
        Err(_) => &ANYTHING,
    })
}

/// Every line of the table, for the test that parses them all.
#[cfg(test)]
pub(super) fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines.iter().map(|line| (line.name, line.rest))
}
