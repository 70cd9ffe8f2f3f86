//! Server-side apply: who owns which field of an object, and what a configuration makes of it.
//!
//! A write goes through a [`FieldManagement`]. [`FieldManagement::apply`] merges a configuration, removes what its manager applied last time and nobody
//! else owns, and refuses to change what others own unless forced; [`FieldManagement::track`] notes who changed what in any other write. Both
//! leave the result in `metadata.managedFields` ([`Managers`]).
//!
//! Underneath, each in its file: [`FieldSet`], a set of field paths with its wire form ([`fields_v1`]); [`check()`], whether a
//! configuration fits the schema; [`fields`], which fields a value has; [`compare()`] and [`merge()`]. All of them walk one tree
//! along one [`Schema`](crate::Schema), built-in or custom, so that mutation policies that apply configurations use them,
//! too.

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

pub use check::{Misfits, atomics, check};
pub use compare::{Comparison, compare};
pub use configure::Applied;
pub use conflict::{Conflict, Refusal};
pub use element::{Element, FieldPath};
pub use extract::fields;
pub use managed::{Managed, Manager, Managers, Operation, list as managed_fields, same_but_for_times};
pub use merge::merge;
pub use reset::Reset;
pub use scale::{Replicas, SCALE_VERSION, to_scale, to_workload};
pub use set::{Entry, FieldSet};
pub use track::{FieldManagement, Unconverted, Versions, mark_reset};
