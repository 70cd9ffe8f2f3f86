use value::Value;

use super::{OutdatedRole, outdated};
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
    role.set_at(&["metadata", "uid"], format!("uid-{name}"));
    if !of.is_empty() {
        role.set_at(&["aggregationRule", "of"], Value::list(of.iter().copied()));
    }
    role.set_at(&["rules"], Value::list(rules.iter().copied()));
    role
}

fn write(name: &str, rules: &[&str]) -> OutdatedRole {
    let rules = Value::list(rules.iter().copied());
    OutdatedRole { name: name.into(), uid: format!("uid-{name}").into(), rules }
}

#[tokio::test]
async fn an_aggregated_cluster_role_gets_the_union_of_the_selected_rules() {
    let roles =
        vec![role("view", &["a", "b"], &["old"]), role("b", &[], &["2"]), role("a", &[], &["1", "2"])];
    assert_eq!(outdated(roles, union).await, [write("view", &["1", "2"])]);
}

#[tokio::test]
async fn a_chain_of_aggregated_roles_is_settled_in_one_round() {
    let roles = vec![
        role("admin", &["edit"], &[]),
        role("edit", &["view"], &[]),
        role("view", &["base"], &[]),
        role("base", &[], &["get"]),
    ];
    let mut written = outdated(roles, union).await;
    written.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(written, ["admin", "edit", "view"].map(|name| write(name, &["get"])));
}

#[tokio::test]
async fn up_to_date_and_non_aggregating_cluster_roles_are_not_written() {
    assert_eq!(outdated(vec![role("view", &["a"], &["1"]), role("a", &[], &["1"])], union).await, []);
    assert_eq!(outdated(vec![role("a", &[], &["1"])], union).await, []);
}

#[tokio::test]
async fn aggregating_cluster_roles_in_a_cycle_terminates() {
    // Two roles that select each other exchange their rules in each of the 8 rounds of one reconciliation.
    let roles = vec![role("a", &["b"], &["1"]), role("b", &["a"], &["2"])];
    let written = outdated(roles, union).await;
    assert_eq!(written, [write("a", &["1"]), write("b", &["2"])]);
    // With a role outside of the cycle, all of them soon have its rules, and nothing is written any more.
    let mut roles = vec![role("a", &["b", "c"], &[]), role("b", &["a"], &[]), role("c", &[], &["3"])];
    let written = outdated(roles.clone(), union).await;
    assert_eq!(written, [write("a", &["3"]), write("b", &["3"])]);
    for OutdatedRole { name, rules, .. } in written {
        let role = roles.iter_mut().find(|role| api::meta::name(role) == name.as_str()).unwrap();
        role.set_at(&["rules"], rules);
    }
    assert_eq!(outdated(roles, union).await, []);
}
