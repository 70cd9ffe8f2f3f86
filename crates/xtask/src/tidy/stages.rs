//! The stage table in `ARCHITECTURE.md` has the stages of `pipeline.rs`, in the order they run. The page for users has the same stages, and
//! status codes.
//!
//! In `pipeline.rs`, a line `// stage: NAME, …` marks where the code of these stages begins.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

/// The file whose order is compared.
pub(super) const PIPELINE: &str = "crates/server/src/pipeline.rs";

const HEADING: &str = "## The path of a request";

const MARKER: &str = "// stage: ";

/// Stages of the table that run before or after the pipeline and have no marker.
const OUTSIDE_PIPELINE: [&str; 2] = ["accept", "watch"];

/// Compares the table with the markers of the pipeline's source.
pub(super) fn same_order(architecture: &str, pipeline: &str) -> Vec<String> {
    let table: Vec<&str> =
        table_stages(architecture).into_iter().filter(|stage| !OUTSIDE_PIPELINE.contains(stage)).collect();
    let marked = marked_stages(pipeline);
    if table.is_empty() {
        return vec![format!("ARCHITECTURE.md has no stage table under `{HEADING}`")];
    }
    if table == marked {
        return Vec::new();
    }
    let (table, marked) = (table.join(", "), marked.join(", "));
    vec![format!(
        "the stage table of ARCHITECTURE.md has the order [{table}], the `{}` comments of {PIPELINE} have [{marked}]",
        MARKER.trim_end()
    )]
}

/// The page for users, which spreads the stages over several tables.
pub(super) const PAGE: &str = "docs/concepts/path-of-a-request.md";

/// Compares the stages and their status codes with those of the page for users.
pub(super) fn same_refusals(architecture: &str, page: &str) -> Vec<String> {
    let table = refusals(table_rows(architecture));
    let shown = refusals(page.lines().filter_map(|line| line.strip_prefix("| ")));
    let names =
        |list: &[StageRefusals<'_>]| list.iter().map(|(stage, _)| *stage).collect::<Vec<_>>().join(", ");
    if names(&table) != names(&shown) {
        let (table, shown) = (names(&table), names(&shown));
        return vec![format!("the stages of ARCHITECTURE.md are [{table}], those of {PAGE} [{shown}]")];
    }
    let different = table.iter().zip(&shown).filter(|((_, codes), (_, shown))| codes != shown);
    different
        .map(|((stage, codes), (_, shown))| {
            format!("the stage `{stage}` refuses with {codes:?} in ARCHITECTURE.md, with {shown:?} in {PAGE}")
        })
        .collect()
}

/// A stage and the status codes in the last column of its row.
type StageRefusals<'a> = (&'a str, BTreeSet<&'a str>);

fn refusals<'a>(rows: impl Iterator<Item = &'a str>) -> Vec<StageRefusals<'a>> {
    let mut refusals = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches(['|', ' ']).split('|').map(str::trim).collect();
        let (Some(stages), Some(last)) = (cells.first(), cells.last()) else { continue };
        let codes: BTreeSet<&str> =
            last.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() == 3).collect();
        refusals.extend(names(stages).filter(|stage| *stage != "stage").map(|stage| (stage, codes.clone())));
    }
    refusals
}

/// The stages in the first column; a cell may name several.
fn table_stages(architecture: &str) -> Vec<&str> {
    table_rows(architecture).skip(1).filter_map(|row| row.split('|').next()).flat_map(names).collect()
}

/// The rows of the stage table with its head.
fn table_rows(architecture: &str) -> impl Iterator<Item = &str> {
    architecture
        .lines()
        .skip_while(|line| *line != HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("| "))
}

fn marked_stages(pipeline: &str) -> Vec<&str> {
    pipeline.lines().filter_map(|line| line.trim_start().strip_prefix(MARKER)).flat_map(names).collect()
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}
