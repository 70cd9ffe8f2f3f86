//! The resource claim controller: creates claims from templates for pods, reserves allocated claims for pods that were bound without
//! the scheduler, and deallocates claims that no pod uses any more.
//!
//! Claims created here pass the request pipeline like any other: a template that was once allowed to ask for admin access cannot
//! create a claim in a namespace that no longer allows it.

mod counts;
mod creation;
mod index;
mod objects;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, PatchBody, ResourceKind, WatchSource, unless_gone};
use crate::drive::{self, Controller, ReconcileOutcome};
use crate::events;
pub use counts::{ClaimLabels, ClaimObserver, ObserveClaims};
use index::PodClaimIndex;
pub(crate) use objects::{
    ClaimStatuses, ResolvedClaim, UnresolvedClaim, add_reservation, is_allocated, is_done, is_owned_by_pod,
    is_reserved_for, reservations,
};
use objects::{is_for_pod, owning_pod};

pub(crate) const NAME: &str = "resource-claim-controller";

/// Reporting component of the emitted events.
const EVENT_SOURCE: &str = "resource_claim";
/// Finalizer that protects an allocated claim from deletion.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Maximum number of pods in `status.reservedFor`, as in kube-apiserver.
pub(crate) const MAX_RESERVATIONS: usize = 256;
/// Entries of `spec.resourceClaims` that are handled between two points at which other tasks can run: each reads a claim.
const ENTRIES_PER_TURN: usize = 64;
/// Delay before a reservation for an unobserved pod is checked: the reserving scheduler may have seen the pod earlier than we did.
const UNOBSERVED_POD_DELAY: Duration = Duration::from_secs(30);

struct ResourceClaimController<A> {
    api: Arc<A>,
    pods: Arc<ResourceKind>,
    claims: Arc<ResourceKind>,
    templates: Arc<ResourceKind>,
    namespaces: Arc<ResourceKind>,
    admin_access: bool,
    pod_claims: Mutex<PodClaimIndex>,
    observer: Option<ObserveClaims>,
    counts: Mutex<counts::ClaimCounts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClaimControllerKey {
    Pod { namespace: Str, name: Str },
    Claim { namespace: Str, name: Str },
}

pub(crate) async fn run<A: Api>(
    api: Arc<A>,
    admin_access: bool,
    observer: Option<ObserveClaims>,
    stop: watch::Receiver<bool>,
) {
    let resource = |kind: &str| api.kind("resource.k8s.io/v1", kind);
    let (Some(pods), Some(namespaces), Some(claims), Some(templates)) = (
        api.kind("v1", "Pod"),
        api.kind("v1", "Namespace"),
        resource("ResourceClaim"),
        resource("ResourceClaimTemplate"),
    ) else {
        return;
    };
    let sources =
        [&pods, &claims, &templates, &namespaces].map(|kind| WatchSource::Kind(Arc::clone(kind))).to_vec();
    let pod_claims = Mutex::default();
    let counts = Mutex::new(counts::ClaimCounts::new(observer.clone()));
    let controller = ResourceClaimController {
        api: Arc::clone(&api),
        pods,
        claims,
        templates,
        namespaces,
        admin_access,
        pod_claims,
        observer,
        counts,
    };
    drive::run(controller, api, sources, stop).await;
}

impl<A: Api> Controller for ResourceClaimController<A> {
    type Key = ClaimControllerKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn restart(&self, source: &WatchSource) {
        if matches!(source, WatchSource::Kind(kind) if *kind == self.claims) {
            self.counts.lock().unwrap_or_else(PoisonError::into_inner).restart();
        }
    }

    fn observe(&self, change: &ObjectChange) -> Vec<(ClaimControllerKey, Duration)> {
        if change.object_ref.kind == self.claims {
            let at = (change.object_ref.namespace.clone(), change.object_ref.name.clone());
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.observe(at, &change.object, change.deleted);
        }
        let mut pod_claims = self.pod_claims.lock().unwrap_or_else(PoisonError::into_inner);
        let (namespace, name) = (&change.object_ref.namespace, &change.object_ref.name);
        let pod = |name: &Str| ClaimControllerKey::Pod { namespace: namespace.clone(), name: name.clone() };
        let claim =
            |name: &Str| ClaimControllerKey::Claim { namespace: namespace.clone(), name: name.clone() };
        let all = |index: &HashMap<(Str, Str), BTreeSet<Str>>| -> Vec<ClaimControllerKey> {
            index.get(&(namespace.clone(), name.clone())).into_iter().flatten().map(pod).collect()
        };
        let keys = if change.object_ref.kind == self.pods {
            if change.deleted || is_done(&change.object) {
                // Index the last state too: it may name claims that an earlier state did not.
                pod_claims.remember(namespace, name, &change.object);
                let used = pod_claims.of_pod.get(&(namespace.clone(), name.clone()));
                let keys = used.into_iter().flat_map(|(claims, _)| claims).map(claim).collect();
                pod_claims.forget(namespace, name);
                keys
            } else {
                pod_claims.remember(namespace, name, &change.object);
                let has_claims = !change.object.list_at(&["spec", "resourceClaims"]).is_empty();
                if has_claims { vec![pod(name)] } else { Vec::new() }
            }
        } else if change.object_ref.kind == self.claims {
            let mut keys: Vec<(ClaimControllerKey, Duration)> =
                all(&pod_claims.by_claim).into_iter().map(|key| (key, Duration::ZERO)).collect();
            if !change.deleted {
                let wait = if pod_claims.has_all_reserving_pods(namespace, &change.object) {
                    Duration::ZERO
                } else {
                    UNOBSERVED_POD_DELAY
                };
                keys.push((claim(name), wait));
            }
            return keys;
        } else if change.deleted {
            Vec::new()
        } else if change.object_ref.kind == self.namespaces {
            // A new label on the namespace may allow admin access now.
            pod_claims.with_templates_in(name)
        } else {
            all(&pod_claims.by_template)
        };
        keys.into_iter().map(|key| (key, Duration::ZERO)).collect()
    }

    async fn reconcile(
        &self,
        key: ClaimControllerKey,
    ) -> Result<ReconcileOutcome<ClaimControllerKey>, Status> {
        match key {
            ClaimControllerKey::Pod { namespace, name } => self.pod(&namespace, &name).await,
            ClaimControllerKey::Claim { namespace, name } => self.claim(&namespace, &name).await,
        }?;
        Ok(ReconcileOutcome::Done)
    }
}

impl<A: Api> ResourceClaimController<A> {
    /// Creates the claims that a pod needs and, if it already has a node, reserves them.
    async fn pod(&self, namespace: &str, name: &str) -> Result<(), Status> {
        let Some(pod) = self.api.get(&self.pods.object_ref(namespace, name))? else { return Ok(()) };
        if meta::is_deleting(&pod) || is_done(&pod) {
            return Ok(());
        }
        let entries = pod.list_at(&["spec", "resourceClaims"]);
        let mut claim_names = BTreeMap::new();
        let statuses = ClaimStatuses::of(&pod);
        let mut own_claims = None;
        for (i, one) in entries.iter().enumerate() {
            yield_between_turns(i).await;
            match self.ensure_claim(&pod, &statuses, one, &mut own_claims).await {
                Ok(None) => {}
                Ok(Some(claim)) => {
                    claim_names.insert(one.str_at(&["name"]).unwrap_or_default().to_owned(), claim);
                }
                Err(refused) => {
                    let entry = one.str_at(&["name"]).unwrap_or_default();
                    let words = format!("PodResourceClaim {entry}: {}", refused.why);
                    events::warn(&*self.api, &pod, "FailedResourceClaimCreation", &words, EVENT_SOURCE).await;
                    // The namespace is watched, so wait for it to change instead of retrying.
                    return if refused.needs_namespace_change {
                        Ok(())
                    } else {
                        Err(Status::internal(words))
                    };
                }
            }
        }
        if !claim_names.is_empty() {
            let statuses = claim_names.iter().map(|(name, claim)| {
                Value::map([
                    ("name", Value::from(name.as_str())),
                    ("resourceClaimName", Value::from(claim.as_str())),
                ])
            });
            let mut patch = Value::default();
            patch.set_at(&["metadata", "uid"], meta::uid(&pod));
            patch.set_at(&["status", "resourceClaimStatuses"], Value::List(statuses.collect()));
            self.api
                .patch(&self.pods.object_ref(namespace, name), "status", &PatchBody::Strategic(patch))
                .await?;
        }
        // The scheduler reserves claims for the pods that it binds.
        if pod.str_at(&["spec", "nodeName"]).unwrap_or_default().is_empty() {
            return Ok(());
        }
        let mut reserved = HashSet::new();
        for (i, one) in entries.iter().enumerate() {
            yield_between_turns(i).await;
            // Several entries may refer to one claim.
            if let Ok(Some(claim)) = statuses.resolve(one)
                && reserved.insert(claim.clone())
            {
                self.reserve(&pod, claim).await?;
            }
        }
        Ok(())
    }

    /// Reserves an allocated claim for a pod that was bound without the scheduler.
    async fn reserve(&self, pod: &Value, claim: ResolvedClaim) -> Result<(), Status> {
        let ResolvedClaim { name, created_for_pod } = claim;
        let object_ref = self.claims.object_ref(meta::namespace(pod), &name);
        let Some(mut claim) = self.api.get(&object_ref)? else { return Ok(()) };
        let usable = is_allocated(&claim) && (!created_for_pod || is_owned_by_pod(pod, &claim));
        if !usable || is_reserved_for(&claim, pod) || reservations(&claim).len() >= MAX_RESERVATIONS {
            return Ok(());
        }
        add_reservation(&mut claim, pod);
        self.api.update(&object_ref, "status", &claim).await.map(drop)
    }

    /// Removes stale reservations, deallocates an unused claim, and deletes it if its pod is done.
    async fn claim(&self, namespace: &str, name: &str) -> Result<(), Status> {
        let object_ref = self.claims.object_ref(namespace, name);
        let Some(mut claim) = self.api.get(&object_ref)? else { return Ok(()) };
        let before = reservations(&claim).len();
        let mut left = Vec::with_capacity(before);
        for reservation in reservations(&claim) {
            if self.is_in_use(namespace, reservation)? {
                left.push(reservation.clone());
            }
        }
        let unused = left.is_empty();
        let is_protected = |claim: &Value| meta::finalizers(claim).any(|one| one == FINALIZER);
        if left.len() < before {
            claim.set_at(&["status", "reservedFor"], Value::List(left));
            if unused && is_protected(&claim) {
                claim.remove_at(&["status", "allocation"]);
            }
            claim = self.api.update(&object_ref, "status", &claim).await?;
            if is_protected(&claim) && !is_allocated(&claim) {
                claim = self.remove_finalizer(claim, &object_ref).await?;
            }
        } else if is_protected(&claim) && meta::is_deleting(&claim) && unused {
            if is_allocated(&claim) {
                claim.remove_at(&["status", "allocation"]);
                claim = self.api.update(&object_ref, "status", &claim).await?;
            }
            claim = self.remove_finalizer(claim, &object_ref).await?;
        }
        if unused && let Some(owner) = owning_pod(&claim) {
            let pod = self
                .api
                .get(&self.pods.object_ref(namespace, owner.str_at(&["name"]).unwrap_or_default()))?;
            // If the pod no longer exists, the garbage collector deletes its claims.
            if pod.is_some_and(|pod| owner.str_at(&["uid"]) != Some(meta::uid(&pod)) || is_done(&pod)) {
                unless_gone(self.api.delete(&object_ref, &Value::default()).await)?;
            }
        }
        Ok(())
    }

    /// Removes the delete-protection finalizer.
    async fn remove_finalizer(
        &self,
        mut claim: Value,
        object_ref: &crate::api::TypedObjectRef,
    ) -> Result<Value, Status> {
        if let Some(all) = claim.at_mut(&["metadata", "finalizers"]).and_then(Value::as_list_mut) {
            all.retain(|one| one.as_str() != Some(FINALIZER));
        }
        match self.api.update(object_ref, "", &claim).await {
            // It was the last finalizer of a claim in deletion, so the claim is gone.
            Err(status) if status.code() == 404 => Ok(claim),
            outcome => outcome,
        }
    }

    /// Reports whether the consumer of a reservation still uses the claim. Reservations of consumers other than pods always count.
    fn is_in_use(&self, namespace: &str, reservation: &Value) -> Result<bool, Status> {
        let text = |field: &str| reservation.str_at(&[field]).unwrap_or_default();
        if !is_for_pod(reservation) {
            return Ok(true);
        }
        let pod = self.api.get(&self.pods.object_ref(namespace, text("name")))?;
        Ok(pod.is_some_and(|pod| meta::uid(&pod) == text("uid") && !is_done(&pod)))
    }
}

/// Yields before the first entry of each further turn.
pub(crate) async fn yield_between_turns(entry: usize) {
    if entry > 0 && entry.is_multiple_of(ENTRIES_PER_TURN) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests;
