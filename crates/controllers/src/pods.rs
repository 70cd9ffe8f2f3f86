//! The pod garbage collector: deletes pods that no kubelet will ever stop, because their node is gone or out of service, or because
//! they are deleted before they have a node.
//!
//! A missing node gets time to come back before its pods are marked failed and deleted.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{
    Api, ClusterReader, ObjectChange, PatchBody, ResourceKind, TypedObjectRef, WatchSource, unless_gone,
};
use crate::drive::{self, Controller, ReconcileOutcome};

pub(crate) const NAME: &str = "pod-garbage-collector";

/// Delay before a pod in deletion is checked, so that a regular deletion, which takes more than one write, can complete first.
const DELETION_CHECK_DELAY: Duration = Duration::from_secs(20);

struct PodGarbageCollector<A> {
    api: Arc<A>,
    pods: Arc<ResourceKind>,
    nodes: Arc<ResourceKind>,
    quarantine: Duration,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, quarantine: Duration, stop: watch::Receiver<bool>) {
    let (Some(pods), Some(nodes)) = (api.kind("v1", "Pod"), api.kind("v1", "Node")) else { return };
    let sources = vec![WatchSource::Kind(Arc::clone(&pods)), WatchSource::Kind(Arc::clone(&nodes))];
    drive::run(PodGarbageCollector { api: Arc::clone(&api), pods, nodes, quarantine }, api, sources, stop)
        .await;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PodGcKey {
    /// One pod that is being deleted.
    Pod { namespace: Str, name: Str },
    /// Checks all pods of a node. The quarantine has passed, so a node still missing is gone.
    Node(Str),
}

impl<A: Api> Controller for PodGarbageCollector<A> {
    type Key = PodGcKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn observe(&self, change: &ObjectChange) -> Vec<(PodGcKey, Duration)> {
        key_to_check(&*self.api, &self.nodes, change, self.quarantine).into_iter().collect()
    }

    async fn reconcile(&self, key: PodGcKey) -> Result<ReconcileOutcome<PodGcKey>, Status> {
        let (pods, node, quarantined) = match &key {
            PodGcKey::Pod { namespace, name } => {
                let Some(pod) = self.api.get(&self.pods.object_ref(namespace, name))? else {
                    return Ok(ReconcileOutcome::Done);
                };
                let node = match node_name(&pod) {
                    "" => None,
                    name => self.api.get(&self.nodes.object_ref("", name))?,
                };
                (vec![pod], node, false)
            }
            PodGcKey::Node(name) => {
                let node = self.api.get(&self.nodes.object_ref("", name))?;
                (self.api.list_by_field(&self.pods, "spec.nodeName", name)?, node, true)
            }
        };
        for pod in pods {
            if let Some(reason) = orphan_reason(&pod, node.as_ref(), quarantined) {
                self.end(&pod, reason).await?;
            }
        }
        Ok(ReconcileOutcome::Done)
    }
}

impl<A: Api> PodGarbageCollector<A> {
    /// Marks a pod failed, so that the controllers that own it notice, and deletes it without a grace period.
    async fn end(&self, pod: &Value, reason: OrphanReason) -> Result<(), Status> {
        let object_ref: TypedObjectRef = self.pods.object_ref(meta::namespace(pod), meta::name(pod));
        if let Some(patch) = failed(pod, reason, self.api.now()) {
            match self.api.patch(&object_ref, "status", &PatchBody::Strategic(patch)).await {
                Err(status) if status.code() == 404 => return Ok(()),
                outcome => drop(outcome?),
            }
        }
        let mut options = Value::map([("gracePeriodSeconds", 0)]);
        options.set_at(&["preconditions", "uid"], meta::uid(pod));
        unless_gone(self.api.delete(&object_ref, &options).await)
    }
}

/// The reason why no kubelet will stop a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrphanReason {
    /// Its node no longer exists.
    NodeGone,
    /// Its node has the out-of-service taint.
    OutOfService,
    /// The pod is being deleted and never had a node.
    Unscheduled,
}

/// The key that a change makes worth checking, and the delay until then.
fn key_to_check(
    view: &impl ClusterReader,
    nodes: &Arc<ResourceKind>,
    change: &ObjectChange,
    quarantine: Duration,
) -> Option<(PodGcKey, Duration)> {
    if change.object_ref.kind == *nodes {
        let key = PodGcKey::Node(change.object_ref.name.clone());
        if change.deleted {
            return Some((key, quarantine));
        }
        return out_of_service(&change.object).then_some((key, Duration::ZERO));
    }
    if change.deleted {
        return None;
    }
    let node = node_name(&change.object);
    // A node that cannot be read counts as existing.
    let missing = !node.is_empty() && matches!(view.metadata(&nodes.object_ref("", node)), Ok(None));
    if missing {
        return Some((PodGcKey::Node(node.into()), quarantine));
    }
    let key = PodGcKey::Pod {
        namespace: change.object_ref.namespace.clone(),
        name: change.object_ref.name.clone(),
    };
    meta::is_deleting(&change.object).then_some((key, DELETION_CHECK_DELAY))
}

/// Reports why no kubelet will stop a pod, if so. A missing node counts only after the quarantine.
fn orphan_reason(pod: &Value, node: Option<&Value>, quarantined: bool) -> Option<OrphanReason> {
    match (node_name(pod), node) {
        ("", _) => meta::is_deleting(pod).then_some(OrphanReason::Unscheduled),
        (_, None) => quarantined.then_some(OrphanReason::NodeGone),
        (_, Some(node)) => {
            (meta::is_deleting(pod) && out_of_service(node)).then_some(OrphanReason::OutOfService)
        }
    }
}

/// The status patch that marks a pod failed; `None` if it has already finished.
fn failed(pod: &Value, reason: OrphanReason, now: i64) -> Option<Value> {
    if matches!(pod.str_at(&["status", "phase"]).unwrap_or_default(), "Succeeded" | "Failed") {
        return None;
    }
    let mut patch = Value::default();
    patch.set_at(&["metadata", "uid"], meta::uid(pod));
    patch.set_at(&["status", "phase"], "Failed");
    let generation = pod.int_at(&["metadata", "generation"]);
    if let Some(generation) = generation {
        patch.set_at(&["status", "observedGeneration"], generation);
    }
    if reason == OrphanReason::NodeGone {
        let mut condition = Value::map([
            ("type", "DisruptionTarget"),
            ("status", "True"),
            ("reason", "DeletionByPodGC"),
            ("message", "PodGC: node no longer exists"),
        ]);
        condition.set_at(&["lastTransitionTime"], Timestamp::from_seconds(now).time());
        if let Some(generation) = generation {
            condition.set_at(&["observedGeneration"], generation);
        }
        patch.set_at(&["status", "conditions"], Value::List(vec![condition]));
    }
    Some(patch)
}

fn node_name(pod: &Value) -> &str {
    pod.str_at(&["spec", "nodeName"]).unwrap_or_default()
}

/// Reports whether a node that is not ready has the taint that an administrator sets when it will not come back by itself.
fn out_of_service(node: &Value) -> bool {
    let is = |value: &Value, field: &str, text: &str| value.str_at(&[field]) == Some(text);
    let ready = node
        .list_at(&["status", "conditions"])
        .iter()
        .any(|condition| is(condition, "type", "Ready") && is(condition, "status", "True"));
    let taints = node.list_at(&["spec", "taints"]);
    !ready && taints.iter().any(|taint| is(taint, "key", "node.kubernetes.io/out-of-service"))
}

#[cfg(test)]
mod tests;
