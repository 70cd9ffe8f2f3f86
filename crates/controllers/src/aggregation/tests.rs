use value::Value;

use super::outdated;
use crate::fake::parse;

/// A minimal union: `aggregationRule.of` lists role names, rules are strings.
fn union(role: &Value, roles: &[&Value]) -> Option<Vec<Value>> {
    let wanted = role.list_at(&["aggregationRule", "of"]);
    let mut union = Vec::new();
    for other in roles.iter().filter(|other| wanted.contains(&Value::from(api::meta::name(other)))) {
        for rule in other.list_at(&["rules"]) {
            if !union.contains(rule) {
                union.push(rule.clone());
            }
        }
    }
    (union != role.list_at(&["rules"])).then_some(union)
}

fn role(name: &str, of: &[&str], rules: &[&str]) -> Value {
    let mut role = parse(r#"{"kind":"ClusterRole"}"#);
    role.set_at(&["metadata", "name"], name);
    if !of.is_empty() {
        role.set_at(&["aggregationRule", "of"], Value::list(of.iter().copied()));
    }
    role.set_at(&["rules"], Value::list(rules.iter().copied()));
    role
}

#[test]
fn an_aggregated_cluster_role_gets_the_union_of_the_selected_rules() {
    let roles =
        vec![role("view", &["a", "b"], &["old"]), role("b", &[], &["2"]), role("a", &[], &["1", "2"])];
    assert_eq!(outdated(roles, union), [("view".into(), Value::list(["1", "2"]))]);
}

#[test]
fn a_chain_of_aggregated_roles_is_settled_in_one_round() {
    let roles = vec![
        role("admin", &["edit"], &[]),
        role("edit", &["view"], &[]),
        role("view", &["base"], &[]),
        role("base", &[], &["get"]),
    ];
    let mut written = outdated(roles, union);
    written.sort_by(|a, b| a.0.cmp(&b.0));
    let get = Value::list(["get"]);
    assert_eq!(written, [("admin".into(), get.clone()), ("edit".into(), get.clone()), ("view".into(), get)]);
}

#[test]
fn up_to_date_and_non_aggregating_cluster_roles_are_not_written() {
    assert_eq!(outdated(vec![role("view", &["a"], &["1"]), role("a", &[], &["1"])], union), []);
    assert_eq!(outdated(vec![role("a", &[], &["1"])], union), []);
}

#[test]
fn aggregating_cluster_roles_in_a_cycle_terminates() {
    let roles = vec![role("a", &["b"], &["1"]), role("b", &["a"], &["2"])];
    assert!(outdated(roles, union).len() <= 2);
}
