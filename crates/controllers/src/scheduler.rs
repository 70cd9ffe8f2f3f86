//! A small scheduler, disabled by default: enough to run pods and their resource claims end to end.
//!
//! It schedules one pod at a time, so that no device is allocated twice. A pod that uses a scheduling feature this scheduler does not
//! support stays pending with a condition that names the feature: a wrong placement is worse than none. Preferences (soft constraints)
//! are ignored and there is no preemption. Devices with binding conditions are allocated and reserved first; the pod is bound when
//! their drivers report them ready.
//!
//! Every change that may make room for a pod (nodes, finished pods, claims, slices, classes, device taint rules) retries all pending
//! pods; a change of a namespace, which may allow admin access to devices, retries the pending pods in it.

mod devices;
mod fit;
mod pause;
mod readiness;
mod unsupported;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::time::Timestamp;
use api::{Status, meta};
use dra::{AllocationBudget, CandidateNode, ClaimAllocation, DeviceAllocator, DraGates, PendingClaim};
use tokio::sync::watch;
use tokio::time::Instant;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, PatchBody, ResourceKind, TypedObjectRef, WatchSource};
use crate::claims::{self, FINALIZER, MAX_RESERVATIONS, ResolvedClaim, UnresolvedClaim};
use crate::drive::{self, Controller, Next};
use devices::{Devices, LentAllocator, MissedChanges};
use fit::{Cluster, NodeRejection};
use pause::Pause;
use readiness::Readiness;

pub(crate) const NAME: &str = "kube-scheduler";

/// Value of `spec.schedulerName` that selects this scheduler.
const SCHEDULER_NAME: &str = "default-scheduler";
/// Limit for (bytes of a pod's node constraints) × (number of nodes), which keeps the comparison under a second: 2 kB for 10,000 nodes.
const MAX_COMPARED: usize = 20_000_000;
/// Time limit of the device search for one pod, over all nodes; kube-scheduler allows the same time for each node.
const MAX_SEARCH: Duration = Duration::from_secs(10);
/// Delay that batches changes, so that pending pods are retried once for a group of them.
const GATHER: Duration = Duration::from_millis(20);

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

/// The cluster as observed, plus own writes that are not observed yet. Changes are observed on the threads that serve requests, so a
/// search must not hold this lock: see [`choose`].
struct SchedulerCache {
    cluster: Arc<Cluster>,
    pending: BTreeSet<(Str, Str)>,
    /// UIDs of pods bound by this scheduler. Older observations that show them unbound are ignored.
    bound: HashMap<(Str, Str), Str>,
    devices: Devices,
    /// Built from `devices` on demand; absent while outdated or lent.
    allocator: Option<DeviceAllocator>,
    /// Changes to apply to the allocator while a search has it; `None` if it is not lent.
    lent: Option<MissedChanges>,
    /// Namespaces whose claims exhausted a search budget: their pods that need devices are not retried before a given time.
    costly: HashMap<Str, Pause>,
}

/// The resource version as a number, for comparison; 0 if unreadable.
fn revision(object: &Value) -> u64 {
    meta::resource_version(object).parse().unwrap_or(0)
}

impl SchedulerCache {
    /// Records the current state of a claim. Ignores states older than the known one, and the deletion of an earlier object of the name.
    fn observe_claim(&mut self, at: (Str, Str), claim: &Value, deleted: bool) {
        let newer = |known: &Value| revision(known) > revision(claim);
        if self
            .devices
            .claims
            .get(&at)
            .is_some_and(|known| if deleted { meta::uid(known) != meta::uid(claim) } else { newer(known) })
        {
            return;
        }
        let claim = Arc::new(claim.clone());
        if let Some(allocator) = &mut self.allocator {
            devices::apply_claim_change(allocator, &claim, deleted);
        } else if let Some(missed) = &mut self.lent {
            missed.claims.push((Arc::clone(&claim), deleted));
        }
        if deleted {
            self.devices.claims.remove(&at);
        } else {
            self.devices.claims.insert(at, claim);
        }
    }

    /// Discards the allocator, because the objects it was built from have changed.
    fn forget_allocator(&mut self) {
        self.allocator = None;
        if let Some(missed) = &mut self.lent {
            missed.is_outdated = true;
        }
    }
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
    let cache = SchedulerCache {
        cluster: Arc::default(),
        pending: BTreeSet::new(),
        bound: HashMap::new(),
        devices: Devices::new(DraGates { admin_access, ..DraGates::default() }),
        allocator: None,
        lent: None,
        costly: HashMap::new(),
    };
    let cache = Arc::new(Mutex::new(cache));
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
                let wait = if fresh { Duration::ZERO } else { GATHER };
                return vec![(
                    PodKey { namespace: object_ref.namespace.clone(), name: object_ref.name.clone() },
                    wait,
                )];
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
            let key =
                |(namespace, name): &(Str, Str)| PodKey { namespace: namespace.clone(), name: name.clone() };
            return inside.map(|at| (key(at), GATHER)).collect();
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
        let wait = GATHER * u32::try_from(1 + cache.pending.len() / 100).unwrap_or(u32::MAX);
        let key =
            |(namespace, name): &(Str, Str)| PodKey { namespace: namespace.clone(), name: name.clone() };
        cache.pending.iter().map(|at| (key(at), wait)).collect()
    }

    async fn reconcile(&self, key: PodKey) -> Result<Next<PodKey>, Status> {
        let object_ref = self.pods.object_ref(&key.namespace, &key.name);
        let Some(pod) = self.api.get(&object_ref)?.filter(is_pending) else { return Ok(Next::Done) };
        let pod_claims = match self.pod_claims(&pod)? {
            Err(why) => {
                self.report_unschedulable(&object_ref, &pod, &why).await?;
                return Ok(Next::Done);
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
            return Ok(Next::After(wait));
        }
        let (shared, asks_devices) = (pod_claims.shared.clone(), !pod_claims.open.is_empty());
        let chosen = {
            let (cache, pod) = (Arc::clone(&self.cache), pod.clone());
            // The search is CPU-bound and must not block an async worker thread.
            let attempt = value::Budget::new(u64::MAX);
            let own = attempt.clone();
            let mut search = tokio::task::spawn_blocking(move || choose(&cache, &pod, pod_claims, &own));
            let chosen = match tokio::time::timeout(MAX_SEARCH, &mut search).await {
                Ok(chosen) => chosen,
                Err(_) => {
                    attempt.cancel();
                    search.await
                }
            };
            chosen.map_err(|_| Status::internal("the search for a node panicked"))?
        };
        match chosen {
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
            Err(refused) => {
                self.report_unschedulable(&object_ref, &pod, &refused.why).await?;
                if refused.is_out_of_reach {
                    self.deallocate_unreachable(&pod, &shared).await?;
                }
                if refused.is_too_costly {
                    let mut cache = self.cache();
                    let pause = Pause::after(cache.costly.get(&key.namespace), Instant::now());
                    let wait = pause.length;
                    cache.costly.retain(|_, former| !former.is_forgotten(Instant::now()));
                    cache.costly.insert(key.namespace, pause);
                    return Ok(Next::After(wait));
                }
            }
        }
        Ok(Next::Done)
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

/// The node chosen for a pod and the allocations of its claims there.
struct Placement {
    node: Str,
    /// Claims to allocate, with their new allocations.
    allocated: Vec<(Value, ClaimAllocation)>,
    /// Claims that are already allocated.
    shared: Vec<Value>,
}

/// The claims of a pod: `open` are not allocated yet, `shared` are.
struct PodClaims {
    open: Vec<Value>,
    shared: Vec<Value>,
}

/// The reason why a pod was not scheduled.
struct SchedulingFailure {
    why: String,
    /// An already allocated claim was not available on at least one node.
    is_out_of_reach: bool,
    /// The search was aborted because it exceeded its budget.
    is_too_costly: bool,
}

impl From<String> for SchedulingFailure {
    fn from(why: String) -> Self {
        SchedulingFailure { why, is_out_of_reach: false, is_too_costly: false }
    }
}

/// Finds the best node for a pod, or the reason why there is none. Works on a snapshot, so that observing changes never waits for it.
fn choose(
    cache: &Mutex<SchedulerCache>,
    pod: &Value,
    pod_claims: PodClaims,
    attempt: &value::Budget,
) -> Result<Placement, SchedulingFailure> {
    if let Some(why) = unsupported::first_unsupported_feature(pod) {
        return Err(format!("not scheduled: {why}, which this scheduler does not know").into());
    }
    let read: Result<Vec<PendingClaim>, dra::Error> =
        pod_claims.open.iter().map(PendingClaim::read).collect();
    let read = read.map_err(|error| error.to_string())?;
    let cluster = Arc::clone(&cache.lock().unwrap_or_else(PoisonError::into_inner).cluster);
    let terms = fit::terms_size(pod).saturating_mul(cluster.nodes.len());
    if terms > MAX_COMPARED {
        let why = format!(
            "tolerations, node selectors and affinity are too long to be compared with {} nodes",
            cluster.nodes.len()
        );
        return Err(why.into());
    }
    let (fitting, mut reasons) = cluster.fitting(pod);
    let mut allocator = (!read.is_empty()).then(|| LentAllocator::take(cache));
    let mut budget = AllocationBudget::of(attempt);
    for name in fitting {
        let Some(object) = cluster.nodes.get(&name) else { continue };
        let node = CandidateNode::of(object);
        let reached = pod_claims.shared.iter().all(|claim| {
            claim.at(&["status", "allocation"]).is_some_and(|a| node.reaches(a).unwrap_or(false))
        });
        if !reached {
            *reasons.entry(NodeRejection::OutOfReach).or_insert(0) += 1;
            continue;
        }
        let Some(allocator) = &mut allocator else {
            return Ok(Placement { node: name, allocated: Vec::new(), shared: pod_claims.shared });
        };
        match allocator.get().allocate(&read, &node, &mut budget) {
            Ok(Some(allocations)) => {
                for (claim, allocation) in pod_claims.open.iter().zip(&allocations) {
                    allocator.get().hold(meta::uid(claim), allocation);
                }
                let allocated = pod_claims.open.into_iter().zip(allocations).collect();
                return Ok(Placement { node: name, allocated, shared: pod_claims.shared });
            }
            Ok(None) => *reasons.entry(NodeRejection::NoDevices).or_insert(0) += 1,
            // An error about search complexity on one node ends the whole search instead of repeating it on all of them.
            Err(error) if error.concerns_only_the_node() && !matches!(error, dra::Error::TooComplex(_)) => {
                *reasons.entry(NodeRejection::Devices(error.to_string())).or_insert(0) += 1;
            }
            Err(error) => {
                let is_too_costly = matches!(error, dra::Error::TooCostly | dra::Error::TooComplex(_));
                return Err(SchedulingFailure { is_too_costly, ..error.to_string().into() });
            }
        }
    }
    let why = fit::unschedulable_message(cluster.nodes.len(), &reasons);
    let is_out_of_reach = reasons.contains_key(&NodeRejection::OutOfReach);
    Err(SchedulingFailure { is_out_of_reach, ..why.into() })
}

impl<A: Api> Scheduler<A> {
    fn cache(&self) -> MutexGuard<'_, SchedulerCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a claim that was just written, before the watch delivers it.
    fn record_written_claim(&self, claim: &Value) {
        let at = (meta::namespace(claim).into(), meta::name(claim).into());
        self.cache().observe_claim(at, claim, false);
    }

    /// Resolves the claims of a pod; the inner `Err` says which claim it still waits for.
    fn pod_claims(&self, pod: &Value) -> Result<Result<PodClaims, String>, Status> {
        let mut pod_claims = PodClaims { open: Vec::new(), shared: Vec::new() };
        for one in pod.list_at(&["spec", "resourceClaims"]) {
            let entry = one.str_at(&["name"]).unwrap_or_default();
            let ResolvedClaim { name, created_for_pod } = match claims::resolve_claim(pod, one) {
                Ok(Some(resolved)) => resolved,
                Ok(None) => continue,
                Err(UnresolvedClaim::NotYet) => {
                    return Ok(Err(format!(
                        "waiting for resource claim of {} to be created",
                        api::field::quote(entry)
                    )));
                }
                Err(UnresolvedClaim::Unknown) => {
                    return Ok(Err(format!("pod claim {entry}: none of the supported fields are set")));
                }
            };
            let Some(claim) = self.api.get(&self.claims.object_ref(meta::namespace(pod), &name))? else {
                let quoted = api::field::quote(&name);
                return Ok(Err(format!("resourceclaim.resource.k8s.io {quoted} not found")));
            };
            let quoted = api::field::quote(&name);
            if created_for_pod && !claims::is_owned_by_pod(pod, &claim) {
                return Ok(Err(format!("resource claim {quoted} was not created for this pod")));
            }
            if meta::is_deleting(&claim) {
                return Ok(Err(format!("resourceclaim {quoted} is being deleted")));
            }
            if !claims::is_allocated(&claim) {
                if let Some(why) = self.lacks_admin_access(&claim)? {
                    return Ok(Err(why));
                }
                pod_claims.open.push(claim);
            } else if claims::is_reserved_for(&claim, pod)
                || claims::reservations(&claim).len() < MAX_RESERVATIONS
            {
                pod_claims.shared.push(claim);
            } else {
                return Ok(Err(format!("resourceclaim {quoted} is in use by as many pods as can share it")));
            }
        }
        Ok(Ok(pod_claims))
    }

    /// Returns why a claim may not be allocated with admin access: the server rejects such an allocation unless the namespace is labelled
    /// for it at that time.
    fn lacks_admin_access(&self, claim: &Value) -> Result<Option<String>, Status> {
        if api::admin_access::first_asking(claim.list_at(&["spec", "devices", "requests"])).is_none() {
            return Ok(None);
        }
        let namespace = self.api.get(&self.namespaces.object_ref("", meta::namespace(claim)))?;
        let allowed = namespace.is_some_and(|namespace| api::admin_access::allowed_by(&namespace).is_some());
        let quoted = api::field::quote(meta::name(claim));
        Ok((!allowed).then(|| format!("resourceclaim {quoted}: {}", api::admin_access::refusal())))
    }

    /// Waits for the binding conditions of devices already reserved for the pod: `Some` if the pod cannot be bound yet. Deallocates
    /// claims whose devices failed.
    async fn wait_for_devices(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        claims: &[Value],
    ) -> Result<Option<Next<PodKey>>, Status> {
        let now = self.api.now();
        let mut until = None;
        for claim in claims.iter().filter(|claim| claims::is_reserved_for(claim, pod)) {
            match readiness::of(claim, now) {
                Readiness::Ready => {}
                Readiness::Waiting(end) => {
                    let wait = end.map_or(1, |end| end.saturating_sub(now).saturating_add(1));
                    until = Some(until.map_or(wait, |until: i64| until.min(wait)));
                }
                Readiness::Failed(why) => {
                    self.report_unschedulable(object_ref, pod, &why).await?;
                    let at = self.claims.object_ref(meta::namespace(claim), meta::name(claim));
                    self.release_claim(&at, pod, true).await?;
                    // Return an error so that the next attempt is delayed: the same devices would be allocated again.
                    return Err(Status::internal(why));
                }
            }
        }
        let Some(wait) = until else { return Ok(None) };
        self.report_unschedulable(
            object_ref,
            pod,
            "waiting for devices to be made ready (binding conditions)",
        )
        .await?;
        Ok(Some(Next::After(Duration::from_secs(u64::try_from(wait).unwrap_or(1)))))
    }

    /// Deallocates the first claim that only this pod uses and that prevented it from being scheduled.
    async fn deallocate_unreachable(&self, pod: &Value, claims: &[Value]) -> Result<(), Status> {
        for claim in claims {
            let unused =
                claims::reservations(claim).iter().all(|one| one.str_at(&["uid"]) == Some(meta::uid(pod)));
            if unused && meta::finalizers(claim).any(|one| one == FINALIZER) {
                let at = self.claims.object_ref(meta::namespace(claim), meta::name(claim));
                self.release_claim(&at, pod, true).await?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes the claims, then binds the pod; reverts the claims if a write fails.
    async fn write_placement(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        placement: Placement,
    ) -> Result<(), Status> {
        let Placement { node, allocated, shared } = placement;
        let mut written: Vec<(TypedObjectRef, bool)> = Vec::new();
        let mut outcome = Ok(());
        let now = self.api.now();
        let waits = shared.iter().any(|claim| readiness::of(claim, now) != Readiness::Ready)
            || allocated.iter().any(|(_, allocation)| {
                allocation.results.iter().any(|result| result.binding_conditions.is_some())
            });
        let fresh = allocated.into_iter().map(|(claim, allocation)| (claim, Some(allocation)));
        let already_allocated = shared.into_iter().map(|claim| (claim, None));
        for (claim, allocation) in fresh.chain(already_allocated) {
            let at = self.claims.object_ref(meta::namespace(&claim), meta::name(&claim));
            let first = allocation.is_some();
            if let Err(error) = self.reserve(&at, claim, allocation, pod).await {
                outcome = Err(error);
                break;
            }
            written.push((at, first));
        }
        if outcome.is_ok() && waits {
            // The pod is retried when the watch delivers the written claims.
            return Ok(());
        }
        if outcome.is_ok() {
            outcome = self.bind(object_ref, pod, &node).await;
        }
        let Err(error) = outcome else {
            let words =
                format!("Successfully assigned {}/{} to {node}", object_ref.namespace, object_ref.name);
            crate::events::inform(&*self.api, pod, "Scheduled", &words, SCHEDULER_NAME).await;
            let mut cache = self.cache();
            let at = (object_ref.namespace.clone(), object_ref.name.clone());
            let mut there = pod.clone();
            there.set_at(&["spec", "nodeName"], node.as_str());
            cache.pending.remove(&at);
            cache.bound.insert(at.clone(), meta::uid(pod).into());
            let cluster = Arc::make_mut(&mut cache.cluster);
            cluster.forget_pod(&at);
            cluster.remember_pod(at, &there);
            return Ok(());
        };
        for (at, first) in written {
            if let Err(error) = self.release_claim(&at, pod, first).await {
                tracing::warn!(
                    claim = %at,
                    %error,
                    "cannot release a claim whose pod could not be bound; it stays reserved for the pod"
                );
            }
        }
        // Rebuild the allocator: the stored claims may differ from the devices held in it.
        self.cache().forget_allocator();
        Err(error)
    }

    /// Allocates a claim if `allocation` is given, and adds the pod to its reservations.
    async fn reserve(
        &self,
        at: &TypedObjectRef,
        mut claim: Value,
        allocation: Option<ClaimAllocation>,
        pod: &Value,
    ) -> Result<(), Status> {
        if let Some(allocation) = allocation {
            if !meta::finalizers(&claim).any(|one| one == FINALIZER) {
                let mut all: Vec<Value> = claim.list_at(&["metadata", "finalizers"]).to_vec();
                all.push(FINALIZER.into());
                claim.set_at(&["metadata", "finalizers"], Value::List(all));
                claim = self.api.update(at, "", &claim).await?;
            }
            let mut allocated = allocation.to_value(&mut || self.api.fresh_uid());
            allocated.set_at(&["allocationTimestamp"], Timestamp::from_seconds(self.api.now()).time());
            claim.set_at(&["status", "allocation"], allocated);
        } else if claims::is_reserved_for(&claim, pod) {
            return Ok(());
        }
        if !claims::is_reserved_for(&claim, pod) {
            claims::add_reservation(&mut claim, pod);
        }
        let written = self.api.update(at, "status", &claim).await?;
        self.record_written_claim(&written);
        Ok(())
    }

    async fn release_claim(&self, at: &TypedObjectRef, pod: &Value, first: bool) -> Result<(), Status> {
        let Some(mut claim) = self.api.get(at)? else { return Ok(()) };
        let left: Vec<Value> = claims::reservations(&claim)
            .iter()
            .filter(|one| one.str_at(&["uid"]) != Some(meta::uid(pod)))
            .cloned()
            .collect();
        if first && left.is_empty() {
            claim.remove_at(&["status", "allocation"]);
        }
        claim.set_at(&["status", "reservedFor"], Value::List(left));
        let written = self.api.update(at, "status", &claim).await?;
        self.record_written_claim(&written);
        Ok(())
    }

    async fn bind(&self, object_ref: &TypedObjectRef, pod: &Value, node: &str) -> Result<(), Status> {
        let mut binding = crate::api::object(&self.bindings, &object_ref.namespace, &object_ref.name);
        binding.set_at(&["metadata", "uid"], meta::uid(pod));
        binding.set_at(&["target"], Value::map([("kind", "Node"), ("name", node)]));
        self.api.create(&self.bindings, &object_ref.namespace, &binding).await.map(drop)
    }

    /// Sets the `PodScheduled` condition and emits an event, unless the condition already has this message.
    async fn report_unschedulable(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        why: &str,
    ) -> Result<(), Status> {
        self.report_condition(object_ref, pod, "Unschedulable", why).await
    }

    /// Like [`Self::report_unschedulable`], with a given reason for the condition.
    async fn report_condition(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        reason: &str,
        why: &str,
    ) -> Result<(), Status> {
        let conditions = pod.list_at(&["status", "conditions"]);
        let said = conditions.iter().any(|one| {
            one.str_at(&["type"]) == Some("PodScheduled")
                && one.str_at(&["status"]) == Some("False")
                && one.str_at(&["message"]) == Some(why)
        });
        if said {
            return Ok(());
        }
        let now = Timestamp::from_seconds(self.api.now()).time();
        let condition = Value::map([
            ("type", Value::from("PodScheduled")),
            ("status", Value::from("False")),
            ("reason", Value::from(reason)),
            ("message", Value::from(why)),
            ("lastTransitionTime", Value::from(now)),
        ]);
        let mut patch = Value::default();
        patch.set_at(&["metadata", "uid"], meta::uid(pod));
        patch.set_at(&["status", "conditions"], Value::List(vec![condition]));
        match self.api.patch(object_ref, "status", &PatchBody::Strategic(patch)).await {
            Err(status) if status.code() == 404 => Ok(()),
            outcome => outcome.map(drop),
        }?;
        crate::events::warn(&*self.api, pod, "FailedScheduling", why, SCHEDULER_NAME).await;
        Ok(())
    }
}

/// Number of nodes that were rejected for each reason.
type Reasons = BTreeMap<NodeRejection, usize>;

#[cfg(test)]
mod tests;
