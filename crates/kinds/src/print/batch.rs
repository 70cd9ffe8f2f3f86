//! Columns of the `batch` group.

use api::time::human_duration;
use value::Value;

use super::view::{View, cells};
use super::{Column, TableDef};

pub(crate) const JOB: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Completions"),
        Column::text("Duration"),
        Column::AGE,
        Column::CONTAINERS,
        Column::IMAGES,
        Column::SELECTOR,
    ],
    job,
);

pub(crate) const CRON_JOB: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Schedule"),
        Column::text("Timezone"),
        Column::boolean("Suspend"),
        Column::integer("Active"),
        Column::text("Last Schedule"),
        Column::AGE,
        Column::CONTAINERS,
        Column::IMAGES,
        Column::SELECTOR,
    ],
    cron_job,
);

fn job(v: &View<'_>) -> Vec<Value> {
    let succeeded = v.int(&["status", "succeeded"]);
    let completions = match (v.object.int_at(&["spec", "completions"]), v.int(&["spec", "parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration = match (v.moment(&["status", "startTime"]), v.moment(&["status", "completionTime"])) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(v.now).saturating_sub(start)),
    };
    let is = |kind: &str| v.condition(kind) == Some("True");
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if v.is_deleting() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let (names, images) = v.containers(&["spec", "template", "spec", "containers"]);
    let selector = v.selector(&["spec", "selector"]);
    cells![v.name(), status, completions, duration, v.age(), names, images, selector]
}

fn cron_job(v: &View<'_>) -> Vec<Value> {
    let last = v.get_text(&["status", "lastScheduleTime"]);
    let last = last.map_or_else(|| "<none>".to_owned(), |_| v.since(&["status", "lastScheduleTime"]));
    let suspend = match v.bool(&["spec", "suspend"]) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let template = ["spec", "jobTemplate", "spec"];
    let [a, b, c] = template;
    let (names, images) = v.containers(&[a, b, c, "template", "spec", "containers"]);
    cells![
        v.name(),
        v.text(&["spec", "schedule"]),
        v.text_or(&["spec", "timeZone"], "<none>"),
        suspend,
        v.count(&["status", "active"]),
        last,
        v.age(),
        names,
        images,
        v.selector(&[a, b, c, "selector"]),
    ]
}
