//! The garbage collector: objects whose owners are gone go too.
//!
//! [`graph`] remembers who names whom as an owner, from one watch over the whole store; [`decision`] says what is to be done about
//! one object, by that graph and by what is stored now. The three ways a deletion reaches dependents:
//!
//! - background: the owner goes at once; its dependents find it gone and follow;
//! - foreground: the owner stays with the finalizer `foregroundDeletion` until no dependent blocks it any more;
//! - orphan: the owner stays with the finalizer `orphan` until its dependents no longer name it.
//!
//! An owner that a reference names counts as there only if the object of that kind and name, in the dependent's own namespace or in
//! none, has that very uid. Since a watch is told of changes in their order and reads are never older than it, an owner that is not
//! found is gone for good: no reference is held back until its owner shows up.

mod decision;
mod graph;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Status, meta};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, warn};
use value::{Str, Value};

use crate::api::{Api, Change, Patch, What, unless_gone};
use crate::drive::{self, Controller, Next};

use decision::{Action, Deletion, Verdict};
use graph::Graph;

pub(crate) const NAME: &str = "generic-garbage-collector";

/// Set on an owner while its dependents are deleted before it.
const FOREGROUND: &str = "foregroundDeletion";
/// Set on an owner while its dependents are made to forget it.
const ORPHAN: &str = "orphan";
/// When to look again at an object with an owner of a kind that is not served.
const UNKNOWN_KIND: Duration = Duration::from_mins(5);
/// How many dependents of one owner are written at once.
const WRITES_AT_ONCE: usize = 16;

struct Collector<A> {
    api: Arc<A>,
    graph: Mutex<Graph>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let collector = Collector { api: Arc::clone(&api), graph: Mutex::default() };
    drive::run(collector, api, vec![What::Owners], stop).await;
}

impl<A: Api> Controller for Collector<A> {
    /// The uid of an object.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 20;

    fn observe(&self, change: &Change) -> Vec<(Str, Duration)> {
        let concerned = lock(&self.graph).observe(change);
        concerned.into_iter().map(|uid| (uid, Duration::ZERO)).collect()
    }

    fn restart(&self, _: &What) {
        lock(&self.graph).restart();
    }

    async fn reconcile(&self, uid: Str) -> Result<Next<Str>, Status> {
        let verdict = decision::decide(&self.graph, &*self.api, &uid).await?;
        match verdict {
            Verdict::Nothing => Ok(Next::Done),
            Verdict::Attempt(dependents) => Ok(Next::Keys(dependents)),
            Verdict::Impossible { dependent, owner } => {
                warn!(%dependent, ?owner, "an object outside of namespaces names an owner inside of one");
                Ok(Next::Done)
            }
            Verdict::UnknownKind { dependent, kind } => {
                debug!(%dependent, kind, "an owner is of a kind that is not served");
                Ok(Next::After(UNKNOWN_KIND))
            }
            Verdict::Do(actions) => {
                self.perform(actions).await?;
                Ok(Next::Done)
            }
        }
    }
}

impl<A: Api> Collector<A> {
    /// Does these one after the other; changes of owner references that follow each other are made together.
    async fn perform(&self, actions: Vec<Action>) -> Result<(), Status> {
        let mut together: JoinSet<Result<(), Status>> = JoinSet::new();
        for action in actions {
            if matches!(action, Action::Patch { .. }) {
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
fn lock(graph: &Mutex<Graph>) -> MutexGuard<'_, Graph> {
    graph.lock().unwrap_or_else(PoisonError::into_inner)
}

fn joined(written: Option<Result<Result<(), Status>, tokio::task::JoinError>>) -> Result<(), Status> {
    written.map_or(Ok(()), |written| written.unwrap_or_else(|e| Err(Status::internal(e))))
}

async fn perform<A: Api>(api: Arc<A>, action: Action) -> Result<(), Status> {
    match action {
        Action::Patch { place, patch } | Action::Release { place, patch } => {
            unless_gone(api.patch(&place, "", &Patch::Merge(patch)).await)
        }
        Action::Delete(deletion) => delete(&*api, &deletion).await,
    }
}

/// Deletes an object as it was judged. If it has changed since, but not in its owners, the judgement holds: otherwise an object that
/// changes all the time would never go.
async fn delete<A: Api>(api: &A, deletion: &Deletion) -> Result<(), Status> {
    let outcome = api.delete(&deletion.place, &deletion.options(true)).await;
    let Err(conflict) = outcome else { return Ok(()) };
    if conflict.code() != 409 {
        return unless_gone(Err::<(), _>(conflict));
    }
    let Some(latest) = api.metadata(&deletion.place)? else { return Ok(()) };
    let same = meta::uid(&latest) == deletion.uid && owners(&latest) == deletion.owners;
    if !same {
        return Err(conflict);
    }
    unless_gone(api.delete(&deletion.place, &deletion.options(false)).await)
}

/// `metadata.ownerReferences` as it is written.
fn owners(object: &Value) -> &[Value] {
    object.list_at(&["metadata", "ownerReferences"])
}

#[cfg(test)]
mod tests;
