//! Rules of writes: what an answer promises, and what etcd stored.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::{Context, Rule, RuleViolation};
use crate::history::{
    ClientOperation, ClientRequest, EtcdChange, Outcome, SeenObject, is_owned, merge, uid_of, write_of,
};
use crate::keys::PODS;
use crate::timeline::StoredState;

pub(super) fn check(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    let stored = stored_writes(context);
    let mut requested = HashMap::new();
    for operation in &context.history.operations {
        if let Some(write) = operation.request.write() {
            requested.insert(write, operation);
            let changes = stored.get(&write).map_or(&[][..], Vec::as_slice);
            check_put(context, operation, changes, violations);
        }
        check_refusal(context, operation, violations);
    }
    check_deletions(context, violations);
    for (write, changes) in &stored {
        if let (false, Some(change)) = (requested.contains_key(write), changes.first()) {
            let message = format!("{} has write {write}, which no client requested", change.key);
            violations.push(at_revision(Rule::UnexplainedChange, message, change.revision));
        }
    }
}

fn stored_writes<'h>(context: &Context<'h>) -> BTreeMap<u64, Vec<&'h EtcdChange>> {
    let mut stored: BTreeMap<u64, Vec<&EtcdChange>> = BTreeMap::new();
    for change in context.history.changes.iter().filter(|change| is_owned(&change.key)) {
        let Some(write) = change.object.as_ref().and_then(write_of) else { continue };
        let before = context.timeline.state(&change.key, change.revision - 1);
        let is_status_update =
            change.key.starts_with(PODS) && before.object.and_then(write_of) == Some(write);
        if !is_status_update {
            stored.entry(write).or_default().push(change);
        }
    }
    stored
}

fn check_put(
    context: &Context<'_>,
    operation: &ClientOperation,
    changes: &[&EtcdChange],
    violations: &mut Vec<RuleViolation>,
) {
    let mut violated = |rule, message: String| violations.push(of_operation(rule, &message, operation));
    if let [_, second, ..] = changes {
        let message = format!("stored {} times, also at revision {}", changes.len(), second.revision);
        violated(Rule::RepeatedWrite, message);
    }
    match (&operation.outcome, changes) {
        (Outcome::Stored(seen), _) => {
            if let Err(message) = acknowledged(seen, changes) {
                violated(Rule::AcknowledgedWrite, message);
            }
            let lowest = context.bounds.lowest(operation.start);
            if seen.revision <= lowest {
                let message = format!(
                    "acknowledged at revision {}, but revision {lowest} was seen before it began",
                    seen.revision
                );
                violated(Rule::WriteOrder, message);
            }
        }
        (Outcome::Refused { code, message, .. }, [change, ..]) => {
            let message = format!("refused ({code}, {message}), but stored at revision {}", change.revision);
            violated(Rule::RefusedWrite, message);
        }
        _ => {}
    }
    for change in changes {
        let Some(object) = &change.object else { continue };
        let before = context.timeline.state(&change.key, change.revision - 1);
        if change.key != operation.request.key() {
            violated(Rule::UnexplainedChange, format!("stored under another key, {}", change.key));
        }
        if let Err(message) = guarded(&operation.request, before, object) {
            violated(Rule::GuardedWrite, format!("at revision {}: {message}", change.revision));
        }
    }
}

/// The answer of a write agrees with the change that stores it.
fn acknowledged(seen: &SeenObject, changes: &[&EtcdChange]) -> Result<(), String> {
    let at = seen.revision;
    let Some(change) = changes.iter().find(|change| change.revision == at) else {
        let stored: Vec<u64> = changes.iter().map(|change| change.revision).collect();
        return Err(format!("acknowledged at revision {at}, but stored at {stored:?}"));
    };
    if change.object.as_ref() == Some(&seen.object) {
        Ok(())
    } else {
        Err(format!("the answer has other content than revision {at}: {}", seen.object))
    }
}

/// A stored write replaced the state that it had to replace, and has the requested content.
fn guarded(request: &ClientRequest, before: StoredState<'_>, stored: &Value) -> Result<(), String> {
    let existing = before.object.map(|_| before.revision);
    let expected = match request {
        ClientRequest::Create { object, .. } => {
            if let Some(revision) = existing {
                return Err(format!("a create replaced revision {revision}"));
            }
            object.clone()
        }
        ClientRequest::Update { base, object, .. } => {
            if existing != Some(*base) {
                return Err(format!("an update of revision {base} replaced {existing:?}"));
            }
            object.clone()
        }
        ClientRequest::Patch { patch, .. } => {
            let Some(before) = before.object else {
                return Err("a patch created the object".to_owned());
            };
            let mut expected = before.clone();
            merge(&mut expected, patch);
            expected
        }
        ClientRequest::Delete { .. } | ClientRequest::Get { .. } | ClientRequest::List { .. } => {
            return Ok(());
        }
    };
    match (expected.get("data"), stored.get("data")) {
        (Some(expected), found) if found != Some(expected) => {
            Err(format!("expected data {expected}, stored {found:?}"))
        }
        _ => Ok(()),
    }
}

/// The reason of a refusal held at some revision that the request can have seen.
fn check_refusal(context: &Context<'_>, operation: &ClientOperation, violations: &mut Vec<RuleViolation>) {
    let Outcome::Refused { code, reason, .. } = &operation.outcome else { return };
    let low = context.bounds.lowest(operation.start);
    let high = context.bounds.highest(operation.end);
    let states = context.timeline.states_between(operation.request.key(), low, high);
    let is_false = |state: &StoredState<'_>| !holds(&operation.request, *code, reason, state);
    if !states.is_empty() && states.iter().all(is_false) {
        let message = format!("{reason} was not true at any revision from {low} to {high}");
        violations.push(of_operation(Rule::RefusalReason, &message, operation));
    }
}

/// True if a state of the key justifies the refusal; also for refusals with reasons that do not depend on the key alone.
fn holds(request: &ClientRequest, code: u16, reason: &str, state: &StoredState<'_>) -> bool {
    match (request, code, reason) {
        (ClientRequest::Create { .. }, 409, "AlreadyExists") => state.object.is_some(),
        (
            ClientRequest::Update { base, .. } | ClientRequest::Delete { base: Some(base), .. },
            409,
            "Conflict",
        ) => state.object.is_none() || state.revision != *base,
        (
            ClientRequest::Update { .. } | ClientRequest::Patch { .. } | ClientRequest::Delete { .. },
            404,
            "NotFound",
        ) => state.object.is_none(),
        _ => true,
    }
}

/// Every acknowledged deletion happened once, and every deletion was requested.
fn check_deletions(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    let mut requests: BTreeMap<&str, Vec<&ClientOperation>> = BTreeMap::new();
    for operation in &context.history.operations {
        if matches!(operation.request, ClientRequest::Delete { .. }) {
            requests.entry(operation.request.key()).or_default().push(operation);
        }
    }
    let mut by_uid: HashMap<(&str, &str), Vec<(&EtcdChange, StoredState<'_>)>> = HashMap::new();
    let deletions = context.history.changes.iter().filter(|change| change.object.is_none());
    for change in deletions.filter(|change| is_owned(&change.key)) {
        let before = context.timeline.state(&change.key, change.revision - 1);
        let uid = before.object.map(uid_of).unwrap_or_default();
        by_uid.entry((change.key.as_str(), uid)).or_default().push((change, before));
        let explains = |operation: &&&ClientOperation| match (&operation.request, &operation.outcome) {
            (_, Outcome::Refused { .. }) => false,
            (ClientRequest::Delete { base, .. }, Outcome::Deleted { uid: deleted }) => {
                deleted == uid && base.is_none_or(|base| base == before.revision)
            }
            (ClientRequest::Delete { base, .. }, _) => base.is_none_or(|base| base == before.revision),
            _ => false,
        };
        let candidates = requests.get(change.key.as_str());
        if candidates.and_then(|operations| operations.iter().find(explains)).is_none() {
            let message =
                format!("no client requested the deletion of {} at {}", change.key, change.revision);
            violations.push(at_revision(Rule::UnexplainedChange, message, change.revision));
        }
    }
    let mut acknowledged: HashMap<(&str, &str), usize> = HashMap::new();
    for operation in requests.values().flatten() {
        let (ClientRequest::Delete { key, base }, Outcome::Deleted { uid }) =
            (&operation.request, &operation.outcome)
        else {
            continue;
        };
        let deleted = by_uid.get(&(key.as_str(), uid.as_str())).map_or(&[][..], Vec::as_slice);
        let count = acknowledged.entry((key.as_str(), uid.as_str())).or_default();
        *count += 1;
        let (rule, message) = match (deleted, base) {
            ([], _) => (Rule::AcknowledgedWrite, format!("UID {uid} was never deleted")),
            // Pods are deleted in two steps, of which the second may be another client's, so that both are acknowledged.
            _ if *count > deleted.len() && !key.starts_with(PODS) => {
                (Rule::AcknowledgedWrite, format!("the deletion of UID {uid} was acknowledged twice"))
            }
            ([(_, before)], Some(base)) if before.revision != *base => (
                Rule::GuardedWrite,
                format!("a deletion of revision {base} removed revision {}", before.revision),
            ),
            _ => continue,
        };
        violations.push(of_operation(rule, &message, operation));
    }
}

pub(super) fn of_operation(rule: Rule, message: &str, operation: &ClientOperation) -> RuleViolation {
    let ClientOperation { client, server, start, end, request, .. } = operation;
    let write = request.write().map(|write| format!(" write {write}")).unwrap_or_default();
    let message = format!(
        "client {client} at server {server}, {start}..{end} µs: {} {}{write}: {message}",
        request.verb(),
        request.key()
    );
    let revision = match &operation.outcome {
        Outcome::Stored(seen) | Outcome::Object(Some(seen)) => Some(seen.revision),
        Outcome::Listed { revision, .. } => Some(*revision),
        _ => None,
    };
    RuleViolation { rule, message, at: Some(*start), revision }
}

pub(super) fn at_revision(rule: Rule, message: String, revision: u64) -> RuleViolation {
    RuleViolation { rule, message, at: None, revision: Some(revision) }
}
