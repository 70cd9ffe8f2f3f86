//! Validation: which objects are refused, with Kubernetes' field paths and words.
//!
//! Objects arrive decoded and type-checked against their schema ([`crate::schema`]) and with defaults applied, so rules look at
//! meaning, not shape; a rule that meets an unexpected shape skips it and never panics. `Rules` of a kind run after
//! the metadata rules that all kinds share.

pub mod fields;
mod internal_json;
pub mod meta;
pub mod pod;
mod pod_claims;
mod pod_containers;
mod pod_env;
mod pod_mounts;
mod pod_options;
mod pod_probes;
mod pod_projected;
mod pod_resize;
pub(crate) mod pod_resources;
mod pod_scheduling;
mod pod_security;
mod pod_spec;
mod pod_status;
mod pod_volumes;
mod template;
mod unified_diff;

use api::{FieldErrors, GroupKind};
use value::Value;

/// What rules may know besides the object.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `--allow-privileged`.
    pub allow_privileged: bool,
    /// Seconds since the epoch.
    pub now: i64,
}

/// The rules of one kind.
#[derive(Clone, Copy)]
pub struct Rules {
    /// A new object.
    pub create: fn(&Value, &Context) -> FieldErrors,
    /// `(new, old)`: a changed object.
    pub update: fn(&Value, &Value, &Context) -> FieldErrors,
    /// `(new, old)`: a change through the `status` subresource.
    pub update_status: fn(&Value, &Value, &Context) -> FieldErrors,
}

/// Every kind with rules of its own, at the version it is stored in.
const TABLE: &[(&str, &str, Rules)] =
    &[("", "Binding", pod::BINDING), ("", "Pod", pod::POD), ("", "PodTemplate", template::POD_TEMPLATE)];

/// The rules of `kind`, if it has any besides those for metadata.
pub fn rules(kind: &GroupKind) -> Option<&'static Rules> {
    TABLE.iter().find(|(g, k, _)| *g == kind.group && *k == kind.kind).map(|(_, _, rules)| rules)
}

/// Nothing to say about a change.
fn no_rules(_: &Value, _: &Value, _: &Context) -> FieldErrors {
    FieldErrors::new()
}
