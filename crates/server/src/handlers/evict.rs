//! `pods/eviction`: deletes a pod unless a PodDisruptionBudget forbids it.

use std::sync::Arc;

use api::selector::LabelSelector;
use api::time::Timestamp;
use api::{FieldError, GroupResource, GroupVersionKind, Status, StatusCause, StatusDetails, meta};
use catalog::{ServedResource, Subresource};
use requests::options::{DeleteOptions, UNREADABLE, WriteOptions};
use storage::StoredEntry;
use value::{Path, Value};

use super::delete::{self, DeleteProgress};
use super::pods::{posted, success};
use crate::call::{Call, HandlerResponse};
use crate::consistent_reads;
use crate::ownership::FieldTracking;
use crate::state::State;
use crate::write::{
    AdmittedDelete, AdmittedPost, CONFLICT_ATTEMPTS, MarkProof, Marked, OPTIMISTIC_LOCK, Posted, StoreError,
    WriteContext, WriteOutcome,
};

/// Maximum number of disrupted pods that the disruption controller has not yet confirmed.
const MAX_DISRUPTED: usize = 2000;

pub async fn evict(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let expected = GroupVersionKind::new("policy", "v1", "Eviction");
    let eviction = posted(call, &expected, &options).await?;
    let name = call.info.name.to_string();
    let post = Posted::create(state, kind, "eviction", expected.clone(), &name, &options);
    let eviction = post.mutate(call, eviction).await?;
    if meta::name(&eviction) != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    if eviction.bool_at(&["deleteOptions", UNREADABLE]) == Some(true) {
        let path = Path::root().field("deleteOptions").field(UNREADABLE);
        let why = "can not be set for pod eviction, try after removing the option";
        let errors = [FieldError::invalid(&path, true, why)];
        return Err(Status::invalid(&expected.group_kind(), &name, &errors));
    }
    let admitted = post.validate_for_pod(call, &eviction).await?;
    let mut deletion = match eviction.at(&["deleteOptions"]) {
        Some(body) => DeleteOptions::from_body(body)?,
        None => DeleteOptions::default(),
    };
    deletion.dry_run |= options.dry_run;
    // With a resource version as precondition, a conflict is final.
    let attempts = if deletion.resource_version.is_some() { 1 } else { CONFLICT_ATTEMPTS };
    let key = kind.key(&call.info.namespace, &name);
    for attempt in 1..=attempts {
        call.effort.begin_attempt(call.deadline)?;
        let entry = consistent_reads::entry(&state.storage.store, &key).await?;
        let entry = entry.ok_or_else(|| Status::not_found(&kind.resource, &name))?;
        call.enter_lane(entry.body.len()).await;
        let pod = kind.shapes().load_built_in(&entry)?;
        let mut deletion = deletion.clone();
        if !ignores_budgets(&pod) {
            // Check the budget with a dry run and admit the deletion before any write.
            spend_budget(state, call, &admitted, &pod, true).await?;
            let deleted = delete::admit(state, call, kind, &entry, &pod, &deletion).await?;
            let unready = spend_budget(state, call, &admitted, &pod, deletion.dry_run).await?;
            if unready.is_some() {
                // Pin the revision: if the pod becomes ready meanwhile, the budget applies to it.
                deletion.resource_version = Some(entry.revision.to_string());
            }
            let evicting = Evicting { admitted: &admitted, entry: &entry, deleted };
            return match (remove(state, call, kind, evicting, &deletion).await, unready) {
                (Err(status), Some(budget)) if status.code() == 409 => Err(in_progress(&budget)),
                (outcome, _) => outcome,
            };
        }
        if deletion.resource_version.is_none()
            && pod.str_at(&["status", "phase"]) == Some("Pending")
            && !meta::is_deleting(&pod)
        {
            deletion.resource_version = Some(entry.revision.to_string());
        }
        let deleted = delete::admit(state, call, kind, &entry, &pod, &deletion).await?;
        let evicting = Evicting { admitted: &admitted, entry: &entry, deleted };
        match remove(state, call, kind, evicting, &deletion).await {
            Err(status) if status.code() == 409 && attempt < attempts => {}
            outcome => return outcome,
        }
    }
    Err(Status::conflict(&kind.resource, &name, OPTIMISTIC_LOCK))
}

/// An admitted eviction that the budget allows.
struct Evicting<'a> {
    admitted: &'a AdmittedPost,
    entry: &'a Arc<StoredEntry>,
    /// The admitted deletion; `None` if the pod is being deleted already.
    deleted: Option<AdmittedDelete>,
}

/// Adds the condition `DisruptionTarget` to the pod and deletes it.
async fn remove(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
    evicting: Evicting<'_>,
    deletion: &DeleteOptions,
) -> Result<HandlerResponse, Status> {
    let name = call.info.name.to_string();
    let mut deletion = deletion.clone();
    let mut deleted = evicting.deleted;
    if !deletion.dry_run {
        let marked = mark_evicted(state, call, kind, (evicting.admitted, evicting.entry), &deletion).await?;
        // If the pod was changed meanwhile, its deletion must be admitted again.
        deleted = deleted.and_then(|deleted| marked.carry(deleted));
        // The precondition refers to the revision before this server's own mark.
        if let (WriteOutcome::Entry(entry), Some(_)) = (&marked.outcome, &deletion.resource_version) {
            deletion.resource_version = Some(entry.revision.to_string());
        }
    }
    let progress = deleted.map_or(DeleteProgress::Nothing, DeleteProgress::Admitted);
    delete::delete(state, call, kind, (&name, &name), &deletion, progress).await?;
    Ok(HandlerResponse::Object(201, success()))
}

/// Adds the condition `DisruptionTarget` to the pod, retrying on conflicts.
async fn mark_evicted(
    state: &Arc<State>,
    call: &Call,
    kind: &ServedResource,
    (admitted, first): (&AdmittedPost, &Arc<StoredEntry>),
    deletion: &DeleteOptions,
) -> Result<Marked, Status> {
    let (options, name) = (Value::Null, call.info.name.as_str());
    let context = WriteContext {
        state,
        kind,
        subresource: Subresource::Status,
        options: &options,
        dry_run: false,
        tracking: FieldTracking::Settled,
    };
    let mut entry = Arc::clone(first);
    for _ in 0..CONFLICT_ATTEMPTS {
        call.effort.begin_attempt(call.deadline)?;
        let mut pod = kind.shapes().load_built_in(&entry)?;
        check_preconditions(&pod, &entry, deletion)?;
        let mut conditions = pod.list_at(&["status", "conditions"]).to_vec();
        let known = conditions.iter_mut().find(|c| c.str_at(&["type"]) == Some("DisruptionTarget"));
        // A condition that is already true keeps its transition time.
        let since = known.as_ref().filter(|c| c.str_at(&["status"]) == Some("True"));
        let since = since.and_then(|c| c.get("lastTransitionTime")).cloned();
        let since = since.unwrap_or_else(|| Timestamp::from_seconds(call.now).time().into());
        let condition = Value::map([
            ("lastProbeTime", Value::Null),
            ("lastTransitionTime", since),
            ("message", Value::from("Eviction API: evicting")),
            ("reason", Value::from("EvictionByEvictionAPI")),
            ("status", Value::from("True")),
            ("type", Value::from("DisruptionTarget")),
        ]);
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
        pod.set_at(&["status", "conditions"], Value::List(conditions));
        match context.store_mark(call, MarkProof::Post(admitted), &entry, &pod, name).await {
            Ok(marked) => return Ok(marked),
            Err(StoreError::Refused(status) | StoreError::Failed(status)) => return Err(status),
            Err(StoreError::Conflict) => {}
        }
        let key = kind.key(&call.info.namespace, name);
        entry = state.storage.store.get(&key).ok_or_else(|| Status::not_found(&kind.resource, name))?;
    }
    Err(Status::conflict(&kind.resource, name, OPTIMISTIC_LOCK))
}

fn check_preconditions(pod: &Value, entry: &StoredEntry, deletion: &DeleteOptions) -> Result<(), Status> {
    let refuse = |why: String| Err(Status::conflict(&GroupResource::new("", "Pod"), meta::name(pod), why));
    let uid = meta::uid(pod);
    if let Some(wanted) = deletion.uid.as_deref().filter(|wanted| !wanted.is_empty() && *wanted != uid) {
        return refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    let revision = entry.revision.to_string();
    let wanted = deletion.resource_version.as_deref();
    if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty() && *wanted != revision) {
        return refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}

/// Pods that are pending, finished or being deleted are not protected by budgets.
fn ignores_budgets(pod: &Value) -> bool {
    meta::is_deleting(pod)
        || matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed" | "Pending"))
}

/// Uses one allowed disruption of the budget that selects the pod, if there is one; fails if none is left. Returns the name of the budget
/// if the pod may be evicted without using a disruption, because it is not ready.
async fn spend_budget(
    state: &Arc<State>,
    call: &Call,
    admitted: &AdmittedPost,
    pod: &Value,
    dry_run: bool,
) -> Result<Option<String>, Status> {
    let budgets = state
        .apis
        .catalog
        .find(&"policy".into(), &"v1".into(), &"poddisruptionbudgets".into())
        .ok_or_else(Status::no_such_resource)?;
    let options = Value::Null;
    let context = WriteContext {
        state,
        kind: &budgets,
        subresource: Subresource::Status,
        options: &options,
        dry_run,
        tracking: FieldTracking::Settled,
    };
    let mut name = String::new();
    for _ in 0..CONFLICT_ATTEMPTS {
        call.effort.begin_attempt(call.deadline)?;
        let mut covering = Vec::new();
        let scope = budgets.scope(&call.info.namespace);
        let entries = consistent_reads::entries(&state.storage.store, &scope).await?;
        call.enter_lane_for_all(&entries).await;
        for entry in &entries {
            let budget = budgets.shapes().load_built_in(entry)?;
            let selector = LabelSelector::from_label_selector(budget.at(&["spec", "selector"]));
            if selector.is_ok_and(|selector| selector.matches_object(pod)) {
                covering.push((Arc::clone(entry), budget));
            }
            heavy_lane::yield_after(entry.body.len()).await;
        }
        let (entry, mut budget) = match covering.len() {
            0 => return Ok(None),
            1 => covering.swap_remove(0),
            _ => {
                return Err(Status::plain(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        meta::name(&budget).clone_into(&mut name);
        if may_go_unready(pod, &budget) {
            return Ok(Some(name));
        }
        let left = check_budget(&budget)? - 1;
        budget.set_at(&["status", "disruptionsAllowed"], left);
        let time = Timestamp::from_seconds(call.now).time();
        if left == 0 {
            set_exhausted(&mut budget, &time);
        }
        budget.set_at(&["status", "disruptedPods", meta::name(pod)], time);
        match context.store_mark(call, MarkProof::Post(admitted), &entry, &budget, &name).await {
            Ok(_) => return Ok(None),
            Err(StoreError::Refused(status) | StoreError::Failed(status)) => return Err(status),
            Err(StoreError::Conflict) => {}
        }
    }
    let quoted = api::field::quote(&name);
    Err(Status::timeout(format!("couldn't update PodDisruptionBudget {quoted} due to conflicts"), 10))
}

/// The number of disruptions that a budget allows, at least 1; otherwise an error with the reason.
fn check_budget(budget: &Value) -> Result<i64, Status> {
    let name = meta::name(budget);
    let number = |field: &str| budget.int_at(&["status", field]).unwrap_or(0);
    if number("observedGeneration") < budget.int_at(&["metadata", "generation"]).unwrap_or(0) {
        return Err(in_progress(name));
    }
    let forbid = |why: &str, detail: &str| {
        let resource = GroupResource::new("policy", "poddisruptionbudget");
        let cause = StatusCause {
            reason: "DisruptionBudget".into(),
            message: format!("The disruption budget {name} does not allow evicting pods currently: {detail}"),
            ..StatusCause::default()
        };
        Err(Status::forbidden_with_cause(&resource, name, why, cause))
    };
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return forbid("pdb disruptions allowed is negative", "pdb disruptions allowed is negative");
    }
    let disrupted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_map);
    if disrupted.is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return forbid(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        );
    }
    if allowed > 0 {
        return Ok(allowed);
    }
    let (desired, current) = (number("desiredHealthy"), number("currentHealthy"));
    let condition = budget
        .list_at(&["status", "conditions"])
        .iter()
        .find(|condition| condition.str_at(&["type"]) == Some("DisruptionAllowed"))
        .filter(|condition| condition.str_at(&["status"]) == Some("False"));
    let reason = condition.and_then(|condition| condition.str_at(&["reason"])).unwrap_or_default();
    let message =
        condition.and_then(|condition| condition.str_at(&["message"])).filter(|message| !message.is_empty());
    let why = match message {
        // After a failed sync the numbers in the status are not reliable.
        Some(message) if reason == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(message) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Err(over_budget(why, 0))
}

/// Sets the condition `DisruptionAllowed` to false.
fn set_exhausted(budget: &mut Value, now: &str) {
    let generation = budget.int_at(&["status", "observedGeneration"]).unwrap_or(0);
    let mut conditions = budget.list_at(&["status", "conditions"]).to_vec();
    let known = conditions.iter_mut().find(|c| c.str_at(&["type"]) == Some("DisruptionAllowed"));
    let condition = match known {
        Some(condition) => condition,
        None => {
            conditions.push(Value::map([("type", "DisruptionAllowed")]));
            match conditions.last_mut() {
                Some(condition) => condition,
                None => return,
            }
        }
    };
    if condition.str_at(&["status"]) != Some("False") {
        condition.set_at(&["lastTransitionTime"], now);
    }
    condition.set_at(&["status"], "False");
    condition.set_at(&["reason"], "InsufficientPods");
    condition.set_at(&["message"], "");
    condition.set_at(&["observedGeneration"], generation);
    budget.set_at(&["status", "conditions"], conditions);
}

/// Reports whether a pod that is not ready may be evicted without using the budget: the budget has enough healthy pods, or its
/// `unhealthyPodEvictionPolicy` is `AlwaysAllow`.
fn may_go_unready(pod: &Value, budget: &Value) -> bool {
    let ready = pod
        .list_at(&["status", "conditions"])
        .iter()
        .any(|c| c.str_at(&["type"]) == Some("Ready") && c.str_at(&["status"]) == Some("True"));
    if ready {
        return false;
    }
    let number = |field: &str| budget.int_at(&["status", field]).unwrap_or(0);
    let healthy = number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
    healthy || budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == Some("AlwaysAllow")
}

fn in_progress(budget: &str) -> Status {
    over_budget(format!("The disruption budget {budget} is still being processed by the server."), 10)
}

fn over_budget(why: String, retry_after_seconds: u32) -> Status {
    Status::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
        .with_details(StatusDetails {
            causes: vec![StatusCause {
                reason: "DisruptionBudget".into(),
                message: why,
                ..StatusCause::default()
            }],
            retry_after_seconds,
            ..StatusDetails::default()
        })
}
