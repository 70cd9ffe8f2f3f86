//! Columns of the `autoscaling` group.

use value::Value;

use super::view::{View, cells, quantity};
use super::{Column, TableDef};

pub(crate) const HORIZONTAL_POD_AUTOSCALER: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Reference"),
        Column::text("Targets"),
        Column::text("MinPods"),
        Column::text("MaxPods"),
        Column::text("Replicas"),
        Column::AGE,
    ],
    |v| {
        let target = |field| v.text(&["spec", "scaleTargetRef", field]);
        let least = v.object.int_at(&["spec", "minReplicas"]);
        cells![
            v.name(),
            format!("{}/{}", target("kind"), target("name")),
            metrics(v),
            least.map_or_else(|| "<unset>".to_owned(), |n| n.to_string()),
            v.int(&["spec", "maxReplicas"]),
            v.int(&["status", "currentReplicas"]),
            v.age(),
        ]
    },
);

pub(crate) const SCALE: TableDef = TableDef::new(
    &[Column::text("Name"), Column::integer("Desired"), Column::integer("Available"), Column::AGE],
    |v| cells![v.name(), v.int(&["spec", "replicas"]), v.int(&["status", "replicas"]), v.age()],
);

/// Current and target values of the first two metrics.
fn metrics(v: &View<'_>) -> String {
    let specs = v.list(&["spec", "metrics"]);
    let statuses = v.list(&["status", "currentMetrics"]);
    let mut all: Vec<String> =
        specs.iter().enumerate().map(|(i, spec)| metric(spec, statuses.get(i))).collect();
    // Version v1 has a single field, for CPU utilization.
    if let Some(target) = v.object.int_at(&["spec", "targetCPUUtilizationPercentage"]) {
        let current = v.object.int_at(&["status", "currentCPUUtilizationPercentage"]);
        let current = current.map_or_else(|| "<unknown>".to_owned(), |c| format!("{c}%"));
        all.insert(0, format!("cpu: {current}/{target}%"));
    }
    if all.is_empty() {
        return "<none>".to_owned();
    }
    let first = all.iter().take(2).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > 2 { format!("{first} + {} more...", all.len() - 2) } else { first }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let kind = spec.str_at(&["type"]).unwrap_or_default();
    let field = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = |name: &str| spec.at(&[field, "target", name]);
    let status = status.filter(|s| s.get(field).is_some_and(|part| !part.is_null()));
    let current = |name: &str| status.and_then(|s| s.at(&[field, "current", name]));
    let amount = |value: Option<&Value>| value.map_or_else(|| "<nil>".to_owned(), quantity);
    let unknown = || "<unknown>".to_owned();
    // A metric reported without the requested value prints Go's text for a nil pointer.
    let reported = |name: &str| status.map_or_else(unknown, |_| amount(current(name)));
    let percent = |value: Option<&Value>| value.and_then(Value::as_int).map(|n| format!("{n}%"));
    match (kind, target("averageValue")) {
        ("External" | "Object", Some(wanted)) => {
            let current = current("averageValue").map_or_else(unknown, quantity);
            format!("{current}/{} (avg)", quantity(wanted))
        }
        ("External" | "Object", None) => format!("{}/{}", reported("value"), amount(target("value"))),
        ("Pods", wanted) => format!("{}/{}", reported("averageValue"), amount(wanted)),
        (_, Some(wanted)) => {
            let name = spec.str_at(&[field, "name"]).unwrap_or_default();
            format!("{name}: {}/{}", reported("averageValue"), quantity(wanted))
        }
        (_, None) => {
            let name = spec.str_at(&[field, "name"]).unwrap_or_default();
            let current = percent(current("averageUtilization")).unwrap_or_else(unknown);
            let wanted = percent(target("averageUtilization")).unwrap_or_else(|| "<auto>".to_owned());
            format!("{name}: {current}/{wanted}")
        }
    }
}
