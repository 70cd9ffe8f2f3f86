//! The Kubernetes object model: kinds, metadata, selectors, quantities, `Status` errors.

pub mod admin_access;
pub mod attestation;
pub mod field;
pub mod gvk;
pub mod meta;
pub mod names;
pub mod order;
pub mod pod_resources;
pub mod quantity;
pub mod selector;
mod status;
pub mod time;
pub mod typed;
pub mod validation;

pub use field::{FieldError, FieldErrors};
pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind};
pub use status::{Cause, Details, Reason, Status};
