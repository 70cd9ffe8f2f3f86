//! Columns of the `lifecycle.k8s.io` group.

use api::time::{human_age, human_duration};
use value::Value;

use super::view::{View, cells, count_of, find_condition, moment, with_more};
use super::{Column, TableDef};

const UNSET: &str = "<unset>";

pub(crate) const EVICTION_REQUEST: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Target"),
        Column::text("Target Type"),
        Column::text("Status"),
        Column::text("Requester"),
        Column::text("Intent"),
        Column::AGE,
    ],
    |v| {
        let (target, kind) = target(v);
        let spec = |field| v.text(&["spec", field]);
        cells![v.name(), target, kind, progress(v), spec("requester"), spec("intent"), v.age()]
    },
);

pub(crate) const EVICTION: TableDef = TableDef::new(
    &[
        Column::NAME,
        Column::text("Target"),
        Column::text("Target Type"),
        Column::text("Status"),
        Column::text("Active Responder"),
        Column::text("Responder Status"),
        Column::text("Responder Expected Finish"),
        Column::text("Requesters"),
        Column::AGE,
        Column::text("Responder Heartbeat").wide(),
        Column::text("Responder Status Message").wide(),
    ],
    |v| {
        let (target, kind) = target(v);
        let responder = responder(v);
        let name = responder.and_then(|responder| responder.str_at(&["name"])).unwrap_or(UNSET);
        let responders = v.list(&["status", "targetResponders"]);
        let begun = responders.iter().filter(|responder| state(responder).is_some_and(has_begun)).count();
        let shown = format!("{name} ({}/{})", count_of(begun), count_of(responders.len()));
        let [status, finish, heartbeat, message] = report(v, responder);
        cells![
            v.name(),
            target,
            kind,
            progress(v),
            shown,
            status,
            finish,
            requesters(v),
            v.age(),
            heartbeat,
            message
        ]
    },
);

/// The name and the kind of the target.
fn target<'a>(v: &View<'a>) -> (&'a str, &'static str) {
    match v.object.at(&["spec", "target", "pod"]).filter(|pod| !pod.is_null()) {
        None => (UNSET, UNSET),
        Some(pod) => (pod.str_at(&["name"]).unwrap_or_default(), "Pod"),
    }
}

fn progress(v: &View<'_>) -> String {
    let conditions = v.list(&["status", "conditions"]);
    for kind in ["TargetEvicted", "Failed"] {
        let found = find_condition(conditions, kind);
        if let Some(condition) = found.filter(|condition| condition.str_at(&["status"]) == Some("True")) {
            return format!("{kind} ({})", condition.str_at(&["reason"]).unwrap_or_default());
        }
    }
    let observed = v.int(&["status", "observedGeneration"]) > 0;
    if observed { "Progressing".to_owned() } else { "Pending".to_owned() }
}

fn state(responder: &Value) -> Option<&str> {
    responder.str_at(&["state"])
}

fn has_ended(state: &str) -> bool {
    matches!(state, "Canceled" | "Interrupted" | "Completed")
}

fn has_begun(state: &str) -> bool {
    state == "Active" || has_ended(state)
}

/// The last active responder of the list; without one, the last that has ended.
fn responder<'a>(v: &View<'a>) -> Option<&'a Value> {
    let responders = v.list(&["status", "targetResponders"]);
    let last = |matches: fn(&str) -> bool| {
        responders.iter().rev().find(|responder| state(responder).is_some_and(matches))
    };
    last(|state| state == "Active").or_else(|| last(has_ended))
}

/// Status, expected finish, heartbeat and message that a responder reports.
fn report(v: &View<'_>, responder: Option<&Value>) -> [String; 4] {
    let name = responder.map(|responder| responder.str_at(&["name"]));
    let reports = v.list(&["status", "responders"]);
    let report = name.and_then(|name| reports.iter().find(|report| report.str_at(&["name"]) == name));
    let (Some(report), Some(state)) = (report, responder.and_then(state)) else {
        return [UNSET, "<unknown>", UNSET, UNSET].map(str::to_owned);
    };
    let time = |field: &str| report.str_at(&[field]);
    let age = |field: &str| human_age(time(field), v.now);
    let mut status = state.to_owned();
    let mut finish = "<unknown>".to_owned();
    if state == "Active" {
        if time("startTime").is_some() {
            status = format!("Started ({} ago)", age("startTime"));
            if let Some(expected) = moment(time("expectedCompletionTime")) {
                finish = if expected > v.now {
                    format!("in {}", human_duration(expected.saturating_sub(v.now)))
                } else {
                    format!("{} ago", age("expectedCompletionTime"))
                };
            }
        }
    } else {
        "-".clone_into(&mut finish);
        if state == "Completed" && time("completionTime").is_some() {
            status = format!("{state} ({} ago)", age("completionTime"));
        }
    }
    let heartbeat =
        time("heartbeatTime").map_or(UNSET.to_owned(), |_| format!("{} ago", age("heartbeatTime")));
    let message = time("message").map(str::trim).filter(|message| !message.is_empty()).unwrap_or(UNSET);
    [status, finish, heartbeat, message.to_owned()]
}

/// The first of the requesters that have not withdrawn, by name, and the number of the others.
fn requesters(v: &View<'_>) -> String {
    let all = v.list(&["status", "requesters"]);
    let text = |requester: &'_ Value, field: &str| requester.str_at(&[field]).unwrap_or_default().to_owned();
    let interested = all.iter().filter(|requester| text(requester, "intent") != "Withdrawn");
    let mut names: Vec<String> = interested.map(|requester| text(requester, "name")).collect();
    names.sort_unstable();
    match (names.is_empty(), all.is_empty()) {
        (true, true) => "<none>".to_owned(),
        (true, false) => "<withdrawn>".to_owned(),
        (false, _) => with_more(names.iter().map(String::as_str), 1),
    }
}
