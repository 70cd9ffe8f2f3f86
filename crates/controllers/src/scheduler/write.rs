//! Writes a placement: allocates and reserves the claims of a pod, binds it, and reverts the claims on failure.

use std::sync::Arc;

use api::time::Timestamp;
use api::{Status, meta};
use dra::ClaimAllocation;
use runtime::LogLimit;
use value::Value;

use super::readiness::{self, Readiness};
use super::search::Placement;
use super::{SCHEDULER_NAME, Scheduler};
use crate::api::{Api, TypedObjectRef};
use crate::claims::{self, FINALIZER};

impl<A: Api> Scheduler<A> {
    /// Writes the claims, then binds the pod; reverts the claims if a write fails.
    pub(super) async fn write_placement(
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
            let is_new = allocation.is_some();
            if let Err(error) = self.reserve(&at, claim, allocation, pod).await {
                outcome = Err(error);
                break;
            }
            written.push((at, is_new));
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
        for (at, is_new) in written {
            static LOG: LogLimit = LogLimit::with_burst(20);
            if let Err(error) = self.release_claim(&at, pod, is_new).await
                && let Some(unlogged) = LOG.due()
            {
                tracing::warn!(
                    claim = %at,
                    %error,
                    unlogged,
                    "cannot release a claim whose pod could not be bound; it stays reserved until the pod is bound or deleted"
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

    /// Removes the pod's reservation; with `deallocate`, also the allocation unless another consumer has reserved the claim.
    pub(super) async fn release_claim(
        &self,
        at: &TypedObjectRef,
        pod: &Value,
        deallocate: bool,
    ) -> Result<(), Status> {
        let Some(mut claim) = self.api.get(at)? else { return Ok(()) };
        let left: Vec<Value> = claims::reservations(&claim)
            .iter()
            .filter(|one| one.str_at(&["uid"]) != Some(meta::uid(pod)))
            .cloned()
            .collect();
        if deallocate && left.is_empty() {
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

    /// Deallocates the first claim that only this pod uses and that prevented it from being scheduled.
    pub(super) async fn deallocate_unreachable(&self, pod: &Value, claims: &[Value]) -> Result<(), Status> {
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

    /// Records a claim that was just written, before the watch delivers it.
    fn record_written_claim(&self, claim: &Value) {
        let at = (meta::namespace(claim).into(), meta::name(claim).into());
        self.cache().observe_claim(at, claim, false);
    }
}
