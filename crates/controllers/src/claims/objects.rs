//! Reads resource claims and the pods that use them.

use std::collections::HashMap;

use api::meta;
use api::validation::repeated::first_by;
use value::{Str, Value};

/// The claim that an entry of `spec.resourceClaims` refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResolvedClaim {
    pub(crate) name: Str,
    /// The claim was created for the pod and must therefore be owned by it.
    pub(crate) created_for_pod: bool,
}

/// The reason why an entry does not resolve to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnresolvedClaim {
    /// No claim was created from the template yet.
    NotYet,
    /// The entry sets neither `resourceClaimName` nor `resourceClaimTemplateName`.
    Unknown,
}

/// The entries of a pod's `status.resourceClaimStatuses` by name. Both lists come from clients and can be long, so the statuses are
/// indexed once and not searched for each entry of `spec.resourceClaims`.
pub(crate) struct ClaimStatuses<'a>(HashMap<&'a str, &'a Value>);

impl<'a> ClaimStatuses<'a> {
    pub(crate) fn of(pod: &'a Value) -> Self {
        ClaimStatuses(first_by(pod.list_at(&["status", "resourceClaimStatuses"]), "name"))
    }

    /// Resolves an entry of `spec.resourceClaims`; `None` if the pod's status records that it needs no claim.
    pub(crate) fn resolve(&self, one: &Value) -> Result<Option<ResolvedClaim>, UnresolvedClaim> {
        if let Some(name) = one.str_at(&["resourceClaimName"]) {
            return Ok(Some(ResolvedClaim { name: name.into(), created_for_pod: false }));
        }
        if one.str_at(&["resourceClaimTemplateName"]).is_none() {
            return Err(UnresolvedClaim::Unknown);
        }
        let noted = self.0.get(one.str_at(&["name"]).unwrap_or_default()).ok_or(UnresolvedClaim::NotYet)?;
        Ok(noted
            .str_at(&["resourceClaimName"])
            .map(|name| ResolvedClaim { name: name.into(), created_for_pod: true }))
    }
}

/// The claim that a scheduler created for extended resources of a pod that DRA drivers provide.
pub(super) fn extended_claim(pod: &Value) -> Option<&str> {
    pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"])
}

/// Reports whether the pod is the controlling owner of a claim.
pub(crate) fn is_owned_by_pod(pod: &Value, claim: &Value) -> bool {
    owning_pod(claim).is_some_and(|owner| owner.str_at(&["uid"]) == Some(meta::uid(pod)))
}

pub(super) fn owning_pod(claim: &Value) -> Option<&Value> {
    claim.list_at(&["metadata", "ownerReferences"]).iter().find(|owner| {
        owner.at(&["controller"]) == Some(&Value::Bool(true))
            && owner.str_at(&["apiVersion"]) == Some("v1")
            && owner.str_at(&["kind"]) == Some("Pod")
    })
}

/// Reports whether a pod will not run any more: it has finished, or is deleted before it was bound.
pub(crate) fn is_done(pod: &Value) -> bool {
    matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"))
        || (meta::is_deleting(pod) && pod.str_at(&["spec", "nodeName"]).unwrap_or_default().is_empty())
}

pub(crate) fn is_allocated(claim: &Value) -> bool {
    claim.at(&["status", "allocation"]).is_some_and(|allocation| !allocation.is_null())
}

pub(crate) fn reservations(claim: &Value) -> &[Value] {
    claim.list_at(&["status", "reservedFor"])
}

/// Reports whether the consumer of a reservation is a pod.
pub(super) fn is_for_pod(reservation: &Value) -> bool {
    reservation.str_at(&["apiGroup"]).unwrap_or_default().is_empty()
        && reservation.str_at(&["resource"]) == Some("pods")
}

pub(crate) fn is_reserved_for(claim: &Value, pod: &Value) -> bool {
    reservations(claim).iter().any(|one| one.str_at(&["uid"]) == Some(meta::uid(pod)))
}

pub(crate) fn add_reservation(claim: &mut Value, pod: &Value) {
    let mut all = reservations(claim).to_vec();
    all.push(Value::map([("resource", "pods"), ("name", meta::name(pod)), ("uid", meta::uid(pod))]));
    claim.set_at(&["status", "reservedFor"], Value::List(all));
}
