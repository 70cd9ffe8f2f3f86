use authn::service_account;
use proptest::prelude::*;

use super::*;
use crate::decision::Decision;

fn subject(kind: &str, name: &str) -> Value {
    Value::map([("kind", kind), ("name", name)])
}

fn binding(name: &str, role: &str, subjects: Vec<Value>) -> Value {
    let mut object = Value::map([("kind", "RoleBinding")]);
    object.set_at(&["metadata", "name"], name);
    object.set_at(&["metadata", "namespace"], "ns");
    object.set_at(&["roleRef", "kind"], "Role");
    object.set_at(&["roleRef", "name"], role);
    object.set_at(&["subjects"], Value::List(subjects));
    object
}

fn reader() -> Value {
    let list = |item: &str| Value::list([item]);
    let rule = Value::map([("apiGroups", list("")), ("resources", list("pods")), ("verbs", list("get"))]);
    let mut role = Value::map([("kind", "Role")]);
    role.set_at(&["metadata", "name"], "reader");
    role.set_at(&["metadata", "namespace"], "ns");
    role.set_at(&["rules"], Value::List(vec![rule]));
    role
}

fn get_pods() -> AuthorizationAttributes {
    AuthorizationAttributes {
        verb: "get".into(),
        resource: "pods".into(),
        namespace: "ns".into(),
        is_resource: true,
        ..AuthorizationAttributes::default()
    }
}

fn member_of(groups: impl IntoIterator<Item = String>) -> User {
    User { groups: groups.into_iter().map(Str::from).collect(), ..User::named("x") }
}

#[test]
fn every_group_of_a_user_with_many_groups_is_looked_up() {
    const MANY: usize = 3 * GROUPS_AT_ONCE;
    let bound = binding("b", "reader", vec![subject("Group", "wanted")]);
    let index = RbacIndex::from_objects(&[reader(), bound]);
    for index_of_match in [0, GROUPS_AT_ONCE - 1, GROUPS_AT_ONCE, MANY - 1] {
        let groups =
            (0..MANY).map(|i| if i == index_of_match { "wanted".to_owned() } else { format!("g{i}") });
        let user = member_of(groups);
        assert_eq!(index.decide(&user, &get_pods()).decision, Decision::Allow, "{index_of_match}");
        assert_eq!(index.rules_for(&user, "ns").rules.len(), 1, "{index_of_match}");
    }
    let other = member_of((0..MANY).map(|i| format!("g{i}")));
    assert_ne!(index.decide(&other, &get_pods()).decision, Decision::Allow);
    assert_eq!(index.rules_for(&other, "ns"), crate::rbac::SubjectRules::default());
}

#[test]
fn role_that_many_groups_grant_is_evaluated_once() {
    let names = || (0..2 * GROUPS_AT_ONCE).map(|i| format!("g{i}"));
    let subjects = names().map(|name| subject("Group", &name)).collect();
    let index = RbacIndex::from_objects(&[reader(), binding("b", "reader", subjects)]);
    let repeated = member_of(names().chain(names()));
    assert_eq!(index.bound_roles(&repeated, "ns").count(), 1);
}

#[test]
fn replaced_binding_grants_only_its_new_subjects() {
    let index = RbacIndex::from_objects(&[reader()]);
    let (old, new) = (
        binding("b", "reader", vec![subject("Group", "old"), subject("Group", "both")]),
        binding("b", "reader", vec![subject("Group", "both"), subject("Group", "new")]),
    );
    index.apply(RbacKind::RoleBinding, None, Some(&old));
    index.apply(RbacKind::RoleBinding, Some(&old), Some(&new));
    for (group, allowed) in [("old", false), ("both", true), ("new", true)] {
        let decision = index.decide(&member_of([group.to_owned()]), &get_pods()).decision;
        assert_eq!(decision == Decision::Allow, allowed, "{group}");
    }
    index.apply(RbacKind::RoleBinding, Some(&new), None);
    assert!(index.read().scopes.is_empty());
}

proptest! {
    #[test]
    fn subject_is_the_first_of_the_binding_that_is_the_user(
        subjects in prop::collection::vec((prop::sample::select(vec!["User", "Group", "ServiceAccount", "Robot"]), "[a-d]"), 0..8),
        name in prop::sample::select(vec!["a", "b", "system:serviceaccount:ns:c", "system:serviceaccount:ns:d"]),
        groups in prop::collection::vec("[a-e]", 0..5),
    ) {
        let listed = subjects.iter().map(|(kind, name)| subject(kind, name)).collect();
        let binding = Binding::of(&binding("b", "reader", listed), "ns");
        let user = User { groups: groups.into_iter().map(Str::from).collect(), ..User::named(name) };
        let first = binding.subjects.iter().find(|subject| match subject {
            RbacSubject::User(name) => *name == user.name,
            RbacSubject::Group(name) => user.groups.contains(name),
            RbacSubject::ServiceAccount { name, .. } => service_account::username("ns", name) == user.name,
            RbacSubject::Other { .. } => false,
        });
        prop_assert_eq!(binding.subject(&user), first);
    }
}

#[test]
fn a_closed_index_grants_nothing_and_ignores_later_changes() {
    let binding = binding("b", "reader", vec![subject("User", "alice")]);
    let index = RbacIndex::from_objects([&reader(), &binding]);
    let allows = || index.decide(&User::named("alice"), &get_pods()).decision == Decision::Allow;
    assert!(allows());
    index.close();
    assert!(!allows());
    index.apply(RbacKind::Role, None, Some(&reader()));
    index.apply(RbacKind::RoleBinding, None, Some(&binding));
    assert!(!allows());
}
