//! What expressions cost: estimated before they run, counted while they run. Both are Kubernetes' numbers.

pub(crate) mod estimate;
mod range;
pub(crate) mod runtime;

/// What it costs to go over a character of a string once.
const TRAVERSAL: f64 = 0.1;
/// What it costs to try a character of a pattern.
const PATTERN: f64 = 0.25;
/// The assumed length of the longest pattern behind a named format.
const LONGEST_FORMAT_PATTERN: f64 = 128.0;
/// The length of the longest name of a format.
const LONGEST_FORMAT: u64 = 64;
/// The limit of one evaluation in Kubernetes.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
