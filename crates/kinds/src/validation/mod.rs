//! Validation: which objects are refused, with Kubernetes' field paths and words.
//!
//! Objects arrive decoded and type-checked against their schema ([`schema`]) and with defaults applied, so rules look at
//! meaning, not shape; a rule that meets an unexpected shape skips it and never panics. `Rules` of a kind run after
//! the metadata rules that all kinds share.

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
pub mod core;
pub(crate) mod cron;
pub(crate) mod endpoint_slice;
pub(crate) mod event;
pub(crate) mod flowcontrol;
pub(crate) mod internal_json;
pub(crate) mod job_status;
pub(crate) mod label_match;
pub(crate) mod networking;
pub(crate) mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub mod pod;
pub(crate) mod pod_certificate_request;
pub(crate) mod policy;
pub(crate) mod quota;
pub(crate) mod rbac;
pub(crate) mod resource;
pub(crate) mod resource_capacity;
pub(crate) mod resource_claim;
pub(crate) mod resource_declared;
pub(crate) mod resource_slice;
pub mod reviews;
pub(crate) mod service;
pub(crate) mod stateful_set;
pub(crate) mod storage;
pub(crate) mod storagemigration;
pub(crate) mod template;
pub(crate) mod unified_diff;

use api::FieldErrors;
use value::Value;

/// What rules may know besides the object.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `--allow-privileged`.
    pub allow_privileged: bool,
    /// Seconds since the epoch.
    pub now: i64,
    /// Whether the names that are reserved for static manifests may be used: in those files, and where there are none.
    pub static_names: bool,
    /// The version of the request, where rules speak of it.
    pub version: value::Str,
    /// Who is told how long expressions take.
    pub stopwatch: Option<std::sync::Arc<dyn crd::Stopwatch>>,
    /// The steps that are left for the request.
    pub budget: value::Budget,
}

impl Context {
    /// What validating a custom resource may use.
    pub fn bounds(&self) -> crd::Bounds<'_> {
        crd::Bounds { watch: self.stopwatch.as_deref(), budget: &self.budget }
    }
}

/// The rules of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A new object.
    pub create: fn(&Value, &Context) -> FieldErrors,
    /// `(new, old)`: a changed object.
    pub update: fn(&Value, &Value, &Context) -> FieldErrors,
    /// `(new, old)`: a change through the `status` subresource.
    pub update_status: fn(&Value, &Value, &Context) -> FieldErrors,
}

/// Runs the rules of an object within what they may do besides steps: compiling the regular expressions of its CEL expressions and
/// schemas.
pub fn bounded<T>(rules: impl FnOnce() -> T) -> T {
    cel::pattern::within(cel::pattern::PER_OBJECT, rules)
}

/// What is wrong with a text.
type TextRule = fn(&str) -> Vec<String>;

/// The rules of tolerations that stand in no pod.
pub fn tolerations(list: &[Value], at: &api::validation::fields::At<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    pod::scheduling::toleration_list(list, &pod::options::Options::default(), at, &mut errors);
    errors
}

fn no_rules(_: &Value, _: &Value, _: &Context) -> FieldErrors {
    FieldErrors::new()
}
