//! The resource claim controller: creates claims from templates for pods, reserves allocated claims for pods that were bound without
//! the scheduler, and deallocates claims that no pod uses any more.
//!
//! Claims created here pass the request pipeline like any other: a template that was once allowed to ask for admin access cannot
//! create a claim in a namespace that no longer allows it.

mod counts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, PatchBody, ResourceKind, WatchSource, unless_gone};
use crate::drive::{self, Controller, Next};
use crate::events;
pub use counts::{ClaimLabels, ClaimObserver, ObserveClaims};

pub(crate) const NAME: &str = "resource-claim-controller";

/// Reporting component of the emitted events.
const EVENT_SOURCE: &str = "resource_claim";
/// Finalizer that protects an allocated claim from deletion.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation with the entry of `spec.resourceClaims` that the claim was created for.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Maximum number of pods in `status.reservedFor`, as in kube-apiserver.
pub(crate) const MAX_RESERVATIONS: usize = 256;
/// Delay before a reservation for an unobserved pod is checked: the reserving scheduler may have seen the pod earlier than we did.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum bytes of a generated name before the random suffix.
const MAX_BASE: usize = 57;

#[expect(clippy::struct_field_names, reason = "each is called for the kind it is")]
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

/// Index of the claims and templates that pods reference, by namespace and name.
#[derive(Default)]
struct PodClaimIndex {
    by_claim: HashMap<(Str, Str), BTreeSet<Str>>,
    by_template: HashMap<(Str, Str), BTreeSet<Str>>,
    /// Claim names and template names of each pod, used to remove its index entries.
    of_pod: HashMap<(Str, Str), (Vec<Str>, Vec<Str>)>,
}

impl PodClaimIndex {
    /// Reports whether every pod that a claim is reserved for has been observed.
    fn has_all_reserving_pods(&self, namespace: &Str, claim: &Value) -> bool {
        let seen = |reservation: &Value| {
            let pod = Str::from(reservation.str_at(&["name"]).unwrap_or_default());
            self.of_pod.contains_key(&(namespace.clone(), pod))
        };
        reservations(claim).iter().all(|reservation| !is_for_pod(reservation) || seen(reservation))
    }

    /// Keys of the pods in a namespace that reference claim templates.
    fn with_templates_in(&self, namespace: &Str) -> Vec<ClaimControllerKey> {
        let pods =
            self.of_pod.iter().filter(|((own, _), (_, templates))| own == namespace && !templates.is_empty());
        pods.map(|((namespace, name), _)| ClaimControllerKey::Pod {
            namespace: namespace.clone(),
            name: name.clone(),
        })
        .collect()
    }

    fn forget(&mut self, namespace: &Str, pod: &Str) {
        let Some((claims, templates)) = self.of_pod.remove(&(namespace.clone(), pod.clone())) else { return };
        for (index, names) in [(&mut self.by_claim, claims), (&mut self.by_template, templates)] {
            for name in names {
                let key = (namespace.clone(), name);
                if let Some(pods) = index.get_mut(&key) {
                    pods.remove(pod);
                    if pods.is_empty() {
                        index.remove(&key);
                    }
                }
            }
        }
    }

    fn remember(&mut self, namespace: &Str, pod: &Str, object: &Value) {
        self.forget(namespace, pod);
        let entries = object.list_at(&["spec", "resourceClaims"]);
        let extended = extended_claim(object);
        if entries.is_empty() && extended.is_none() {
            return;
        }
        let claims: Vec<Str> = entries
            .iter()
            .filter_map(|one| resolve_claim(object, one).ok().flatten())
            .map(|resolved| resolved.name)
            .chain(extended.map(Str::from))
            .collect();
        let templates: Vec<Str> = entries
            .iter()
            .filter_map(|one| one.str_at(&["resourceClaimTemplateName"]))
            .map(Str::from)
            .collect();
        for (index, names) in [(&mut self.by_claim, &claims), (&mut self.by_template, &templates)] {
            for name in names {
                index.entry((namespace.clone(), name.clone())).or_default().insert(pod.clone());
            }
        }
        self.of_pod.insert((namespace.clone(), pod.clone()), (claims, templates));
    }
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
                let asks = !change.object.list_at(&["spec", "resourceClaims"]).is_empty();
                if asks { vec![pod(name)] } else { Vec::new() }
            }
        } else if change.object_ref.kind == self.claims {
            let mut keys: Vec<(ClaimControllerKey, Duration)> =
                all(&pod_claims.by_claim).into_iter().map(|key| (key, Duration::ZERO)).collect();
            if !change.deleted {
                let wait = if pod_claims.has_all_reserving_pods(namespace, &change.object) {
                    Duration::ZERO
                } else {
                    PATIENCE
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

    async fn reconcile(&self, key: ClaimControllerKey) -> Result<Next<ClaimControllerKey>, Status> {
        match key {
            ClaimControllerKey::Pod { namespace, name } => self.pod(&namespace, &name).await,
            ClaimControllerKey::Claim { namespace, name } => self.claim(&namespace, &name).await,
        }?;
        Ok(Next::Done)
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
        let mut there = None;
        for one in entries {
            match self.ensure_claim(&pod, one, &mut there).await {
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
        for one in entries {
            self.reserve(&pod, one).await?;
        }
        Ok(())
    }

    /// Returns the name of the claim to record in the pod's status, creating the claim if none exists; `None` if there is no change.
    /// `there` caches the claims owned by the pod across calls.
    async fn ensure_claim(
        &self,
        pod: &Value,
        one: &Value,
        there: &mut Option<Vec<Value>>,
    ) -> Result<Option<Str>, ClaimCreationError> {
        let namespace = meta::namespace(pod);
        match resolve_claim(pod, one) {
            Err(UnresolvedClaim::Unknown) => {
                let entry = one.str_at(&["name"]).unwrap_or_default();
                return Err(ClaimCreationError::because(format!(
                    "checking for claim before creating it: pod claim {entry}: none of the supported fields are set"
                )));
            }
            Ok(None) => return Ok(None),
            Ok(Some(ResolvedClaim { name, created_for_pod })) => {
                let there = self.api.get(&self.claims.object_ref(namespace, &name))?;
                if there.is_some_and(|claim| !created_for_pod || is_owned_by_pod(pod, &claim)) {
                    return Ok(None);
                }
            }
            Err(UnresolvedClaim::NotYet) => {}
        }
        let Some(template) = one.str_at(&["resourceClaimTemplateName"]) else { return Ok(None) };
        let pod_claim = one.str_at(&["name"]).unwrap_or_default();
        // A claim may have been created while the update of the pod's status failed.
        let own = match there {
            Some(own) => own,
            None => {
                let mut all = self.api.list(&self.claims, namespace)?;
                all.retain(|claim| is_owned_by_pod(pod, claim));
                there.insert(all)
            }
        };
        let orphan = own.iter().find(|claim| {
            !meta::is_deleting(claim)
                && claim.str_at(&["metadata", "annotations", POD_CLAIM]) == Some(pod_claim)
        });
        if let Some(orphan) = orphan {
            return Ok(Some(meta::name(orphan).into()));
        }
        let there = self.api.get(&self.templates.object_ref(namespace, template))?;
        let quoted = api::field::quote(template);
        let template = there.ok_or_else(|| {
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
            .map(|claim| Some(meta::name(&claim).into()))
            .map_err(|why| ClaimCreationError::because(format!("create ResourceClaim : {why}")))
    }

    /// Reports whether a namespace is labelled for admin access to devices.
    fn allows_admin_access(&self, namespace: &str) -> Result<bool, Status> {
        let namespace = self.api.get(&self.namespaces.object_ref("", namespace))?;
        Ok(namespace.is_some_and(|namespace| api::admin_access::allowed_by(&namespace).is_some()))
    }

    /// Reserves an allocated claim for a pod that was bound without the scheduler.
    async fn reserve(&self, pod: &Value, one: &Value) -> Result<(), Status> {
        let Ok(Some(ResolvedClaim { name, created_for_pod })) = resolve_claim(pod, one) else {
            return Ok(());
        };
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
        let guarded = |claim: &Value| meta::finalizers(claim).any(|one| one == FINALIZER);
        if left.len() < before {
            claim.set_at(&["status", "reservedFor"], Value::List(left));
            if unused && guarded(&claim) {
                claim.remove_at(&["status", "allocation"]);
            }
            claim = self.api.update(&object_ref, "status", &claim).await?;
            if guarded(&claim) && !is_allocated(&claim) {
                claim = self.unguard(claim, &object_ref).await?;
            }
        } else if guarded(&claim) && meta::is_deleting(&claim) && unused {
            if is_allocated(&claim) {
                claim.remove_at(&["status", "allocation"]);
                claim = self.api.update(&object_ref, "status", &claim).await?;
            }
            claim = self.unguard(claim, &object_ref).await?;
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
    async fn unguard(
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

/// The reason why no claim was created for a pod.
struct ClaimCreationError {
    why: String,
    /// Only a change of the namespace's labels can resolve the failure.
    needs_namespace_change: bool,
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

/// The claim that an entry of `spec.resourceClaims` refers to.
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

/// Resolves an entry of `spec.resourceClaims`; `None` if the pod's status records that it needs no claim.
pub(crate) fn resolve_claim(pod: &Value, one: &Value) -> Result<Option<ResolvedClaim>, UnresolvedClaim> {
    if let Some(name) = one.str_at(&["resourceClaimName"]) {
        return Ok(Some(ResolvedClaim { name: name.into(), created_for_pod: false }));
    }
    if one.str_at(&["resourceClaimTemplateName"]).is_none() {
        return Err(UnresolvedClaim::Unknown);
    }
    let statuses = pod.list_at(&["status", "resourceClaimStatuses"]);
    let noted = statuses.iter().find(|status| status.str_at(&["name"]) == one.str_at(&["name"]));
    let noted = noted.ok_or(UnresolvedClaim::NotYet)?;
    Ok(noted
        .str_at(&["resourceClaimName"])
        .map(|name| ResolvedClaim { name: name.into(), created_for_pod: true }))
}

/// The claim that a scheduler created for extended resources of a pod that DRA drivers provide.
fn extended_claim(pod: &Value) -> Option<&str> {
    pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"])
}

/// Reports whether the pod is the controlling owner of a claim.
pub(crate) fn is_owned_by_pod(pod: &Value, claim: &Value) -> bool {
    owning_pod(claim).is_some_and(|owner| owner.str_at(&["uid"]) == Some(meta::uid(pod)))
}

fn owning_pod(claim: &Value) -> Option<&Value> {
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
fn is_for_pod(reservation: &Value) -> bool {
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

/// Builds the claim of a pod from its template.
fn from_template(pod: &Value, pod_claim: &str, template: &Value) -> Value {
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
fn base_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= MAX_BASE {
        return whole;
    }
    let cut = |name: &str| name.chars().take(name.len() * MAX_BASE / whole.len()).collect::<String>();
    format!("{}-{}", cut(pod), cut(claim))
}

#[cfg(test)]
mod tests;
