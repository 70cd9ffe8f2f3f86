//! Devices of `resource.k8s.io` over the wire: who may ask for admin access and who sees it, who may write which part of a claim's status,
//! what pods get, and what changes when the feature is off.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod admin_access;
mod gate;
mod guard;
mod label_removed;
mod pods;
mod quota;
mod readiness;
mod setting;
mod status;
mod taints;
