//! What is in force for one request.
//!
//! Policies and webhooks are replaced while requests run. A request takes all of them when it comes to admission, and is decided by
//! what it took to its end: its second mutating pass, its validation after a slow webhook and the retry after a conflict all meet
//! the set that it began with.

use std::sync::{Arc, OnceLock};

use crate::policy::{MutatingPolicy, Snapshot, ValidatingPolicy};
use crate::webhook::Hook;

/// The policies and webhooks that one request is decided by. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub struct InForce(Arc<Taken>);

#[derive(Debug, Default)]
struct Taken {
    mutating_policies: OnceLock<Arc<Snapshot<MutatingPolicy>>>,
    mutating_webhooks: OnceLock<Arc<[Arc<Hook>]>>,
    validating_policies: OnceLock<Arc<Snapshot<ValidatingPolicy>>>,
    validating_webhooks: OnceLock<Arc<[Arc<Hook>]>>,
}

impl InForce {
    pub(crate) fn mutating_policies(
        &self,
        now: impl FnOnce() -> Arc<Snapshot<MutatingPolicy>>,
    ) -> Arc<Snapshot<MutatingPolicy>> {
        Arc::clone(self.0.mutating_policies.get_or_init(now))
    }

    pub(crate) fn mutating_webhooks(&self, now: impl FnOnce() -> Arc<[Arc<Hook>]>) -> Arc<[Arc<Hook>]> {
        Arc::clone(self.0.mutating_webhooks.get_or_init(now))
    }

    pub(crate) fn validating_policies(
        &self,
        now: impl FnOnce() -> Arc<Snapshot<ValidatingPolicy>>,
    ) -> Arc<Snapshot<ValidatingPolicy>> {
        Arc::clone(self.0.validating_policies.get_or_init(now))
    }

    pub(crate) fn validating_webhooks(&self, now: impl FnOnce() -> Arc<[Arc<Hook>]>) -> Arc<[Arc<Hook>]> {
        Arc::clone(self.0.validating_webhooks.get_or_init(now))
    }
}
