//! The policies and webhooks that decide one request.
//!
//! Policies and webhooks can change while a request runs. A request pins all of them when it enters admission
//! and uses that snapshot to its end: for reinvocation, for validation after a slow webhook, and for the
//! retry after a conflict.

use std::sync::{Arc, OnceLock};

use crate::policy::{MutatingPolicy, PolicySnapshot, ValidatingPolicy};
use crate::webhook::Webhook;

/// Clones share the snapshot of one request.
#[derive(Clone, Debug, Default)]
pub struct AdmissionSnapshot(Arc<SnapshotCells>);

#[derive(Debug, Default)]
struct SnapshotCells {
    mutating_policies: OnceLock<Arc<PolicySnapshot<MutatingPolicy>>>,
    mutating_webhooks: OnceLock<Arc<[Arc<Webhook>]>>,
    validating_policies: OnceLock<Arc<PolicySnapshot<ValidatingPolicy>>>,
    validating_webhooks: OnceLock<Arc<[Arc<Webhook>]>>,
}

impl AdmissionSnapshot {
    pub(crate) fn mutating_policies(
        &self,
        now: impl FnOnce() -> Arc<PolicySnapshot<MutatingPolicy>>,
    ) -> Arc<PolicySnapshot<MutatingPolicy>> {
        Arc::clone(self.0.mutating_policies.get_or_init(now))
    }

    pub(crate) fn mutating_webhooks(&self, now: impl FnOnce() -> Arc<[Arc<Webhook>]>) -> Arc<[Arc<Webhook>]> {
        Arc::clone(self.0.mutating_webhooks.get_or_init(now))
    }

    pub(crate) fn validating_policies(
        &self,
        now: impl FnOnce() -> Arc<PolicySnapshot<ValidatingPolicy>>,
    ) -> Arc<PolicySnapshot<ValidatingPolicy>> {
        Arc::clone(self.0.validating_policies.get_or_init(now))
    }

    pub(crate) fn validating_webhooks(
        &self,
        now: impl FnOnce() -> Arc<[Arc<Webhook>]>,
    ) -> Arc<[Arc<Webhook>]> {
        Arc::clone(self.0.validating_webhooks.get_or_init(now))
    }
}
