//! Defaults: what an object that leaves a field out means.
//!
//! One function per kind, which the row of the kind names ([`crate::table`]). A function changes the decoded object in place and is idempotent.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod cluster;
pub mod core;
pub(crate) mod fields;
pub(crate) mod image;
pub mod networking;
pub mod pod;
pub(crate) mod quantities;

use value::Value;

/// Fills in the defaults of one kind.
pub type Defaults = fn(&mut Value);
