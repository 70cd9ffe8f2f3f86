//! The stage table in `ARCHITECTURE.md` has the stages of `pipeline.rs`, in the order they run.
//!
//! In `pipeline.rs`, a line `// stage: NAME, …` marks where the code of these stages begins.

#[cfg(test)]
mod tests;

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

/// The stages in the first column; a cell may name several.
fn table_stages(architecture: &str) -> Vec<&str> {
    let rows = architecture
        .lines()
        .skip_while(|line| *line != HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("| "));
    rows.skip(1).filter_map(|row| row.split('|').next()).flat_map(names).collect()
}

fn marked_stages(pipeline: &str) -> Vec<&str> {
    pipeline.lines().filter_map(|line| line.trim_start().strip_prefix(MARKER)).flat_map(names).collect()
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}
