//! The namespace controller: empties a namespace that is being deleted, then finalizes it.
//!
//! Pods are deleted first; while any is left, no other object is touched, so that the objects they use outlive them. Objects with
//! finalizers are waited for. Objects stored by aggregated API servers are deleted as well; a server whose discovery fails blocks the
//! deletion, because its objects would otherwise reappear in the next namespace of that name. The conditions of the namespace report
//! the remaining content with Kubernetes' wording. When the namespace is empty, the finalizer `kubernetes` is removed through the
//! `finalize` subresource; with its last finalizer the namespace is gone.

mod conditions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, meta};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::debug;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, StoredBy, TypedObjectRef, WatchSource, unless_gone};
use crate::drive::{self, Controller, ReconcileOutcome};

use conditions::Findings;
use value::Backoff;

pub(crate) const NAME: &str = "namespace-controller";

/// This controller's finalizer in `spec.finalizers`.
const FINALIZER: &str = api::finalizers::KUBERNETES;
/// Delay before content is deleted: a request admitted just before the deletion is stored within this time.
const SETTLE: Duration = Duration::from_millis(100);
/// Minimum retry delay while objects with finalizers or a grace period remain.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
/// Maximum retry delay; the more objects remain, the longer it is.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// Number of kinds emptied concurrently.
const KINDS_AT_ONCE: usize = 8;

struct Namespaces<A> {
    api: Arc<A>,
    namespaces: Arc<ResourceKind>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let Some(namespaces) = api.kind("v1", "Namespace") else { return };
    let sources = vec![WatchSource::Kind(Arc::clone(&namespaces))];
    drive::run(Namespaces { api: Arc::clone(&api), namespaces }, api, sources, stop).await;
}

impl<A: Api> Controller for Namespaces<A> {
    /// The name of a namespace.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 10;
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_mins(1));

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        if change.deleted || !meta::is_deleting(&change.object) {
            return Vec::new();
        }
        vec![(change.object_ref.name.clone(), SETTLE)]
    }

    async fn reconcile(&self, name: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let object_ref = self.namespaces.object_ref("", &name);
        let Some(namespace) = self.api.get(&object_ref)? else { return Ok(ReconcileOutcome::Done) };
        match step(&namespace) {
            NamespaceStep::Nothing => return Ok(ReconcileOutcome::Done),
            NamespaceStep::Mark(marked) => {
                // The change of the phase queues the key again.
                unless_gone(self.api.update(&object_ref, "status", &marked).await)?;
                return Ok(ReconcileOutcome::Done);
            }
            NamespaceStep::Empty => {}
        }
        let findings = self.empty(&name, &namespace).await?;
        self.report(&object_ref, &namespace, &findings).await;
        if let Some(error) = findings.errors.first().cloned().or_else(|| findings.undiscovered()) {
            return Err(Status::internal(error));
        }
        if findings.left > 0 {
            return Ok(ReconcileOutcome::After(wait_for(findings.left)));
        }
        let Some(latest) = self.api.get(&object_ref)? else { return Ok(ReconcileOutcome::Done) };
        if meta::uid(&latest) == meta::uid(&namespace) {
            unless_gone(self.api.update(&object_ref, "finalize", &finalized(latest)).await)?;
        }
        Ok(ReconcileOutcome::Done)
    }
}

impl<A: Api> Namespaces<A> {
    /// Deletes the content that can be deleted now and reports what remains.
    async fn empty(&self, name: &str, namespace: &Value) -> Result<Findings, Status> {
        let aggregated = self.api.aggregated_kinds();
        let mut findings = Findings::undiscovered_in(aggregated.unknown);
        let deleted_at =
            Timestamp::parse(meta::text(namespace, "deletionTimestamp")).map_or(0, |t| t.seconds);
        let is_pods = |kind: &ResourceKind| kind.group.is_empty() && kind.plural == "pods";
        let kinds: Vec<Arc<ResourceKind>> =
            self.api.kinds().into_iter().filter(|kind| kind.namespaced && kind.deletable).collect();
        if let Some(pods) = kinds.iter().find(|kind| is_pods(kind)) {
            let estimate = estimate(&self.api.list(pods, name)?, deleted_at, self.api.now());
            findings.add(pods, clear(Arc::clone(&self.api), Arc::clone(pods), name.into(), estimate).await);
            if findings.left > 0 {
                findings.forget_totals();
                return Ok(findings);
            }
        }
        let rest = kinds.into_iter().filter(|kind| !is_pods(kind) && self.api.count(kind, name) > 0);
        let mut rest = rest.chain(aggregated.kinds);
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < KINDS_AT_ONCE
                && let Some(kind) = rest.next()
            {
                let (api, name) = (Arc::clone(&self.api), Str::from(name));
                under_way.spawn(async move { (Arc::clone(&kind), clear(api, kind, name, 0).await) });
            }
            match under_way.join_next().await {
                None => return Ok(findings),
                Some(Ok((kind, leftover))) => findings.add(&kind, leftover),
                Some(Err(failed)) => findings.errors.push(failed.to_string()),
            }
        }
    }

    /// Writes the conditions. On a conflict the next reconciliation writes them.
    async fn report(&self, object_ref: &TypedObjectRef, namespace: &Value, findings: &Findings) {
        let stored = namespace.list_at(&["status", "conditions"]);
        let Some(conditions) = conditions::updated(stored, findings, self.api.now()) else { return };
        let mut namespace = namespace.clone();
        namespace.set_at(&["status", "conditions"], conditions);
        if let Err(error) = self.api.update(object_ref, "status", &namespace).await {
            debug!(namespace = %object_ref.name, %error, "cannot write the conditions of a terminating namespace; the next reconciliation retries");
        }
    }
}

/// The next step for a namespace in its stored state.
#[derive(Debug, PartialEq)]
enum NamespaceStep {
    /// The namespace is not being deleted, or is already finalized.
    Nothing,
    /// Set the phase to `Terminating`, so that no object is created in it any more.
    Mark(Value),
    /// Delete the content of the namespace.
    Empty,
}

fn step(namespace: &Value) -> NamespaceStep {
    if !meta::is_deleting(namespace) {
        return NamespaceStep::Nothing;
    }
    if namespace.str_at(&["status", "phase"]) != Some("Terminating") {
        let mut marked = namespace.clone();
        marked.set_at(&["status", "phase"], "Terminating");
        return NamespaceStep::Mark(marked);
    }
    if namespace.list_at(&["spec", "finalizers"]).is_empty() {
        NamespaceStep::Nothing
    } else {
        NamespaceStep::Empty
    }
}

/// The namespace without this controller's finalizer.
fn finalized(mut namespace: Value) -> Value {
    let mut others: Vec<Value> = namespace
        .list_at(&["spec", "finalizers"])
        .iter()
        .filter(|finalizer| finalizer.as_str() != Some(FINALIZER))
        .cloned()
        .collect();
    others.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    others.dedup();
    namespace.set_at(&["spec", "finalizers"], others);
    namespace
}

/// Remaining objects of one kind.
#[derive(Debug, Default, PartialEq)]
struct Leftover {
    count: usize,
    finalizers: BTreeMap<Str, usize>,
    error: Option<String>,
}

/// Deletes all objects of a kind in a namespace and examines what remains.
async fn clear<A: Api>(api: Arc<A>, kind: Arc<ResourceKind>, namespace: Str, estimate: i64) -> Leftover {
    if kind.stored_by == StoredBy::ThisServer && api.count(&kind, &namespace) == 0 {
        return Leftover::default();
    }
    let left = match delete_all(&*api, &kind, &namespace).await {
        Ok(()) => list(&*api, &kind, &namespace).await,
        Err(status) => Err(status),
    };
    match left {
        Ok(items) => leftover(&items, estimate, &kind, &namespace),
        Err(status) => Leftover { error: Some(status.to_string()), ..Leftover::default() },
    }
}

async fn list<A: Api>(api: &A, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status> {
    if kind.stored_by == StoredBy::ThisServer {
        return api.list(kind, namespace);
    }
    match api.list_aggregated(kind, namespace).await {
        // Resources that cannot be listed are not waited for.
        Err(status) if matches!(status.code(), 404 | 405) => Ok(Vec::new()),
        listed => listed,
    }
}

async fn delete_all<A: Api>(api: &A, kind: &Arc<ResourceKind>, namespace: &str) -> Result<(), Status> {
    // All objects in the namespace are deleted, so the garbage collector need not follow owner references.
    let options = Value::map([("propagationPolicy", "Background")]);
    if kind.deletes_collections {
        return unless_gone(api.delete_collection(kind, namespace, &options).await);
    }
    for item in list(api, kind, namespace).await? {
        unless_gone(api.delete(&kind.object_ref(namespace, meta::name(&item)), &options).await)?;
    }
    Ok(())
}

/// Examines the objects of a kind that remain after deletion. Without a grace period or a finalizer there should be none.
fn leftover(items: &[Value], estimate: i64, kind: &ResourceKind, namespace: &str) -> Leftover {
    let mut finalizers: BTreeMap<Str, usize> = BTreeMap::new();
    for finalizer in items.iter().flat_map(meta::finalizers) {
        *finalizers.entry(finalizer.into()).or_default() += 1;
    }
    let unexplained = !items.is_empty() && estimate == 0 && finalizers.is_empty();
    let error = unexplained
        .then(|| format!("unexpected items still remain in namespace: {namespace} for gvr: {kind}"));
    Leftover { count: items.len(), finalizers, error }
}

/// Seconds that pods may still take to stop: the longest grace period, or 0 once it has passed.
fn estimate(pods: &[Value], deleted_at: i64, now: i64) -> i64 {
    let running = pods.iter().filter(|pod| {
        !matches!(pod.str_at(&["status", "phase"]).unwrap_or_default(), "Succeeded" | "Failed")
    });
    let longest =
        running.filter_map(|pod| pod.int_at(&["spec", "terminationGracePeriodSeconds"])).max().unwrap_or(0);
    if now.saturating_sub(deleted_at) >= longest { 0 } else { longest.max(0) }
}

fn wait_for(left: usize) -> Duration {
    let more = Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX));
    SHORTEST_WAIT.saturating_add(more).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests;
