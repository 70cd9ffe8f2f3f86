//! Strategy of CertificateSigningRequest: the server records the requester and fills in the times of conditions.

use api::validation::fields::Read;
use value::{Map, Value};

use super::{StrategyContext, keep};

/// Records the caller as the requester and removes all conditions.
pub(super) fn create(request: &mut Value, context: &StrategyContext) {
    let spec = request.make_map().entry_or_insert_with("spec", || Map::new().into()).make_map();
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    let caller = &context.caller;
    if !caller.username.is_empty() {
        spec.insert("username", caller.username.as_str());
    }
    if !caller.uid.is_empty() {
        spec.insert("uid", caller.uid.as_str());
    }
    if !caller.groups.is_empty() {
        spec.insert("groups", Value::list(caller.groups.iter().map(String::as_str)));
    }
    if !caller.extra.is_empty() {
        let extra = caller
            .extra
            .iter()
            .map(|(key, values)| (key.as_str(), Value::list(values.iter().map(String::as_str))));
        spec.insert("extra", Value::map(extra));
    }
}

/// Updates can change only the metadata.
pub(super) fn update(new: &mut Value, old: &Value, _: &StrategyContext) {
    keep(new, old, &["spec"]);
}

/// The `status` subresource cannot add or remove approvals and denials.
pub(super) fn update_status(new: &mut Value, old: &Value, context: &StrategyContext) {
    for decision in ["Approved", "Denied"] {
        keep_conditions(new, old, decision);
    }
    fill_times(new, old, context);
}

/// The `approval` subresource changes only the conditions.
pub(super) fn prepare_approval(new: &mut Value, old: &Value, context: &StrategyContext) {
    keep(new, old, &["metadata", "generation"]);
    fill_times(new, old, context);
    let conditions = new.at(&["status", "conditions"]).cloned();
    keep(new, old, &["spec"]);
    keep(new, old, &["status"]);
    match conditions {
        Some(conditions) => new.set_at(&["status", "conditions"], conditions),
        None => drop(new.remove_at(&["status", "conditions"])),
    }
}

fn keep_conditions(new: &mut Value, old: &Value, kind: &str) {
    let of_kind = |condition: &&Value| condition.text("type") == kind;
    let former: Vec<&Value> = old.list_at(&["status", "conditions"]).iter().filter(of_kind).collect();
    let count = new.list_at(&["status", "conditions"]).iter().filter(of_kind).count();
    if former.len() != count {
        return;
    }
    let Some(conditions) = new.at_mut(&["status", "conditions"]).and_then(Value::as_list_mut) else { return };
    let matching = conditions.iter_mut().filter(|condition| condition.text("type") == kind);
    for (condition, former) in matching.zip(former) {
        *condition = former.clone();
    }
}

fn fill_times(new: &mut Value, old: &Value, context: &StrategyContext) {
    let former = old.list_at(&["status", "conditions"]);
    let Some(conditions) = new.at_mut(&["status", "conditions"]).and_then(Value::as_list_mut) else { return };
    for condition in conditions {
        if condition.part("lastUpdateTime").is_none() {
            condition.set_at(&["lastUpdateTime"], context.time());
        }
        if condition.part("lastTransitionTime").is_none() {
            let since = former
                .iter()
                .filter(|old| {
                    old.text("type") == condition.text("type")
                        && old.text("status") == condition.text("status")
                })
                .find_map(|old| old.part("lastTransitionTime"));
            let since = since.cloned().unwrap_or_else(|| context.time());
            condition.set_at(&["lastTransitionTime"], since);
        }
    }
}
