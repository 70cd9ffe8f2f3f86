//! A small scheduler, disabled by default: enough to run pods and their resource claims end to end.
//!
//! It schedules one pod at a time, so that no device is allocated twice. A pod that uses a scheduling feature this scheduler does not
//! support stays pending with a condition that names the feature: a wrong placement is worse than none. Preferences (soft constraints)
//! are ignored and there is no preemption. Devices with binding conditions are allocated and reserved first; the pod is bound when
//! their drivers report them ready.
//!
//! Every change that may make room for a pod (nodes, finished pods, claims, slices, classes, device taint rules) retries all pending
//! pods; a change of a namespace, which may allow admin access to devices, retries the pending pods in it.

mod cache;
mod devices;
mod fit;
mod pause;
mod pod_claims;
mod readiness;
mod report;
mod search;
mod unsupported;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Status, meta};
use dra::DraGates;
use tokio::sync::watch;
use tokio::time::Instant;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource};
use crate::claims;
use crate::drive::{self, Controller, ReconcileOutcome};
use cache::SchedulerCache;

pub(crate) const NAME: &str = "kube-scheduler";

/// Value of `spec.schedulerName` that selects this scheduler.
const SCHEDULER_NAME: &str = "default-scheduler";
/// Delay that batches changes, so that pending pods are retried once for a group of them.
const BATCH_DELAY: Duration = Duration::from_millis(20);

struct Scheduler<A> {
    api: Arc<A>,
    pods: Arc<ResourceKind>,
    nodes: Arc<ResourceKind>,
    namespaces: Arc<ResourceKind>,
    claims: Arc<ResourceKind>,
    classes: Arc<ResourceKind>,
    slices: Arc<ResourceKind>,
    bindings: Arc<ResourceKind>,
    cache: Arc<Mutex<SchedulerCache>>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, admin_access: bool, stop: watch::Receiver<bool>) {
    let core = |kind: &str| api.kind("v1", kind);
    let resource = |kind: &str| api.kind("resource.k8s.io/v1", kind);
    let (Some(pods), Some(nodes), Some(namespaces), Some(bindings)) =
        (core("Pod"), core("Node"), core("Namespace"), core("Binding"))
    else {
        return;
    };
    let (Some(claims), Some(classes), Some(slices), Some(rules)) = (
        resource("ResourceClaim"),
        resource("DeviceClass"),
        resource("ResourceSlice"),
        resource("DeviceTaintRule"),
    ) else {
        return;
    };
    let sources = [&nodes, &namespaces, &classes, &slices, &rules, &claims, &pods];
    let sources = sources.map(|kind| WatchSource::Kind(Arc::clone(kind))).to_vec();
    let gates = DraGates { admin_access, ..DraGates::default() };
    let cache = Arc::new(Mutex::new(SchedulerCache::new(gates)));
    let scheduler = Scheduler {
        api: Arc::clone(&api),
        pods,
        nodes,
        namespaces,
        claims,
        classes,
        slices,
        bindings,
        cache,
    };
    drive::run(scheduler, api, sources, stop).await;
}

/// A pod that has to be scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PodKey {
    namespace: Str,
    name: Str,
}

impl PodKey {
    fn of(namespace: &Str, name: &Str) -> Self {
        PodKey { namespace: namespace.clone(), name: name.clone() }
    }
}

impl<A: Api> Controller for Scheduler<A> {
    type Key = PodKey;
    const NAME: &'static str = NAME;
    // Two pods at a time could be given the same device.
    const WORKERS: usize = 1;

    fn restart(&self, source: &WatchSource) {
        let WatchSource::Kind(kind) = source else { return };
        let mut cache = self.cache();
        if *kind == self.namespaces {
            // Namespaces are not cached here.
            return;
        }
        if *kind == self.pods {
            Arc::make_mut(&mut cache.cluster).forget_pods();
            cache.pending.clear();
            cache.bound.clear();
        } else if *kind == self.nodes {
            Arc::make_mut(&mut cache.cluster).nodes.clear();
        } else if *kind == self.claims {
            cache.devices.claims.clear();
        } else if *kind == self.classes {
            cache.devices.classes.clear();
        } else if *kind == self.slices {
            cache.devices.slices.clear();
        } else {
            cache.devices.taint_rules.clear();
        }
        cache.forget_allocator();
    }

    fn observe(&self, change: &ObjectChange) -> Vec<(PodKey, Duration)> {
        let mut cache = self.cache();
        let cache = &mut *cache;
        let ObjectChange { object_ref, object, deleted } = change;
        let at = (object_ref.namespace.clone(), object_ref.name.clone());
        if object_ref.kind == self.pods {
            if cache.bound.get(&at).is_some_and(|uid| uid == meta::uid(object)) {
                if !*deleted && is_pending(object) {
                    return Vec::new();
                }
                cache.bound.remove(&at);
            }
            Arc::make_mut(&mut cache.cluster).forget_pod(&at);
            if !*deleted && is_pending(object) {
                let fresh = cache.pending.insert(at);
                let wait = if fresh { Duration::ZERO } else { BATCH_DELAY };
                return vec![(PodKey::of(&object_ref.namespace, &object_ref.name), wait)];
            }
            cache.pending.remove(&at);
            let ended = *deleted || claims::is_done(object);
            if !ended {
                Arc::make_mut(&mut cache.cluster).remember_pod(at, object);
                return Vec::new();
            }
        } else if object_ref.kind == self.nodes {
            let cluster = Arc::make_mut(&mut cache.cluster);
            cluster.nodes.remove(&object_ref.name);
            if !*deleted {
                cluster.nodes.insert(object_ref.name.clone(), Arc::new(object.clone()));
            }
        } else if object_ref.kind == self.claims {
            cache.observe_claim(at, object, *deleted);
        } else if object_ref.kind == self.namespaces {
            let inside = cache.pending.iter().filter(|(namespace, _)| *namespace == object_ref.name);
            return inside.map(|(namespace, name)| (PodKey::of(namespace, name), BATCH_DELAY)).collect();
        } else {
            let objects = if object_ref.kind == self.classes {
                &mut cache.devices.classes
            } else if object_ref.kind == self.slices {
                &mut cache.devices.slices
            } else {
                &mut cache.devices.taint_rules
            };
            objects.remove(&object_ref.name);
            if !*deleted {
                objects.insert(object_ref.name.clone(), Arc::new(object.clone()));
            }
            cache.forget_allocator();
        }
        // The more pods are pending, the longer changes are batched before all are retried.
        let wait = BATCH_DELAY * u32::try_from(1 + cache.pending.len() / 100).unwrap_or(u32::MAX);
        cache.pending.iter().map(|(namespace, name)| (PodKey::of(namespace, name), wait)).collect()
    }

    async fn reconcile(&self, key: PodKey) -> Result<ReconcileOutcome<PodKey>, Status> {
        let object_ref = self.pods.object_ref(&key.namespace, &key.name);
        let Some(pod) = self.api.get(&object_ref)?.filter(is_pending) else {
            return Ok(ReconcileOutcome::Done);
        };
        let pod_claims = match self.pod_claims(&pod).await? {
            Err(why) => {
                self.report_unschedulable(&object_ref, &pod, &why).await?;
                return Ok(ReconcileOutcome::Done);
            }
            Ok(pod_claims) => pod_claims,
        };
        if let Some(next) = self.wait_for_devices(&object_ref, &pod, &pod_claims.shared).await? {
            return Ok(next);
        }
        if !pod_claims.open.is_empty()
            && let Some(pause) = self.cache().costly.get(&key.namespace)
            && let Some(wait) = pause.left(Instant::now())
        {
            return Ok(ReconcileOutcome::After(wait));
        }
        let (shared, asks_devices) = (pod_claims.shared.clone(), !pod_claims.open.is_empty());
        match search::find_placement(Arc::clone(&self.cache), pod.clone(), pod_claims).await? {
            Ok(placement) => {
                let node = placement.node.clone();
                if let Err(error) = self.write_placement(&object_ref, &pod, placement).await {
                    // A conflict or a deleted pod is expected and not worth an event.
                    if !matches!(error.code(), 404 | 409) {
                        let why = format!("cannot be assigned to node {node}: {error}");
                        self.report_condition(&object_ref, &pod, "SchedulerError", &why).await?;
                    }
                    return Err(error);
                }
                if asks_devices {
                    self.cache().costly.remove(&key.namespace);
                }
            }
            Err(failure) => {
                self.report_unschedulable(&object_ref, &pod, &failure.why).await?;
                if failure.is_out_of_reach {
                    self.deallocate_unreachable(&pod, &shared).await?;
                }
                if failure.is_too_costly {
                    let wait = self.cache().pause_searches(key.namespace, Instant::now());
                    return Ok(ReconcileOutcome::After(wait));
                }
            }
        }
        Ok(ReconcileOutcome::Done)
    }
}

/// Reports whether a pod is waiting for this scheduler.
fn is_pending(pod: &Value) -> bool {
    pod.str_at(&["spec", "nodeName"]).unwrap_or_default().is_empty()
        && pod.str_at(&["spec", "schedulerName"]).unwrap_or(SCHEDULER_NAME) == SCHEDULER_NAME
        && pod.list_at(&["spec", "schedulingGates"]).is_empty()
        && !meta::is_deleting(pod)
        && !claims::is_done(pod)
}

impl<A: Api> Scheduler<A> {
    fn cache(&self) -> MutexGuard<'_, SchedulerCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
