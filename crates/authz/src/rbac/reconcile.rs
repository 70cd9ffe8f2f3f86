//! Reconciles stored roles and bindings with the defaults, at every start.
//!
//! Missing objects are created. Existing ones keep additions and get what they lack, unless they are
//! annotated with `rbac.authorization.kubernetes.io/autoupdate: "false"`. A binding to another role is
//! recreated, because `roleRef` is immutable.

use value::{Map, Value};

use crate::rbac::bootstrap::AUTOUPDATE;
use crate::rbac::escalation::uncovered_permissions;
use crate::rbac::rule::PolicyRule;

#[derive(Clone, Debug, PartialEq)]
pub enum ReconcileAction {
    Keep,
    Create(Value),
    /// Replace the stored object.
    Update(Value),
    /// Delete the stored object and create this one.
    Recreate(Value),
}

/// The action that makes `stored` contain `expected`.
pub fn reconcile(expected: &Value, stored: Option<&Value>) -> ReconcileAction {
    let Some(stored) = stored else { return ReconcileAction::Create(expected.clone()) };
    if stored.str_at(&["metadata", "annotations", AUTOUPDATE]) == Some("false") {
        return ReconcileAction::Keep;
    }
    let is_binding = expected.at(&["roleRef"]).is_some();
    if is_binding && expected.at(&["roleRef"]) != stored.at(&["roleRef"]) {
        return ReconcileAction::Recreate(expected.clone());
    }
    let mut updated = stored.clone();
    for field in ["annotations", "labels"] {
        add_missing_entries(&mut updated, expected, field);
    }
    if is_binding {
        add_missing_items(&mut updated, expected, &["subjects"]);
    } else {
        // If the stored rules are too many to compare, all expected rules are added.
        let wanted = PolicyRule::all_of(expected);
        let missing = uncovered_permissions(&PolicyRule::all_of(stored), &wanted).unwrap_or(wanted);
        if !missing.is_empty() {
            let mut rules = stored.list_at(&["rules"]).to_vec();
            rules.extend(missing.iter().map(PolicyRule::to_value));
            updated.set_at(&["rules"], Value::List(rules));
        }
        if expected.at(&["aggregationRule"]).is_some() {
            add_missing_items(&mut updated, expected, &["aggregationRule", "clusterRoleSelectors"]);
        } else {
            // Remove an aggregation rule that the default does not have: it would overwrite the rules.
            updated.remove_at(&["aggregationRule"]);
        }
    }
    if updated == *stored { ReconcileAction::Keep } else { ReconcileAction::Update(updated) }
}

fn add_missing_entries(updated: &mut Value, expected: &Value, field: &str) {
    let Some(wanted) = expected.at(&["metadata", field]).and_then(Value::as_map) else { return };
    for (key, value) in wanted.iter() {
        let here = updated.at(&["metadata", field]).and_then(Value::as_map).map_or_else(Map::new, Map::clone);
        if !here.contains_key(key) {
            updated.set_at(&["metadata", field, key], value.clone());
        }
    }
}

fn add_missing_items(updated: &mut Value, expected: &Value, path: &[&str]) {
    let mut items = updated.list_at(path).to_vec();
    let before = items.len();
    for item in expected.list_at(path) {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
    if items.len() > before {
        updated.set_at(path, Value::List(items));
    }
}
