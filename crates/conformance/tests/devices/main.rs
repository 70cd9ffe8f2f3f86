//! Dynamic resource allocation through the API: admin access, permissions for the status of claims, allocation for pods, and the
//! feature gate.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod admin_access;
mod claims;
mod gate;
mod guard;
mod label_removed;
mod pods;
mod quota;
mod readiness;
mod slow_webhooks;
mod status;
mod taints;
