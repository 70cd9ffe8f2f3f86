//! Device binding conditions: a pod is bound only when the drivers report its devices ready.

use api::time::Timestamp;
use value::Value;

/// Seconds until devices that are not ready count as failed.
const READINESS_TIMEOUT: i64 = 600;

/// State of the binding conditions of an allocated claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Some conditions are missing; the claim fails at this Unix time in seconds, if the allocation has a timestamp.
    Waiting(Option<i64>),
    /// Message of the failure; the claim is to be deallocated.
    Failed(String),
}

/// Evaluates the conditions that drivers report for the devices of an allocated claim.
pub(super) fn of(claim: &Value, now: i64) -> Readiness {
    let name = claim.str_at(&["metadata", "name"]).unwrap_or_default();
    let mut ready = true;
    for result in claim.list_at(&["status", "allocation", "devices", "results"]) {
        let listed = |field: &str| result.list_at(&[field]).iter().filter_map(Value::as_str);
        if listed("bindingConditions").next().is_none() {
            continue;
        }
        let same = |status: &&Value| {
            ["driver", "pool", "device"]
                .iter()
                .all(|field| status.str_at(&[field]) == result.str_at(&[field]))
        };
        let Some(status) = claim.list_at(&["status", "devices"]).iter().find(same) else {
            ready = false;
            continue;
        };
        let is_true = |kind: &str| {
            status
                .list_at(&["conditions"])
                .iter()
                .find(|one| one.str_at(&["type"]) == Some(kind) && one.str_at(&["status"]) == Some("True"))
        };
        if let Some(failed) = listed("bindingFailureConditions").find_map(is_true) {
            let text = |field: &str| failed.str_at(&[field]).unwrap_or_default();
            return Readiness::Failed(format!(
                "device binding failed: claim={name}, reason={}, message={}",
                text("reason"),
                api::field::quote(text("message"))
            ));
        }
        ready &= listed("bindingConditions").all(|kind| is_true(kind).is_some());
    }
    if ready {
        return Readiness::Ready;
    }
    let since = claim.str_at(&["status", "allocation", "allocationTimestamp"]);
    let end = since
        .and_then(|since| Timestamp::parse(since).ok())
        .map(|since| since.seconds.saturating_add(READINESS_TIMEOUT));
    if end.is_some_and(|end| end < now) {
        return Readiness::Failed(format!("device binding timed out: claim={name}"));
    }
    Readiness::Waiting(end)
}
