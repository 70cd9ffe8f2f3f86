//! `pods/binding` and `pods/eviction`.

use std::sync::Arc;

use admission::Operation;
use api::selector::Selector;
use api::time::Timestamp;
use api::{Cause, Details, GroupKind, GroupResource, GroupVersionKind, Status, meta};
use value::{Map, Value};

use super::delete;
use crate::call::{Answer, Call};
use crate::catalog::{Facet, Kind};
use crate::decode;
use crate::encode;
use crate::negotiate;
use crate::options::{DeleteOptions, WriteOptions};
use crate::ownership::Writer;
use crate::state::State;
use crate::write::{OPTIMISTIC_LOCK, Posted, StoreError, Subject};

/// How often a write that lost against another one is made anew.
const ATTEMPTS: usize = 16;
/// How many evictions a budget's controller may leave unconfirmed.
const MAX_DISRUPTED: usize = 2000;

/// `pods/binding` and `bindings`: puts a pod on a node.
pub async fn bind(state: &Arc<State>, call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let expected = GroupVersionKind::new("", "v1", "Binding");
    let binding = posted(call, &expected, &options).await?;
    let pod =
        if call.info.name.is_empty() { meta::name(&binding).to_owned() } else { call.info.name.to_string() };
    if meta::name(&binding) != pod {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let subresource = if kind.gvk.kind == "Pod" { "binding" } else { "" };
    let options_value = options.to_value("CreateOptions");
    let post = Posted {
        state,
        kind,
        subresource,
        posted: expected,
        name: &pod,
        operation: Operation::Create,
        options: &options_value,
        dry_run: options.dry_run,
    };
    let binding = post.mutate(call, binding).await?;
    let errors = resources::validation::rules(&GroupKind::new("", "Binding"))
        .map(|rules| (rules.create)(&binding, &state.validation_context(call.now)))
        .unwrap_or_default();
    if !errors.is_empty() {
        // Kubernetes loses the status on the way.
        return Err(Status::plain(api::field::aggregate(&errors)));
    }
    post.validate(call, &binding).await?;

    let pods = pods(state)?;
    let subject = Subject {
        state,
        kind: &pods,
        facet: Facet::Whole,
        options: &options_value,
        dry_run: options.dry_run,
        writer: Writer::Settled,
    };
    let key = pods.key(&call.info.namespace, &pod);
    for _ in 0..ATTEMPTS {
        let entry = state.store.get(&key).ok_or_else(|| Status::not_found(&pods.resource, &pod))?;
        let mut object = encode::tree(&entry)?;
        let (uid, wanted) = (meta::uid(&object), meta::uid(&binding));
        if !wanted.is_empty() && wanted != uid {
            return Err(Status::conflict(&pods.resource, &pod, pods.uid_mismatch(&key, wanted, uid)));
        }
        assign(&mut object, &binding, call.now)
            .map_err(|why| Status::conflict(&GroupResource::new("", "pods/binding"), &pod, why))?;
        match subject.store_mark(&entry, &object, &pod).await {
            Ok(_) => return Ok(Answer::Object(201, success())),
            Err(StoreError::Refused(status)) => return Err(status),
            Err(StoreError::Conflict) => {}
        }
    }
    Err(Status::conflict(&pods.resource, &pod, OPTIMISTIC_LOCK))
}

fn assign(pod: &mut Value, binding: &Value, now: i64) -> Result<(), String> {
    let name = meta::name(pod).to_owned();
    if meta::is_deleting(pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {}", api::field::quote(node)));
    }
    if !pod.list_at(&["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.set_at(&["spec", "nodeName"], binding.str_at(&["target", "name"]).unwrap_or_default());
    let annotations: Vec<(String, String)> =
        meta::annotations(binding).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    for (key, value) in annotations {
        pod.set_at(&["metadata", "annotations", &key], value);
    }
    let mut conditions = pod.list_at(&["status", "conditions"]).to_vec();
    conditions.retain(|c| c.str_at(&["type"]) != Some("PodScheduled"));
    let time = Timestamp::from_seconds(now).time();
    conditions.push(Value::map([
        ("lastProbeTime", Value::Null),
        ("lastTransitionTime", Value::from(time)),
        ("status", Value::from("True")),
        ("type", Value::from("PodScheduled")),
    ]));
    pod.set_at(&["status", "conditions"], Value::List(conditions));
    Ok(())
}

/// `pods/eviction`: a deletion that a disruption budget may refuse.
pub async fn evict(state: &Arc<State>, call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let expected = GroupVersionKind::new("policy", "v1", "Eviction");
    let eviction = posted(call, &expected, &options).await?;
    let name = call.info.name.to_string();
    if !meta::name(&eviction).is_empty() && meta::name(&eviction) != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let options_value = options.to_value("CreateOptions");
    let post = Posted {
        state,
        kind,
        subresource: "eviction",
        posted: expected,
        name: &name,
        operation: Operation::Create,
        options: &options_value,
        dry_run: options.dry_run,
    };
    let eviction = post.admit(call, eviction).await?;
    let mut deletion = match eviction.at(&["deleteOptions"]) {
        Some(body) => DeleteOptions::from_body(body)?,
        None => DeleteOptions::default(),
    };
    deletion.dry_run |= options.dry_run;
    let entry = state
        .store
        .get(&kind.key(&call.info.namespace, &name))
        .ok_or_else(|| Status::not_found(&kind.resource, &name))?;
    let pod = encode::tree(&entry)?;
    if !ignores_budgets(&pod) {
        spend_budget(state, call, &pod, deletion.dry_run).await?;
    }
    mark_evicted(state, call, kind, &name, deletion.dry_run).await?;
    delete::delete(state, call, kind, &name, &name, &deletion).await?;
    Ok(Answer::Object(201, success()))
}

/// Says on the pod why it goes.
async fn mark_evicted(
    state: &Arc<State>,
    call: &Call,
    kind: &Kind,
    name: &str,
    dry_run: bool,
) -> Result<(), Status> {
    let options = Value::Null;
    let subject =
        Subject { state, kind, facet: Facet::Status, options: &options, dry_run, writer: Writer::Settled };
    for _ in 0..ATTEMPTS {
        let key = kind.key(&call.info.namespace, name);
        let entry = state.store.get(&key).ok_or_else(|| Status::not_found(&kind.resource, name))?;
        let mut pod = encode::tree(&entry)?;
        let mut conditions = pod.list_at(&["status", "conditions"]).to_vec();
        conditions.retain(|c| c.str_at(&["type"]) != Some("DisruptionTarget"));
        conditions.push(Value::map([
            ("lastProbeTime", Value::Null),
            ("lastTransitionTime", Value::from(Timestamp::from_seconds(call.now).time())),
            ("message", Value::from("Eviction API: evicting")),
            ("reason", Value::from("EvictionByEvictionAPI")),
            ("status", Value::from("True")),
            ("type", Value::from("DisruptionTarget")),
        ]));
        pod.set_at(&["status", "conditions"], Value::List(conditions));
        match subject.store_mark(&entry, &pod, name).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Refused(status)) => return Err(status),
            Err(StoreError::Conflict) => {}
        }
    }
    Err(Status::conflict(&kind.resource, name, OPTIMISTIC_LOCK))
}

/// A pod that does no work any more, or not yet, is nobody's budget.
fn ignores_budgets(pod: &Value) -> bool {
    meta::is_deleting(pod)
        || matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed" | "Pending"))
}

/// Takes one disruption off the budget that covers the pod, if there is one and it has any left.
async fn spend_budget(state: &Arc<State>, call: &Call, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let budgets = state
        .catalog
        .find(&"policy".into(), &"v1".into(), &"poddisruptionbudgets".into())
        .ok_or_else(Status::no_such_resource)?;
    let options = Value::Null;
    let subject = Subject {
        state,
        kind: &budgets,
        facet: Facet::Status,
        options: &options,
        dry_run,
        writer: Writer::Settled,
    };
    for _ in 0..ATTEMPTS {
        let mut covering = Vec::new();
        for entry in &state.store.snapshot(&budgets.scope(&call.info.namespace)).entries {
            let budget = encode::tree(entry)?;
            let selector = Selector::from_label_selector(budget.at(&["spec", "selector"]));
            if selector.is_ok_and(|selector| selector.matches_object(pod)) {
                covering.push((Arc::clone(entry), budget));
            }
        }
        let (entry, mut budget) = match covering.len() {
            0 => return Ok(()),
            1 => covering.swap_remove(0),
            _ => {
                return Err(Status::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let name = meta::name(&budget).to_owned();
        if may_go_unready(pod, &budget) {
            return Ok(());
        }
        let disrupted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_map);
        if disrupted.is_some_and(|pods| pods.len() >= MAX_DISRUPTED) {
            let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
            return Err(Status::forbidden(&GroupResource::new("policy", "poddisruptionbudget"), &name, why));
        }
        let number = |field: &str| budget.int_at(&["status", field]).unwrap_or(0);
        let allowed = number("disruptionsAllowed");
        if number("observedGeneration") < budget.int_at(&["metadata", "generation"]).unwrap_or(0) {
            return Err(over_budget(
                format!("The disruption budget {name} is still being processed by the server."),
                10,
            ));
        }
        if allowed <= 0 {
            let why = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            );
            return Err(over_budget(why, 0));
        }
        budget.set_at(&["status", "disruptionsAllowed"], allowed - 1);
        let time = Timestamp::from_seconds(call.now).time();
        budget.set_at(&["status", "disruptedPods", meta::name(pod)], time);
        match subject.store_mark(&entry, &budget, &name).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Refused(status)) => return Err(status),
            Err(StoreError::Conflict) => {}
        }
    }
    Err(over_budget("couldn't update PodDisruptionBudget due to conflicts".to_owned(), 10))
}

/// A pod that is not ready does no work that a budget protects, unless the budget guards it while others are missing.
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

fn over_budget(why: String, retry_after_seconds: u32) -> Status {
    Status::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
        .with_details(Details {
            causes: vec![Cause { reason: "DisruptionBudget".into(), message: why, ..Cause::default() }],
            retry_after_seconds,
            ..Details::default()
        })
}

/// Reads the body as the kind that a subresource takes.
pub async fn posted(
    call: &mut Call,
    expected: &GroupVersionKind,
    options: &WriteOptions,
) -> Result<Value, Status> {
    let media = negotiate::body_media(&call.headers)?;
    let body = call.read_body().await?;
    let tree = decode::tree(&body, media, Some(expected))
        .map_err(|e| Status::bad_request(format!("couldn't get version/kind; {e}")))?;
    decode::other_kind(call, tree, expected, options.field_validation)
}

fn pods(state: &State) -> Result<Arc<Kind>, Status> {
    state.catalog.find(&"".into(), &"v1".into(), &"pods".into()).ok_or_else(Status::no_such_resource)
}

fn success() -> Value {
    let mut status = Value::map([("kind", "Status"), ("apiVersion", "v1"), ("status", "Success")]);
    status.set_at(&["metadata"], Value::Map(Map::new()));
    status.set_at(&["code"], 201_i64);
    status
}
