//! Defaults: values for fields that an object omits.
//!
//! Each kind has one function, which the kind's row names ([`crate::table`]). It changes the decoded object in place and is idempotent.

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

pub type Defaults = fn(&mut Value);
