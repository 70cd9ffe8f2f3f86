//! The response to a client whose request a webhook denied.

use api::field::quote;
use api::{Status, StatusCause, StatusDetails, StatusReason};
use value::Value;

/// The webhook's own status, with the webhook's name before its message. A code below 400 becomes 400.
pub(super) fn denial(webhook: &str, result: Option<&Value>) -> Status {
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    let text = |field: &str| result.and_then(|result| result.str_at(&[field])).unwrap_or_default();
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let status = Status::failure(code(result), StatusReason::Unknown, message).with_reason(text("reason"));
    match result.and_then(|result| result.get("details")) {
        Some(details @ Value::Map(_)) => status.with_details(read_details(details)),
        _ => status,
    }
}

fn code(result: Option<&Value>) -> u16 {
    match result.and_then(|result| result.int_at(&["code"])) {
        Some(code) if code >= 400 => u16::try_from(code).unwrap_or(u16::MAX),
        _ => 400,
    }
}

fn read_details(details: &Value) -> StatusDetails {
    let text = |field: &str| details.str_at(&[field]).unwrap_or_default();
    StatusDetails {
        name: text("name").to_owned(),
        group: text("group").into(),
        kind: text("kind").into(),
        uid: text("uid").to_owned(),
        causes: details
            .list_at(&["causes"])
            .iter()
            .map(|cause| {
                let text = |field: &str| cause.str_at(&[field]).unwrap_or_default();
                StatusCause {
                    reason: text("reason").into(),
                    message: text("message").to_owned(),
                    field: text("field").to_owned(),
                }
            })
            .collect(),
        retry_after_seconds: details
            .int_at(&["retryAfterSeconds"])
            .and_then(|seconds| u32::try_from(seconds).ok())
            .unwrap_or_default(),
    }
}

/// Rejects a dry run of a request whose webhook has side effects.
pub(super) fn dry_run_unsupported(webhook: &str) -> Status {
    Status::bad_request(format!("admission webhook {} does not support dry run", quote(webhook)))
}
