//! The resource claims of a pod, and the readiness of their devices.

use std::collections::HashSet;
use std::time::Duration;

use api::{Status, meta};
use value::Value;

use super::readiness::{self, Readiness};
use super::{PodKey, Scheduler};
use crate::api::{Api, TypedObjectRef};
use crate::claims::{self, ClaimStatuses, MAX_RESERVATIONS, ResolvedClaim, UnresolvedClaim};
use crate::drive::ReconcileOutcome;

/// The claims of a pod: `open` are not allocated yet, `shared` are.
pub(super) struct PodClaims {
    pub(super) open: Vec<Value>,
    pub(super) shared: Vec<Value>,
}

impl<A: Api> Scheduler<A> {
    /// Resolves the claims of a pod, each once; the inner `Err` says which claim it still waits for.
    pub(super) async fn pod_claims(&self, pod: &Value) -> Result<Result<PodClaims, String>, Status> {
        let mut pod_claims = PodClaims { open: Vec::new(), shared: Vec::new() };
        let statuses = ClaimStatuses::of(pod);
        let mut seen = HashSet::new();
        for (i, one) in pod.list_at(&["spec", "resourceClaims"]).iter().enumerate() {
            claims::yield_between_turns(i).await;
            let entry = one.str_at(&["name"]).unwrap_or_default();
            let ResolvedClaim { name, created_for_pod } = match statuses.resolve(one) {
                // Several entries may refer to one claim, which can be large.
                Ok(Some(resolved)) if !seen.insert(resolved.clone()) => continue,
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

    /// Returns why a claim may not be allocated with admin access: the server rejects such an allocation unless the namespace is labeled
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
    pub(super) async fn wait_for_devices(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        claims: &[Value],
    ) -> Result<Option<ReconcileOutcome<PodKey>>, Status> {
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
        Ok(Some(ReconcileOutcome::After(Duration::from_secs(u64::try_from(wait).unwrap_or(1)))))
    }
}
