//! Admission policies: `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy` with their bindings.
//!
//! A policy is compiled once, when it changes ([`definition`]); policies and bindings together are an immutable [`Snapshot`],
//! swapped as one, with an index by which a request meets only the policies that can match it. The engine does not know where they
//! came from: [`Source`] says it, because those from manifest files also guard policies themselves. [`Validating`] and
//! [`Mutating`] are the two stages of the chain.

mod binding;
mod definition;
mod judge;
mod mutating;
mod natives;
mod params;
mod patch;
mod shown;
mod snapshot;
mod type_check;
mod validating;

pub use binding::{Action, Binding};
pub use definition::{MutatingPolicy, Policy, ValidatingPolicy};
pub use mutating::Mutating;
pub use snapshot::{Hook, Policies, Snapshot, Source};
pub use type_check::{BuiltInKinds, Kinds, TypeWarning, type_check, type_warnings};
pub use validating::Validating;

#[cfg(test)]
mod tests;
