//! Validation of objects, with the field paths and messages of kube-apiserver.
//!
//! Objects arrive decoded, type-checked against their schema ([`schema`]) and with defaults applied. A rule that meets
//! an unexpected type skips it and never panics. If the [`ValidationRules`] of a kind find no error, the write path also applies the
//! metadata rules common to all kinds.

mod addresses;
pub mod admin_access;
pub(crate) mod admission_expression;
pub(crate) mod admission_policy;
pub mod admissionregistration;
pub(crate) mod apiextensions;
pub(crate) mod apps;
pub(crate) mod autoscaling;
pub(crate) mod batch;
pub mod certificates;
pub(crate) mod cluster;
pub(crate) mod coordination;
pub mod core;
pub(crate) mod cron;
mod declared;
pub(crate) mod endpoint_slice;
pub(crate) mod event;
pub(crate) mod flowcontrol;
pub(crate) mod ingress;
pub(crate) mod internal_json;
pub(crate) mod job_status;
pub(crate) mod label_match;
pub(crate) mod lifecycle;
pub(crate) mod network_policy;
pub(crate) mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub mod pod;
pub(crate) mod pod_certificate_request;
pub(crate) mod policy;
mod ports;
pub(crate) mod quota;
pub(crate) mod rbac;
pub(crate) mod resource;
pub(crate) mod resource_capacity;
pub(crate) mod resource_claim;
pub(crate) mod resource_declared;
pub(crate) mod resource_pool_status;
pub(crate) mod resource_slice;
pub mod reviews;
pub(crate) mod scheduling;
pub(crate) mod service;
pub(crate) mod service_cidr;
pub(crate) mod stateful_set;
pub(crate) mod storage;
pub(crate) mod storage_version;
pub(crate) mod storagemigration;
pub(crate) mod template;
pub(crate) mod unified_diff;

use api::FieldErrors;
use api::features::Features;
use api::validation::fields::{At, Read, Report};
use value::{Budget, BudgetEnded, Value, steps};

/// Input of validation besides the object.
#[derive(Clone, Debug, Default)]
pub struct ValidationContext {
    /// Set by the `--allow-privileged` flag.
    pub allow_privileged: bool,
    /// Current time in seconds since 1970.
    pub now: i64,
    /// Allows names reserved for manifest files: when reading those files, and in the API if the server has none.
    pub static_names: bool,
    /// The object comes from a manifest file: kube-apiserver validates those by its hand-written rules alone.
    pub is_manifest: bool,
    /// Features that are on; fields of other features are forbidden.
    pub features: Features,
    /// Version of the request; some rules report the fields of that version.
    pub version: value::Str,
    /// Receives the durations of compiling and evaluating CEL rules of CRDs.
    pub stopwatch: Option<std::sync::Arc<dyn crd::Stopwatch>>,
    /// Steps that validation of this request may still use.
    pub budget: Budget,
}

impl ValidationContext {
    /// Limits and metrics for validating a custom resource.
    pub fn bounds(&self) -> crd::ValidationBounds<'_> {
        crd::ValidationBounds { watch: self.stopwatch.as_deref(), budget: &self.budget }
    }
}

/// Validation functions of one kind.
#[derive(Clone, Copy, Debug)]
pub struct ValidationRules {
    /// Arguments are the new object and the context.
    pub create: fn(&Value, &ValidationContext) -> FieldErrors,
    /// Arguments are `(new, old, context)`.
    pub update: fn(&Value, &Value, &ValidationContext) -> FieldErrors,
    /// Arguments are `(new, old, context)`, for an update through the `status` subresource.
    pub update_status: fn(&Value, &Value, &ValidationContext) -> FieldErrors,
}

/// Runs validation of one object with a limit on compiling regular expressions of its CEL expressions and schemas, which the step
/// budget does not cover. If `budget` ends before, the only error says so.
pub fn bounded(budget: &Budget, rules: impl FnOnce() -> FieldErrors) -> FieldErrors {
    let within_budget = || steps::within(budget, rules);
    let detail = match cel::pattern::within(cel::pattern::PER_OBJECT, within_budget) {
        Ok(errors) => return errors,
        Err(BudgetEnded::Exhausted) => "validation takes too many steps; use shorter lists and texts",
        Err(BudgetEnded::Canceled) => "validation was canceled because the request ended",
    };
    let mut errors = FieldErrors::new();
    errors.forbidden(&At::ROOT, detail);
    errors
}

/// Returns the errors of a text.
type TextRule = fn(&str) -> Vec<String>;

/// Validates a required name. An empty or absent name is reported only as missing.
fn required_name<'a>(
    holder: impl Read<'a>,
    field: &str,
    rule: TextRule,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let name = holder.text(field);
    if name.is_empty() {
        errors.required(&at.field(field), "");
    } else {
        errors.invalid_each(&at.field(field), name, rule(name));
    }
}

/// Reports each of these strings that is empty or absent.
fn required_texts(source: &Value, fields: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    for field in fields {
        if source.text(field).is_empty() {
            errors.required(&at.field(field), "");
        }
    }
}

/// Validates the lifetime of service account tokens, in seconds.
fn token_seconds(seconds: i64, at: &At<'_>, errors: &mut FieldErrors) {
    if seconds < 600 {
        errors.invalid(at, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(at, seconds, "may not specify a duration larger than 2^32 seconds");
    }
}

/// Validates an optional string that must have one of the `known` values.
fn optional_value<'a>(
    holder: impl Read<'a>,
    field: &str,
    known: &[&str],
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if let Some(value) = holder.text_if_set(field).filter(|value| !known.contains(value)) {
        errors.not_supported(&at.field(field), value, known);
    }
}

/// Validates a required string that must have one of the `known` values.
fn required_value<'a>(
    holder: impl Read<'a>,
    field: &str,
    known: &[&str],
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    match holder.text(field) {
        "" => errors.required(&at.field(field), ""),
        value if !known.contains(&value) => errors.not_supported(&at.field(field), value, known),
        _ => {}
    }
}

/// Validates tolerations outside of a pod.
pub fn tolerations(list: &[Value], at: &At<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    pod::scheduling::toleration_list(list, &pod::options::PodValidationOptions::default(), at, &mut errors);
    errors
}

fn no_rules(_: &Value, _: &Value, _: &ValidationContext) -> FieldErrors {
    FieldErrors::new()
}
