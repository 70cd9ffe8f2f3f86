//! The writes of one namespace that admission has passed and that are not stored yet, and the time limits that let other servers know
//! when such writes have ended.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admission::{AdmissionFuture, WriteFence, WriteGuard};
use api::Status;
use tokio::sync::Notify;
use tokio::time::Instant;
use value::Str;

use crate::loopback::Loopback;
use crate::write::TimeMark;

/// A write is sent to a shared store within this time after its charge, or not at all.
const USE_WITHIN: Duration = Duration::from_secs(2);
/// The time that a shared store has for a charged write. A member of etcd that answers at all answers within about 7 seconds; the server
/// gives up earlier, because usage cannot be released before.
const COMMIT_WITHIN: Duration = Duration::from_secs(3);
/// For clocks of different speed.
const MARGIN: Duration = Duration::from_secs(1);
/// How long the usage of a quota must be unchanged before it is released on a shared store: every write that it was charged for is stored
/// by then, or is not stored at all.
pub(super) const SETTLE: Duration = Duration::from_secs(6);

const _: () = assert!(
    USE_WITHIN.as_millis() + COMMIT_WITHIN.as_millis() + MARGIN.as_millis() <= SETTLE.as_millis(),
    "usage is released while a charged write may still be stored"
);

/// How long a recount waits for the writes of this server.
const DRAIN: Duration = Duration::from_secs(1);

/// Serializes the quota updates of one namespace.
#[derive(Default)]
pub(super) struct Namespace {
    /// The holder may read and write the quotas of the namespace.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// The number of [`InFlightWrite`]s that exist.
    under_way: AtomicUsize,
    idle: Notify,
    /// The last seen revision of each quota, by name.
    seen: Mutex<HashMap<Str, SeenQuota>>,
}

struct SeenQuota {
    resource_version: String,
    /// When this server saw that revision first. `None`: no write that it was charged for is in flight.
    since: Option<Instant>,
}

impl Namespace {
    /// Waits at most [`DRAIN`] until this server has no write in flight, and returns whether that is so. The caller holds `turn`, so no
    /// new ones are charged.
    pub(super) async fn drain(&self) -> bool {
        let drained = async {
            loop {
                let idle = self.idle.notified();
                if self.under_way.load(Ordering::SeqCst) == 0 {
                    return;
                }
                idle.await;
            }
        };
        tokio::time::timeout(DRAIN, drained).await.is_ok()
    }

    /// How long this revision of a quota must stay unchanged until no server has a write in flight that it was charged for.
    pub(super) fn unsettled_for(&self, quota: &str, resource_version: &str) -> Duration {
        let mut seen = self.seen();
        match seen.get(quota).filter(|seen| seen.resource_version == resource_version) {
            Some(SeenQuota { since: Some(since), .. }) => SETTLE.saturating_sub(since.elapsed()),
            Some(SeenQuota { since: None, .. }) => Duration::ZERO,
            None => {
                let (resource_version, since) = (resource_version.to_owned(), Some(Instant::now()));
                seen.insert(quota.into(), SeenQuota { resource_version, since });
                SETTLE
            }
        }
    }

    /// Records that the usage in this revision of a quota is that of the stored objects.
    pub(super) fn set_settled(&self, quota: &str, resource_version: &str) {
        let resource_version = resource_version.to_owned();
        self.seen().insert(quota.into(), SeenQuota { resource_version, since: None });
    }

    /// Forgets a deleted quota.
    pub(super) fn forget(&self, quota: &str) {
        self.seen().remove(quota);
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Str, SeenQuota>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a write need not be charged any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChargeState {
    Charged,
    /// No quota limited the write.
    Unlimited,
}

/// A write of this server from its charge until it has ended.
pub(super) struct InFlightWrite {
    namespace: Arc<Namespace>,
    name: Str,
    state: ChargeState,
    /// Refuses the write when usage that it may be charged for has been released.
    fence: Option<WriteFence>,
    /// Before the charge was sent, or when the quotas were known not to limit the write.
    since: TimeMark,
    loopback: Loopback,
}

impl InFlightWrite {
    pub(super) fn new(
        (name, namespace): (Str, Arc<Namespace>),
        state: ChargeState,
        since: TimeMark,
        loopback: Loopback,
    ) -> Self {
        namespace.under_way.fetch_add(1, Ordering::SeqCst);
        InFlightWrite { namespace, name, state, fence: None, since, loopback }
    }

    #[must_use]
    pub(super) fn fenced(mut self, fence: Option<WriteFence>) -> Self {
        self.fence = fence;
        self
    }

    async fn check_age(&self) -> Result<(), Status> {
        if self.since.elapsed() <= USE_WITHIN {
            return Ok(());
        }
        let server = self.loopback.server("the server is stopping")?;
        if !server.storage.store.is_shared() {
            return Ok(());
        }
        // A charge may have been released; a quota may have been created.
        let is_limited = match self.state {
            ChargeState::Charged => true,
            ChargeState::Unlimited => server.admission.quotas.has_quota(&self.name).await?,
        };
        if is_limited {
            return Err(Status::timeout("the quota was checked too long ago; try again", 0));
        }
        Ok(())
    }
}

impl fmt::Debug for InFlightWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightWrite")
            .field("namespace", &self.name)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl WriteGuard for InFlightWrite {
    fn check(&self) -> AdmissionFuture<'_, Result<(), Status>> {
        Box::pin(self.check_age())
    }

    fn time_limit(&self) -> Option<Duration> {
        let server = self.loopback.server("").ok()?;
        let is_limited = self.state == ChargeState::Charged && server.storage.store.is_shared();
        is_limited.then_some(COMMIT_WITHIN)
    }

    fn fence(&self) -> Option<WriteFence> {
        self.fence.clone()
    }
}

impl Drop for InFlightWrite {
    fn drop(&mut self) {
        if self.namespace.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.namespace.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
