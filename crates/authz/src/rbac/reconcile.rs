//! Bringing stored roles and bindings up to those a cluster begins with, at every start.
//!
//! What is missing is created. What is there keeps everything that was added to it and gets what it lacks, unless it is annotated
//! `rbac.authorization.kubernetes.io/autoupdate: "false"`. A binding to another role is replaced as a whole, because a role
//! reference cannot change.

use value::{Map, Value};

use crate::rbac::bootstrap::AUTOUPDATE;
use crate::rbac::escalation::uncovered;
use crate::rbac::rule::Rule;

/// What to do about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Create it.
    Create(Value),
    /// Replace the stored one with this.
    Update(Value),
    /// Delete the stored one and create this.
    Recreate(Value),
}

/// What to do about `expected`, of which `stored` is there.
pub fn action(expected: &Value, stored: Option<&Value>) -> Action {
    let Some(stored) = stored else { return Action::Create(expected.clone()) };
    if stored.str_at(&["metadata", "annotations", AUTOUPDATE]) == Some("false") {
        return Action::Keep;
    }
    let is_binding = expected.at(&["roleRef"]).is_some();
    if is_binding && expected.at(&["roleRef"]) != stored.at(&["roleRef"]) {
        return Action::Recreate(expected.clone());
    }
    let mut updated = stored.clone();
    for field in ["annotations", "labels"] {
        add_missing_entries(&mut updated, expected, field);
    }
    if is_binding {
        add_missing_items(&mut updated, expected, &["subjects"]);
    } else {
        // What is stored and too long to compare with keeps its rules, and gets all that are expected.
        let wanted = Rule::all_of(expected);
        let missing = uncovered(&Rule::all_of(stored), &wanted).unwrap_or(wanted);
        if !missing.is_empty() {
            let mut rules = stored.list_at(&["rules"]).to_vec();
            rules.extend(missing.iter().map(Rule::to_value));
            updated.set_at(&["rules"], Value::List(rules));
        }
        if expected.at(&["aggregationRule"]).is_some() {
            add_missing_items(&mut updated, expected, &["aggregationRule", "clusterRoleSelectors"]);
        } else {
            // A role that is not meant to aggregate must not: its rules would be overwritten.
            updated.remove_at(&["aggregationRule"]);
        }
    }
    if updated == *stored { Action::Keep } else { Action::Update(updated) }
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
