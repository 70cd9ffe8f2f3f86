//! Pods that nobody will ever stop: those of nodes that are gone or out of service, and those that end before they have a node.
//!
//! A missing node is given time to come back before its pods are marked failed and deleted for good.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, Change, Kind, Patch, Place, View, What, unless_gone};
use crate::drive::{self, Controller, Next};

pub(crate) const NAME: &str = "pod-garbage-collector";

/// How long a pod that ends is left to whoever ends it: its deletion takes more than one write.
const PATIENCE: Duration = Duration::from_secs(20);

struct Collector<A> {
    api: Arc<A>,
    pods: Arc<Kind>,
    nodes: Arc<Kind>,
    quarantine: Duration,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, quarantine: Duration, stop: watch::Receiver<bool>) {
    let (Some(pods), Some(nodes)) = (api.kind("v1", "Pod"), api.kind("v1", "Node")) else { return };
    let sources = vec![What::Kind(Arc::clone(&pods)), What::Kind(Arc::clone(&nodes))];
    drive::run(Collector { api: Arc::clone(&api), pods, nodes, quarantine }, api, sources, stop).await;
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// One pod.
    Pod { namespace: Str, name: Str },
    /// All pods of a node; that it was missing for long enough is known if it still is.
    Node(Str),
}

impl<A: Api> Controller for Collector<A> {
    type Key = Key;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn observe(&self, change: &Change) -> Vec<(Key, Duration)> {
        concerned(&*self.api, &self.nodes, change, self.quarantine).into_iter().collect()
    }

    async fn reconcile(&self, key: Key) -> Result<Next<Key>, Status> {
        let (pods, node, quarantined) = match &key {
            Key::Pod { namespace, name } => {
                let Some(pod) = self.api.get(&self.pods.place(namespace, name))? else {
                    return Ok(Next::Done);
                };
                let node = match node_name(&pod) {
                    "" => None,
                    name => self.api.get(&self.nodes.place("", name))?,
                };
                (vec![pod], node, false)
            }
            Key::Node(name) => {
                let node = self.api.get(&self.nodes.place("", name))?;
                (self.api.list_by_field(&self.pods, "spec.nodeName", name)?, node, true)
            }
        };
        for pod in pods {
            if let Some(reason) = lost(&pod, node.as_ref(), quarantined) {
                self.end(&pod, reason).await?;
            }
        }
        Ok(Next::Done)
    }
}

impl<A: Api> Collector<A> {
    /// Marks a pod failed, so that whoever counts on it knows, and deletes it.
    async fn end(&self, pod: &Value, reason: Lost) -> Result<(), Status> {
        let place: Place = self.pods.place(meta::namespace(pod), meta::name(pod));
        if let Some(patch) = failed(pod, reason, self.api.now()) {
            match self.api.patch(&place, "status", &Patch::Strategic(patch)).await {
                Err(status) if status.code() == 404 => return Ok(()),
                outcome => drop(outcome?),
            }
        }
        let mut options = Value::map([("gracePeriodSeconds", 0)]);
        options.set_at(&["preconditions", "uid"], meta::uid(pod));
        unless_gone(self.api.delete(&place, &options).await)
    }
}

/// Why a pod has nobody to stop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// Its node is gone.
    NodeGone,
    /// Its node is out of service.
    OutOfService,
    /// It never had a node.
    Unscheduled,
}

/// What a change makes worth looking at, and when.
fn concerned(
    view: &impl View,
    nodes: &Arc<Kind>,
    change: &Change,
    quarantine: Duration,
) -> Option<(Key, Duration)> {
    if change.place.kind == *nodes {
        let key = Key::Node(change.place.name.clone());
        if change.deleted {
            return Some((key, quarantine));
        }
        return out_of_service(&change.object).then_some((key, Duration::ZERO));
    }
    if change.deleted {
        return None;
    }
    let node = node_name(&change.object);
    // A node that cannot be read counts as there.
    let missing = !node.is_empty() && matches!(view.metadata(&nodes.place("", node)), Ok(None));
    if missing {
        return Some((Key::Node(node.into()), quarantine));
    }
    let key = Key::Pod { namespace: change.place.namespace.clone(), name: change.place.name.clone() };
    meta::is_deleting(&change.object).then_some((key, PATIENCE))
}

/// Whether nobody will stop a pod. That its node is not there counts only after the quarantine.
fn lost(pod: &Value, node: Option<&Value>, quarantined: bool) -> Option<Lost> {
    match (node_name(pod), node) {
        ("", _) => meta::is_deleting(pod).then_some(Lost::Unscheduled),
        (_, None) => quarantined.then_some(Lost::NodeGone),
        (_, Some(node)) => (meta::is_deleting(pod) && out_of_service(node)).then_some(Lost::OutOfService),
    }
}

/// The patch of the status of a pod that did not end by itself.
fn failed(pod: &Value, reason: Lost, now: i64) -> Option<Value> {
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
    if reason == Lost::NodeGone {
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

/// Whether somebody has said that a node which is not ready will not come back by itself.
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
