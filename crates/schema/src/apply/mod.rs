//! Server-side apply: tracks which manager owns which field of an object and merges applied configurations.
//!
//! Writes go through a [`FieldManagement`]. [`FieldManagement::apply`] merges a configuration, removes fields that its manager applied
//! last time and no other manager owns, and refuses to change fields of other managers unless forced. [`FieldManagement::track`]
//! records the ownership changes of any other write. Both store the result in `metadata.managedFields` ([`Managers`]).
//!
//! The building blocks have a file each: [`FieldSet`], a set of field paths, with its encoding ([`fields_v1`]); [`check()`] validates a
//! configuration against the schema; [`fields`] lists the fields of a value; [`compare()`] and [`merge()`]. All of them walk values
//! along one [`Schema`](crate::Schema), built-in or custom, so mutating admission policies that apply configurations use them as well.

mod check;
mod compare;
mod configure;
mod conflict;
mod element;
mod extract;
pub mod fields_v1;
mod managed;
mod merge;
mod reset;
mod scale;
mod set;
mod shape;
#[cfg(test)]
mod tests;
mod track;

pub use check::{ConfigErrors, atomics, check};
pub use compare::{Comparison, compare};
pub use configure::ApplyResult;
pub use conflict::{ApplyError, Conflict};
pub use element::{Element, ManagedFieldPath};
pub use extract::fields;
pub use managed::{
    ManagedFieldsEntry, ManagedFieldsOperation, Manager, Managers, list as managed_fields, same_but_for_times,
};
pub use merge::merge;
pub use reset::Reset;
pub use scale::{Replicas, SCALE_VERSION, to_scale, to_workload};
pub use set::{FieldSet, FieldSetEntry};
pub use track::{FieldManagement, ServedVersions, Unconverted, mark_reset};
