//! Rules of GET and LIST.

use super::writes::of_operation;
use super::{Context, Rule, RuleViolation};
use crate::history::{ClientOperation, ClientRequest, Outcome, ReadAt, SeenObject};

pub(super) fn check(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    for operation in &context.history.operations {
        let (at, result) = match (&operation.request, &operation.outcome) {
            (ClientRequest::Get { key, at }, Outcome::Object(seen)) => {
                (*at, check_get(context, operation, key, *at, seen.as_ref()))
            }
            (ClientRequest::List { prefix, at, .. }, Outcome::Listed { revision, items }) => {
                (*at, check_list(context, operation, prefix, *at, (*revision, items.as_slice())))
            }
            _ => continue,
        };
        if let Err(message) = result {
            let rule = if at == ReadAt::Latest { Rule::ConsistentRead } else { Rule::SessionRead };
            violations.push(of_operation(rule, &message, operation));
        }
    }
}

/// The lowest and highest revision whose state a read may return.
fn range(context: &Context<'_>, operation: &ClientOperation, at: ReadAt) -> (u64, u64) {
    let low = match at {
        ReadAt::Latest => context.bounds.lowest(operation.start),
        ReadAt::Any => 0,
        ReadAt::NotOlderThan(revision) => revision,
    };
    (low, context.bounds.highest(operation.end))
}

fn check_get(
    context: &Context<'_>,
    operation: &ClientOperation,
    key: &str,
    at: ReadAt,
    seen: Option<&SeenObject>,
) -> Result<(), String> {
    let (low, high) = range(context, operation, at);
    let Some(seen) = seen else {
        let states = context.timeline.states_between(key, low, high);
        let was_absent = states.iter().any(|state| state.object.is_none());
        return if was_absent {
            Ok(())
        } else {
            Err(format!("not found, but it existed at every revision from {low} to {high}"))
        };
    };
    let change = context.timeline.change_at(key, seen.revision).and_then(|change| change.object.as_ref());
    if change != Some(&seen.object) {
        return Err(format!("returned a state that was never stored: {seen:?}"));
    }
    let until = context.timeline.lasted_until(key, seen.revision);
    if until < low {
        let current = context.timeline.state(key, low).revision;
        return Err(format!(
            "returned revision {}, which lasted until {until}; it must be at least as new as revision {low}, where it is {current}",
            seen.revision
        ));
    }
    if seen.revision > high {
        return Err(format!("returned revision {}, but only {high} was requested", seen.revision));
    }
    Ok(())
}

fn check_list(
    context: &Context<'_>,
    operation: &ClientOperation,
    prefix: &str,
    at: ReadAt,
    (revision, items): (u64, &[(String, SeenObject)]),
) -> Result<(), String> {
    let (low, high) = range(context, operation, at);
    if revision < low {
        return Err(format!("is at revision {revision}; it must be at least at {low}"));
    }
    if revision > high {
        return Err(format!("is at revision {revision}, but only {high} was requested"));
    }
    differs(context, prefix, revision, items).map_or(Ok(()), Err)
}

/// How `items` differ from the state below `prefix` at a revision.
pub(super) fn differs(
    context: &Context<'_>,
    prefix: &str,
    revision: u64,
    items: &[(String, SeenObject)],
) -> Option<String> {
    let expected = context.timeline.snapshot(prefix, revision);
    for (key, seen) in items {
        match expected.get(key.as_str()) {
            None => return Some(format!("has {key}, which does not exist at revision {revision}")),
            Some(state) if state.revision != seen.revision => {
                return Some(format!(
                    "has revision {} of {key}; at revision {revision} it is {}",
                    seen.revision, state.revision
                ));
            }
            Some(state) if state.object != Some(&seen.object) => {
                return Some(format!("has other content of {key} than revision {}", state.revision));
            }
            Some(_) => {}
        }
    }
    let missing = expected.keys().find(|key| !items.iter().any(|(seen, _)| seen == *key));
    if let Some(key) = missing {
        return Some(format!("lacks {key}, which exists at revision {revision}"));
    }
    (items.len() != expected.len()).then(|| format!("has {} of {} objects", items.len(), expected.len()))
}
