//! The garbage collector: deletes objects whose owners are gone.
//!
//! [`graph`] records owner references from one watch over the whole store; [`decision`] decides about one object from that graph and
//! the stored objects. A deletion reaches dependents in one of three ways:
//!
//! - background: the owner is deleted at once; its dependents find it gone and are deleted too;
//! - foreground: the owner stays with the finalizer `foregroundDeletion` until no dependent blocks it any more;
//! - orphan: the owner stays with the finalizer `orphan` until no dependent references it any more.
//!
//! The owner of a reference exists only if the object of that kind and name, in the dependent's namespace or cluster-scoped, has
//! exactly that UID. Watches deliver changes in order and reads are never older than the watch, so an owner that is not found is gone
//! for good: no reference is held back until its owner appears.

mod decision;
mod graph;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Status, meta};
use runtime::LogLimit;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, warn};
use value::{Str, Value};

use crate::api::{Api, ObjectChange, PatchBody, WatchSource, unless_gone};
use crate::drive::{self, Controller, ReconcileOutcome};

use decision::{Deletion, DependentAction, GarbageDecision};
use graph::OwnerGraph;

pub(crate) const NAME: &str = "generic-garbage-collector";

/// Retry interval for an object with an owner of a kind that is not served.
const UNKNOWN_KIND: Duration = Duration::from_mins(5);
/// Maximum concurrent writes to the dependents of one owner.
const WRITES_AT_ONCE: usize = 16;

struct GarbageCollector<A> {
    api: Arc<A>,
    graph: Mutex<OwnerGraph>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let collector = GarbageCollector { api: Arc::clone(&api), graph: Mutex::default() };
    drive::run(collector, api, vec![WatchSource::Owners], stop).await;
}

impl<A: Api> Controller for GarbageCollector<A> {
    /// The UID of an object.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 20;

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        let affected = lock(&self.graph).observe(change);
        affected.into_iter().map(|uid| (uid, Duration::ZERO)).collect()
    }

    fn restart(&self, _: &WatchSource) {
        lock(&self.graph).restart();
    }

    async fn reconcile(&self, uid: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let decision = decision::decide(&self.graph, &*self.api, &uid).await?;
        match decision {
            GarbageDecision::Nothing => Ok(ReconcileOutcome::Done),
            GarbageDecision::Attempt(dependents) => Ok(ReconcileOutcome::Keys(dependents)),
            GarbageDecision::Impossible { dependent, owner } => {
                static LOG: LogLimit = LogLimit::with_burst(20);
                if let Some(unlogged) = LOG.due() {
                    warn!(
                        %dependent,
                        ?owner,
                        unlogged,
                        "cannot resolve an owner reference: a cluster-scoped object must not reference a namespaced owner; \
                         the object is left alone until its metadata.ownerReferences are corrected"
                    );
                }
                Ok(ReconcileOutcome::Done)
            }
            GarbageDecision::UnknownKind { dependent, kind } => {
                debug!(%dependent, kind, "cannot resolve an owner reference: its kind is not served; retrying later");
                Ok(ReconcileOutcome::After(UNKNOWN_KIND))
            }
            GarbageDecision::Do(actions) => {
                self.perform(actions).await?;
                Ok(ReconcileOutcome::Done)
            }
        }
    }
}

impl<A: Api> GarbageCollector<A> {
    /// Performs the actions in order; consecutive patches of owner references run concurrently.
    async fn perform(&self, actions: Vec<DependentAction>) -> Result<(), Status> {
        let mut together: JoinSet<Result<(), Status>> = JoinSet::new();
        for action in actions {
            if matches!(action, DependentAction::Patch { .. }) {
                if together.len() >= WRITES_AT_ONCE {
                    joined(together.join_next().await)?;
                }
                together.spawn(perform(Arc::clone(&self.api), action));
                continue;
            }
            while let Some(written) = together.join_next().await {
                joined(Some(written))?;
            }
            perform(Arc::clone(&self.api), action).await?;
        }
        while let Some(written) = together.join_next().await {
            joined(Some(written))?;
        }
        Ok(())
    }
}

/// Locks the graph. The guard must not be held while objects are read or parsed: every other reconciliation would wait for it.
fn lock(graph: &Mutex<OwnerGraph>) -> MutexGuard<'_, OwnerGraph> {
    graph.lock().unwrap_or_else(PoisonError::into_inner)
}

fn joined(written: Option<Result<Result<(), Status>, tokio::task::JoinError>>) -> Result<(), Status> {
    written.map_or(Ok(()), |written| written.unwrap_or_else(|e| Err(Status::internal(e))))
}

async fn perform<A: Api>(api: Arc<A>, action: DependentAction) -> Result<(), Status> {
    match action {
        DependentAction::Patch { object_ref, patch } | DependentAction::Release { object_ref, patch } => {
            unless_gone(api.patch(&object_ref, "", &PatchBody::Merge(patch)).await)
        }
        DependentAction::Delete(deletion) => delete(&*api, &deletion).await,
    }
}

/// Deletes an object in the state in which it was decided. If it has changed since, but not in its owner references, the decision still
/// holds: otherwise an object that changes all the time would never be deleted.
async fn delete<A: Api>(api: &A, deletion: &Deletion) -> Result<(), Status> {
    let outcome = api.delete(&deletion.object_ref, &deletion.options(true)).await;
    let Err(conflict) = outcome else { return Ok(()) };
    if conflict.code() != 409 {
        return unless_gone(Err::<(), _>(conflict));
    }
    let Some(latest) = api.metadata(&deletion.object_ref)? else { return Ok(()) };
    let same = meta::uid(&latest) == deletion.uid && owners(&latest) == deletion.owners;
    if !same {
        return Err(conflict);
    }
    unless_gone(api.delete(&deletion.object_ref, &deletion.options(false)).await)
}

/// The unparsed elements of `metadata.ownerReferences`.
fn owners(object: &Value) -> &[Value] {
    object.list_at(&["metadata", "ownerReferences"])
}

#[cfg(test)]
mod tests;
