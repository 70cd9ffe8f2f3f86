//! The parts of admission that need the server: informers, webhook transport, quota and namespace writes, metrics.

pub(crate) mod configuration;
pub(crate) mod informers;
pub(crate) mod inventory;
pub(crate) mod meter;
pub(crate) mod namespace_auto_provision;
pub(crate) mod param_access;
pub(crate) mod pod_security;
pub(crate) mod quota;
pub(crate) mod registered_webhooks;
pub(crate) mod status;
pub(crate) mod webhooks;
