//! Estimates the cost of a request from its path, its query and the stored objects.

use flowcontrol::estimate::{self, ListQuery, ObjectStats};
use flowcontrol::{WatchIdentifier, WatchTracker, WorkEstimate};
use requests::request_info::{Query, RequestInfo};

use crate::state::State;

/// The estimated work, and for mutating requests the number of watches that receive the event.
pub(super) fn work(
    state: &State,
    info: &RequestInfo,
    query: &Query,
    watches: &WatchTracker,
    level_max: u64,
) -> (WorkEstimate, Option<usize>) {
    match info.verb.as_str() {
        "list" | "watch" if info.is_resource => (list(state, info, query, level_max), None),
        "create" | "update" | "patch" | "delete" if info.is_resource => {
            if info.resource == "serviceaccounts" && info.subresource == "token" {
                return (WorkEstimate::ONE_SEAT, None);
            }
            let interested = watches.interested(&scope(info));
            (estimate::mutating(interested, level_max), Some(interested))
        }
        _ => (WorkEstimate::ONE_SEAT, None),
    }
}

fn list(state: &State, info: &RequestInfo, query: &Query, level_max: u64) -> WorkEstimate {
    let text = |name: &str| query.get(name).unwrap_or_default();
    let number = |name: &str| match text(name) {
        "" => Some(0),
        number => number.parse::<i64>().ok(),
    };
    let (Some(limit), Some(_)) = (number("limit"), number("timeoutSeconds")) else {
        return estimate::unreadable_list(level_max);
    };
    let query = ListQuery {
        is_watch: info.verb == "watch",
        names_one: !info.name.is_empty(),
        limit,
        resource_version: text("resourceVersion"),
        resource_version_match: text("resourceVersionMatch"),
        continue_token: text("continue"),
        has_selector: !text("fieldSelector").is_empty() || !text("labelSelector").is_empty(),
        sends_initial_events: query.is_true("sendInitialEvents"),
    };
    estimate::list(&query, stats(state, info), level_max)
}

/// Object count and average size of a resource; `None` for resources without stored objects.
fn stats(state: &State, info: &RequestInfo) -> Option<ObjectStats> {
    let kind = state.apis.catalog.find(&info.group, &info.version, &info.resource)?;
    if kind.is_virtual() {
        return None;
    }
    let totals = state.storage.store.totals(&kind.scope(""));
    let average_bytes = totals.body_bytes.checked_div(totals.count).unwrap_or_default();
    Some(ObjectStats { count: totals.count, average_bytes })
}

fn scope(info: &RequestInfo) -> WatchIdentifier {
    WatchIdentifier {
        group: info.group.clone(),
        resource: info.resource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
    }
}

/// The scope under which a watch is counted. Watches of the pods of one node see few events and are not
/// counted.
pub(super) fn watched(info: &RequestInfo) -> Option<WatchIdentifier> {
    if info.resource == "pods"
        && let Ok(fields) = info.field_selector.parsed()
        && fields.requirements().iter().any(|r| r.equals && r.field == "spec.nodeName" && !r.value.is_empty())
    {
        return None;
    }
    Some(scope(info))
}
