//! Compares `docs/reference/metrics.md` with the metrics that a server registers.

use std::collections::BTreeMap;
use std::path::Path;

use server::Ephemeral;

/// Type and sorted labels of a documented metric.
type Row = (String, Vec<String>);

/// Rows of the form ``| `name` | type | `label`, `label` | meaning |``.
fn documented(page: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, labels, meaning] = cells.as_slice() else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        assert!(meaning.split(' ').count() >= 3, "{name} has no description");
        let mut labels: Vec<String> = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        labels.sort();
        let earlier = rows.insert(name.to_owned(), ((*kind).to_owned(), labels));
        assert!(earlier.is_none(), "{name} has two rows");
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_has_a_row_and_every_row_has_a_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let mut documented = documented(&std::fs::read_to_string(path).unwrap());
    let server = Ephemeral::start().await.unwrap();
    let state = server.running.state();
    let mut problems = Vec::new();
    for registry in [state.metrics.registry(), state.serving.health.registry()] {
        for family in registry.families() {
            let row = |kind: &str| {
                let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
                format!("| `{}` | {kind} | {} |", family.name, labels.join(", "))
            };
            match documented.remove(&family.name) {
                None => problems.push(format!("missing: {}", row(family.kind.unwrap_or("?")))),
                Some((kind, labels)) => {
                    if labels != family.labels || family.kind.is_some_and(|known| known != kind) {
                        problems.push(format!("differs: {}", row(family.kind.unwrap_or(&kind))));
                    }
                }
            }
        }
    }
    problems.extend(documented.keys().map(|name| format!("not a metric of the server: {name}")));
    server.running.stop().await;
    assert!(problems.is_empty(), "docs/reference/metrics.md:\n{}", problems.join("\n"));
}
