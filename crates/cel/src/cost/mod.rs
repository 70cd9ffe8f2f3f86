//! Kubernetes' cost model: estimates before an expression runs, actual cost while it runs.

pub(crate) mod estimate;
mod range;
pub(crate) mod runtime;

/// Cost per character of traversing a string.
const TRAVERSAL: f64 = 0.1;
/// Cost per character of a pattern.
const PATTERN: f64 = 0.25;
/// Pattern length that Kubernetes assumes for named formats.
const LONGEST_FORMAT_PATTERN: f64 = 128.0;
/// Length that Kubernetes assumes for format names.
const LONGEST_FORMAT: u64 = 64;
/// Kubernetes' cost limit of one evaluation.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// Kubernetes' message for expressions that exceed the cost budget they share.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// True for overloads that order two strings or two byte sequences; their cost depends on the lengths.
fn is_text_comparison(overload: &str) -> bool {
    matches!(
        overload,
        "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
    )
}
