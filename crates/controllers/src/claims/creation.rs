//! Creates claims from templates for pods.

use std::collections::HashMap;

use api::{Status, meta};
use value::text::first_chars;
use value::{Str, Value};

use super::objects::{ClaimStatuses, ResolvedClaim, UnresolvedClaim, is_owned_by_pod};
use super::{ObserveClaims, ResourceClaimController};
use crate::api::Api;

/// Annotation with the entry of `spec.resourceClaims` that the claim was created for.
pub(super) const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Maximum bytes of a generated name before the random suffix.
const MAX_BASE: usize = 57;

/// The reason why no claim was created for a pod.
pub(super) struct ClaimCreationError {
    pub(super) why: String,
    /// Only a change of the namespace's labels can resolve the failure.
    pub(super) needs_namespace_change: bool,
}

impl ClaimCreationError {
    fn because(why: impl Into<String>) -> Self {
        ClaimCreationError { why: why.into(), needs_namespace_change: false }
    }
}

impl From<Status> for ClaimCreationError {
    fn from(status: Status) -> Self {
        ClaimCreationError::because(status.to_string())
    }
}

impl<A: Api> ResourceClaimController<A> {
    /// Returns the name of the claim to record in the pod's status, creating the claim if none exists; `None` if there is no change.
    /// `own_claims` caches the result of [`own_claim_names`] across calls.
    pub(super) async fn ensure_claim(
        &self,
        pod: &Value,
        statuses: &ClaimStatuses<'_>,
        one: &Value,
        own_claims: &mut Option<HashMap<Str, Str>>,
    ) -> Result<Option<Str>, ClaimCreationError> {
        let namespace = meta::namespace(pod);
        match statuses.resolve(one) {
            Err(UnresolvedClaim::Unknown) => {
                let entry = one.str_at(&["name"]).unwrap_or_default();
                return Err(ClaimCreationError::because(format!(
                    "checking for claim before creating it: pod claim {entry}: none of the supported fields are set"
                )));
            }
            // Nothing is created for an entry that names its claim, so the claim need not be read.
            Ok(None | Some(ResolvedClaim { created_for_pod: false, .. })) => return Ok(None),
            Ok(Some(ResolvedClaim { name, created_for_pod: true })) => {
                let stored = self.api.get(&self.claims.object_ref(namespace, &name))?;
                if stored.is_some_and(|claim| is_owned_by_pod(pod, &claim)) {
                    return Ok(None);
                }
            }
            Err(UnresolvedClaim::NotYet) => {}
        }
        let Some(template) = one.str_at(&["resourceClaimTemplateName"]) else { return Ok(None) };
        let pod_claim = one.str_at(&["name"]).unwrap_or_default();
        // A claim may have been created while the update of the pod's status failed.
        let own = match own_claims {
            Some(own) => own,
            None => own_claims.insert(own_claim_names(pod, &self.api.list(&self.claims, namespace)?)),
        };
        if let Some(orphan) = own.get(pod_claim) {
            return Ok(Some(orphan.clone()));
        }
        self.create_from_template(pod, pod_claim, template).await.map(Some)
    }

    /// Creates the claim of a pod for one entry of `spec.resourceClaims` and returns its name.
    async fn create_from_template(
        &self,
        pod: &Value,
        pod_claim: &str,
        template_name: &str,
    ) -> Result<Str, ClaimCreationError> {
        let namespace = meta::namespace(pod);
        let stored = self.api.get(&self.templates.object_ref(namespace, template_name))?;
        let quoted = api::field::quote(template_name);
        let template = stored.ok_or_else(|| {
            ClaimCreationError::because(format!(
                "resource claim template {quoted}: resourceclaimtemplate.resource.k8s.io {quoted} not found"
            ))
        })?;
        let requests = template.list_at(&["spec", "spec", "devices", "requests"]);
        let admin_access = api::admin_access::first_asking(requests).is_some();
        if admin_access && !self.admin_access {
            return Err(ClaimCreationError::because(
                "admin access is requested, but the feature is disabled",
            ));
        }
        // The server would reject the claim on every attempt.
        if admin_access && !self.allows_admin_access(namespace)? {
            let why = format!("resource claim template {quoted}: {}", api::admin_access::refusal());
            return Err(ClaimCreationError { why, needs_namespace_change: true });
        }
        let claim = from_template(pod, pod_claim, &template);
        let created = self.api.create(&self.claims, namespace, &claim).await;
        if let Some(ObserveClaims(observer)) = &self.observer {
            observer.created(admin_access, created.is_ok());
        }
        created
            .map(|claim| meta::name(&claim).into())
            .map_err(|why| ClaimCreationError::because(format!("create ResourceClaim : {why}")))
    }

    /// Reports whether a namespace is labeled for admin access to devices.
    fn allows_admin_access(&self, namespace: &str) -> Result<bool, Status> {
        let namespace = self.api.get(&self.namespaces.object_ref("", namespace))?;
        Ok(namespace.is_some_and(|namespace| api::admin_access::allowed_by(&namespace).is_some()))
    }
}

/// Names of the claims that were created for a pod and are not being deleted, by the entry of `spec.resourceClaims`.
pub(super) fn own_claim_names(pod: &Value, claims: &[Value]) -> HashMap<Str, Str> {
    let mut names = HashMap::new();
    for claim in claims.iter().filter(|claim| is_owned_by_pod(pod, claim) && !meta::is_deleting(claim)) {
        if let Some(entry) = claim.str_at(&["metadata", "annotations", POD_CLAIM]) {
            names.entry(entry.into()).or_insert_with(|| meta::name(claim).into());
        }
    }
    names
}

pub(super) fn from_template(pod: &Value, pod_claim: &str, template: &Value) -> Value {
    let mut claim = Value::map([("apiVersion", "resource.k8s.io/v1"), ("kind", "ResourceClaim")]);
    claim.set_at(&["metadata", "generateName"], base_name(meta::name(pod), pod_claim));
    for field in ["labels", "annotations"] {
        if let Some(given) = template.at(&["spec", "metadata", field]) {
            claim.set_at(&["metadata", field], given.clone());
        }
    }
    claim.set_at(&["metadata", "annotations", POD_CLAIM], pod_claim);
    let owner = Value::map([
        ("apiVersion", Value::from("v1")),
        ("kind", Value::from("Pod")),
        ("name", Value::from(meta::name(pod))),
        ("uid", Value::from(meta::uid(pod))),
        ("controller", Value::Bool(true)),
    ]);
    claim.set_at(&["metadata", "ownerReferences"], Value::List(vec![owner]));
    claim.set_at(&["spec"], template.at(&["spec", "spec"]).cloned().unwrap_or_default());
    claim
}

/// Joins both names for `generateName`, truncating each in proportion if they are too long together.
pub(super) fn base_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= MAX_BASE {
        return whole;
    }
    let share = |name: &str| name.len() * MAX_BASE / whole.len();
    format!("{}-{}", first_chars(pod, share(pod)), first_chars(claim, share(claim)))
}
