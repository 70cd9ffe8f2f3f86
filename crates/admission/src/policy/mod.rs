//! Admission policies: `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy` with their bindings.
//!
//! A policy is compiled when it changes ([`compiled`]). Policies and bindings together form an immutable
//! [`PolicySnapshot`] with an index, so that a request is matched only with policies that can select it.
//! [`PolicySource`] distinguishes policies of the API from those of manifest files, which also apply to policies and
//! bindings themselves. [`ValidatingPolicies`] and [`MutatingPolicies`] are the two plugins.

mod binding;
mod compiled;
mod converted_objects;
mod evaluate;
mod go_values;
mod mutating;
mod params;
mod patch;
mod snapshot;
mod type_check;
mod validating;

pub use binding::{PolicyBinding, ValidationAction};
pub use compiled::{CompiledPolicy, MutatingPolicy, ValidatingPolicy};
pub use mutating::MutatingPolicies;
pub use snapshot::{AnyPolicy, BoundPolicy, PolicySnapshot, PolicySource};
pub use type_check::{BuiltInKinds, TypeCheckKinds, TypeWarning, type_check, type_warnings};
pub use validating::ValidatingPolicies;

#[cfg(test)]
mod tests;
