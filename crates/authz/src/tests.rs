//! Tests of the chain, escalation, aggregation and reconciliation. The spec pages test single rules.

use std::sync::Arc;

use authn::impersonation::LastModes;
use authn::{Caller, InternalIdentity, User};
use expect_test::expect;
use value::Value;

use crate::rbac::escalation::{GrantingUser, uncovered_permissions};
use crate::rbac::reconcile::{ReconcileAction, reconcile};
use crate::rbac::{PolicyRule, RbacIndex, RbacKind, aggregation, everything};
use crate::*;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn yaml(text: &str) -> Vec<Value> {
    value::yaml::documents(text.as_bytes()).unwrap().into_iter().map(|d| d.value).collect()
}

fn one(text: &str) -> Value {
    value::yaml::read(text.as_bytes()).unwrap().value
}

fn index(text: &str) -> Arc<RbacIndex> {
    Arc::new(RbacIndex::from_objects(&yaml(text)))
}

fn chain(steps: Vec<(&str, Authorizer)>) -> AuthorizerChain {
    let steps = steps.into_iter().map(|(name, authorizer)| ChainStep { name: name.into(), authorizer });
    AuthorizerChain::new(steps.collect()).unwrap()
}

fn pods() -> AuthorizationAttributes {
    AuthorizationAttributes::resource("list", "", "pods")
}

#[test]
fn the_first_allow_ends_the_chain_and_always_deny_is_no_opinion() {
    let user = User::named("alice");
    let both = chain(vec![("no", Authorizer::AlwaysDeny), ("yes", Authorizer::AlwaysAllow)]);
    assert_eq!(run(both.decide(&user, &pods())), AuthorizerDecision::allow(DecisionReason::None));
    let no = chain(vec![("no", Authorizer::AlwaysDeny), ("no2", Authorizer::AlwaysDeny)]);
    let answer = run(no.decide(&user, &pods()));
    assert_eq!(answer.decision, Decision::NoOpinion);
    assert_eq!(answer.reason.to_string(), "no: Everything is forbidden.\nno2: Everything is forbidden.");
}

#[test]
fn system_masters_are_allowed_before_the_first_authorizer() {
    let no = chain(vec![("no", Authorizer::AlwaysDeny)]);
    let server = Caller::internal(InternalIdentity::ApiServer);
    let permit = run(no.authorize(&server, pods())).unwrap();
    assert_eq!(permit.caller(), &server);
    assert_eq!(permit.attributes(), &pods());
    let scheduler = Caller::internal(InternalIdentity::Scheduler);
    let Err(Denial::Denied { status, reason, .. }) = run(no.authorize(&scheduler, pods())) else { panic!() };
    assert_eq!(status.code(), 403);
    assert_eq!(reason, "no: Everything is forbidden.");
    expect![[r#"pods is forbidden: User "system:kube-scheduler" cannot list resource "pods" in API group "" at the cluster scope: no: Everything is forbidden."#]]
        .assert_eq(status.message());
}

#[test]
fn an_empty_chain_allows_no_user() {
    let empty = chain(vec![]);
    assert_eq!(run(empty.decide(&User::named("alice"), &pods())).decision, Decision::NoOpinion);
}

#[test]
fn authorizer_names_are_unique_in_a_chain() {
    let step = || ChainStep { name: "x".into(), authorizer: Authorizer::AlwaysDeny };
    assert_eq!(AuthorizerChain::new(vec![step(), step()]).unwrap_err(), DuplicateName("x".into()));
}

const TEAM: &str = "
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [''], resources: [pods, '*/scale'], verbs: [get, list]}
- {apiGroups: [''], resources: [configmaps], resourceNames: [a], verbs: ['*']}
- {nonResourceURLs: [/logs*], verbs: [get]}
---
kind: ClusterRole
metadata: {name: binder}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [admin], verbs: [bind, escalate]}
---
kind: ClusterRole
metadata: {name: admin}
rules:
- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}
- {nonResourceURLs: ['*'], verbs: ['*']}
---
kind: ClusterRoleBinding
metadata: {name: readers}
subjects: [{kind: User, name: alice}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
---
kind: ClusterRoleBinding
metadata: {name: binders}
subjects: [{kind: User, name: bob}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: binder}
---
kind: ClusterRoleBinding
metadata: {name: admins}
subjects: [{kind: User, name: root}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
";

fn team() -> (Arc<RbacIndex>, AuthorizerChain) {
    let index = index(TEAM);
    let chain = chain(vec![("rbac", Authorizer::Rbac(index.clone()))]);
    (index, chain)
}

fn granting<'a>(
    chain: &'a AuthorizerChain,
    index: &'a RbacIndex,
    user: &'a User,
    namespace: &'a str,
) -> GrantingUser<'a> {
    GrantingUser { chain, index, user, namespace, requested_name: "" }
}

#[test]
fn escalation_check_compares_each_verb_resource_and_name_of_a_rule() {
    let (index, chain) = team();
    let alice = User::named("alice").in_groups(["devs", "system:authenticated"]);
    let holds = |rules: &str| {
        let role = one(&format!("{{kind: ClusterRole, metadata: {{name: r}}, rules: {rules}}}"));
        run(granting(&chain, &index, &alice, "").check_role(None, &role))
            .map_err(|status| status.message().to_owned())
    };
    for held in [
        "[{apiGroups: [''], resources: [pods], verbs: [get]}]",
        "[{apiGroups: [''], resources: [pods, deployments/scale], verbs: [list, get]}]",
        "[{apiGroups: [''], resources: [pods], resourceNames: [x], verbs: [get]}]",
        "[{apiGroups: [''], resources: [configmaps], resourceNames: [a], verbs: [delete]}]",
        "[{nonResourceURLs: [/logs/x, /logs*], verbs: [get]}]",
        "[]",
    ] {
        assert_eq!(holds(held), Ok(()), "{held}");
    }
    for missing in [
        "[{apiGroups: [''], resources: [pods], verbs: ['*']}]",
        "[{apiGroups: ['*'], resources: [pods], verbs: [get]}]",
        "[{apiGroups: [''], resources: [configmaps], verbs: [get]}]",
        "[{apiGroups: [''], resources: [configmaps], resourceNames: [a, b], verbs: [get]}]",
        "[{nonResourceURLs: [/metrics], verbs: [get]}]",
        "[{nonResourceURLs: [/logs], verbs: [post]}]",
    ] {
        assert!(holds(missing).is_err(), "{missing}");
    }
    expect![[r#"
        clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
        {APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["delete"]}
        {APIGroups:[""], Resources:["pods/log"], Verbs:["get" "list"]}
        {NonResourceURLs:["/metrics"], Verbs:["get"]}"#]]
    .assert_eq(
        &holds(
            "[{apiGroups: [''], resources: [pods/log], verbs: [get, list]}, {apiGroups: [''], resources: [pods], resourceNames: [x], verbs: [delete]}, {nonResourceURLs: [/metrics], verbs: [get]}]",
        )
        .unwrap_err(),
    );
}

#[test]
fn escalate_with_resource_names_does_not_authorize_a_create() {
    let index = index(
        "
kind: ClusterRole
metadata: {name: escalator}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [r], verbs: [escalate]}]
---
kind: ClusterRoleBinding
metadata: {name: escalators}
subjects: [{kind: User, name: eve}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: escalator}
",
    );
    let chain = chain(vec![("rbac", Authorizer::Rbac(index.clone()))]);
    let eve = User::named("eve");
    let role = one(
        "{kind: ClusterRole, metadata: {name: r}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}",
    );
    let check = |requested_name| {
        let user = GrantingUser { requested_name, ..granting(&chain, &index, &eve, "") };
        run(user.check_role(None, &role))
    };
    assert!(check("r").is_ok(), "an update of the role that the rule names");
    assert!(check("").is_err(), "a create has no name in its path");
    assert!(check("other").is_err());
}

#[test]
fn rules_with_too_many_combinations_are_granted_only_if_one_held_rule_covers_them() {
    let (index, chain) = team();
    let list = |prefix: &str, count: usize| Value::list((0..count).map(|i| format!("{prefix}{i}")));
    let check = |user: &str, count: usize, long: usize| {
        let rule = Value::map([
            ("apiGroups", list("g", count)),
            ("resources", list(&"r".repeat(long), count)),
            ("resourceNames", list("n", count)),
            ("verbs", list("v", count)),
        ]);
        let role = Value::map([("metadata", Value::map([("name", "r")])), ("rules", Value::list([rule]))]);
        run(granting(&chain, &index, &User::named(user), "").check_role(None, &role))
            .map_err(|status| status.message().to_owned())
    };
    let refused = |count, long| check("alice", count, long).unwrap_err();
    assert!(refused(15, 1).contains("is attempting to grant RBAC permissions not currently held"));
    assert_eq!(refused(15, 1).lines().count(), 1 + 15 * 15 * 15);
    // A hundred million combinations are rejected without being generated.
    expect![[r#"clusterroles.rbac.authorization.k8s.io "r" is forbidden: the rules have too many combinations to compare them with those of user "alice""#]]
        .assert_eq(&refused(100, 1));
    assert_eq!(check("root", 100, 1), Ok(()));
    assert_eq!(check("root", 1_000, 1), Ok(()));
    // Many combinations repeat the long name, so the message is truncated.
    assert!(refused(15, 100_000).len() < 2 << 20);
}

#[test]
fn repeated_held_rules_are_compared_once() {
    let list = |prefix: &str, count: usize| (0..count).map(|i| format!("{prefix}{i}").into()).collect();
    let rule = |groups: usize| PolicyRule {
        groups: list("g", groups),
        resources: list("r", 100),
        verbs: list("v", 10),
        ..PolicyRule::default()
    };
    let held = vec![rule(1); 10_000];
    assert_eq!(uncovered_permissions(&held, &[rule(1)]).map(|missing| missing.len()), Some(0));
    assert_eq!(uncovered_permissions(&held, &[rule(2)]).map(|missing| missing.len()), Some(1_000));
    assert_eq!(uncovered_permissions(&held, &[rule(1_000)]), None);
}

#[test]
fn listing_rules_of_a_role_with_many_bindings_is_bounded() {
    let resources: Vec<String> = (0..10_000).map(|i| format!("r{i}")).collect();
    let mut text = format!(
        "kind: ClusterRole\nmetadata: {{name: large}}\nrules: [{{apiGroups: [''], resources: [{}], verbs: [get]}}]\n",
        resources.join(", ")
    );
    let binding = |i: usize| {
        let user = if i < 10 { "alice" } else { "bob" };
        format!(
            "---\nkind: ClusterRoleBinding\nmetadata: {{name: b{i}}}\nsubjects: [{{kind: User, name: {user}}}]\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: large}}\n"
        )
    };
    text.extend((0..200).map(binding));
    let index = index(&text);
    let listed = |user: &str| index.rules_for(&User::named(user), "");
    assert_eq!((listed("alice").rules.len(), listed("alice").incomplete), (10, false));
    assert_eq!((listed("bob").rules.len(), listed("bob").incomplete), (99, true));
}

#[test]
fn the_bytes_of_listed_rules_are_bounded() {
    const LIMIT: usize = 16 << 20;
    let names: Vec<String> = (0..10).map(|i| format!("{i}{}", "n".repeat(100_000))).collect();
    let mut text = format!(
        "kind: ClusterRole\nmetadata: {{name: long}}\nrules: [{{apiGroups: [''], resources: [r], resourceNames: [{}], verbs: [get]}}]\n",
        names.join(", ")
    );
    let missing = "m".repeat(100_000);
    let binding = |user: &str, role: &str, count: usize| -> String {
        let one = |i: usize| {
            format!(
                "---\nkind: ClusterRoleBinding\nmetadata: {{name: {user}{i}}}\nsubjects: [{{kind: User, name: {user}}}]\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n"
            )
        };
        (0..count).map(one).collect()
    };
    text.push_str(&binding("alice", "long", 10));
    text.push_str(&binding("bob", "long", 100));
    text.push_str(&binding("carol", &missing, 300));
    let index = index(&text);
    let listed = |user: &str| {
        let rules = index.rules_for(&User::named(user), "ns");
        let names = rules.rules.iter().flat_map(|rule| &rule.resource_names).map(value::Str::len);
        let bytes = names.sum::<usize>() + rules.error.map_or(0, |error| error.len());
        (rules.rules.len(), rules.incomplete, bytes < LIMIT)
    };
    assert_eq!(listed("alice"), (10, false, true));
    assert_eq!(listed("bob"), (16, true, true));
    assert_eq!(listed("carol"), (0, true, true));
    // Every binding lists the rules again.
    let size = |user: &str| index.listing_size(&User::named(user), "ns", usize::MAX) / 1_000_000;
    assert_eq!((size("alice"), size("bob"), size("nobody")), (10, 100, 0));
    assert!(index.listing_size(&User::named("bob"), "ns", 1000) >= 1000);
}

#[test]
fn writing_a_role_requires_holding_its_rules_or_the_escalate_verb() {
    let (index, chain) = team();
    let pods = one("{metadata: {name: r}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}");
    let secrets = |name: &str| {
        one(&format!(
            "{{metadata: {{name: {name}}}, rules: [{{apiGroups: [''], resources: [secrets], verbs: [get]}}]}}"
        ))
    };
    let check = |user: &User, new: &Value| {
        let user =
            GrantingUser { requested_name: api::meta::name(new), ..granting(&chain, &index, user, "") };
        run(user.check_role(None, new)).is_ok()
    };
    assert!(check(&User::named("alice"), &pods));
    assert!(!check(&User::named("alice"), &secrets("admin")));
    assert!(check(&User::named("bob"), &secrets("admin")), "escalate on this name");
    assert!(!check(&User::named("bob"), &secrets("r")), "escalate on another name");
    assert!(check(&User::named("x").in_groups(["system:masters"]), &secrets("r")));
}

#[test]
fn changing_an_aggregation_rule_requires_cluster_admin() {
    let (index, chain) = team();
    let gathers =
        one("{metadata: {name: r}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}}");
    let check = |user: &str, old: Option<&Value>, new: &Value| {
        run(granting(&chain, &index, &User::named(user), "").check_role(old, new))
    };
    expect![[r#"clusterroles.rbac.authorization.k8s.io "r" is forbidden: must have cluster-admin privileges to use the aggregationRule"#]]
        .assert_eq(check("alice", None, &gathers).unwrap_err().message());
    assert_eq!(check("root", None, &gathers), Ok(()));
    let plain = one("{metadata: {name: r}}");
    assert!(check("alice", Some(&gathers), &plain).is_err(), "taking the aggregation away is a change of it");
    assert_eq!(check("alice", None, &plain), Ok(()));
}

#[test]
fn writing_a_binding_requires_holding_the_role_or_the_bind_verb() {
    let (index, chain) = team();
    let to = |role: &str| {
        one(&format!(
            "{{metadata: {{name: b}}, roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}}}"
        ))
    };
    let check = |user: &str, old: Option<&Value>, new: &Value| {
        run(granting(&chain, &index, &User::named(user), "").check_binding(old, new))
    };
    assert_eq!(check("alice", None, &to("reader")), Ok(()));
    assert_eq!(check("alice", None, &to("admin")).unwrap_err().code(), 403);
    assert_eq!(check("bob", None, &to("admin")), Ok(()));
    assert!(check("bob", None, &to("reader")).is_err(), "bind on another role");
    let gone = check("alice", None, &to("gone")).unwrap_err();
    assert_eq!(gone.code(), 404);
    assert_eq!(gone.message(), r#"clusterrolebindings.rbac.authorization.k8s.io "gone" not found"#);
    // Removing an owner reference, as the garbage collector does, needs no permission on the role.
    let mut owned = to("admin");
    owned.set_at(&["metadata", "ownerReferences"], Value::list([Value::map([("uid", "1")])]));
    assert_eq!(check("alice", Some(&owned), &to("admin")), Ok(()));
    let mut labeled = to("admin");
    labeled.set_at(&["metadata", "labels", "a"], "b");
    assert!(check("alice", Some(&labeled), &to("admin")).is_err(), "metadata alone is checked too");
}

#[test]
fn subject_rules_list_each_binding_once_and_report_missing_roles() {
    let index = index(TEAM);
    let alice = User::named("alice");
    assert_eq!(index.rules_for(&alice, "").rules.len(), 3);
    let more = one(
        "{kind: RoleBinding, metadata: {name: b, namespace: prod}, subjects: [{kind: User, name: alice}], roleRef: {kind: Role, name: gone}}",
    );
    index.apply(RbacKind::RoleBinding, None, Some(&more));
    assert_eq!(index.rules_for(&alice, "").error, None);
    let rules = index.rules_for(&alice, "prod");
    assert_eq!(rules.rules.len(), 3);
    assert_eq!(rules.error.unwrap(), r#"role.rbac.authorization.k8s.io "gone" not found"#);
    let chain = chain(vec![("allow", Authorizer::AlwaysAllow), ("rbac", Authorizer::Rbac(index))]);
    assert_eq!(chain.rules_for(&alice, "").rules[..2], everything());
}

#[test]
fn deleted_binding_or_role_grants_no_access() {
    let objects = yaml(TEAM);
    let index = RbacIndex::from_objects(&objects);
    let alice = User::named("alice");
    assert_eq!(index.decide(&alice, &pods()).decision, Decision::Allow);
    let role = &objects[0];
    index.apply(RbacKind::ClusterRole, Some(role), None);
    assert_eq!(
        index.decide(&alice, &pods()).reason.to_string(),
        r#"RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found"#
    );
    index.apply(RbacKind::ClusterRole, None, Some(role));
    assert_eq!(index.decide(&alice, &pods()).decision, Decision::Allow);
    index.apply(RbacKind::ClusterRoleBinding, Some(&objects[3]), None);
    assert_eq!(
        index.decide(&alice, &pods()),
        AuthorizerDecision { reason: DecisionReason::None, ..AuthorizerDecision::no_opinion("") }
    );
}

#[test]
fn deleting_one_of_two_bindings_keeps_the_access_granted_by_the_other() {
    let objects = yaml(TEAM);
    let index = RbacIndex::from_objects(&objects);
    let mut second = objects[3].clone();
    second.set_at(&["metadata", "name"], "again");
    index.apply(RbacKind::ClusterRoleBinding, None, Some(&second));
    index.apply(RbacKind::ClusterRoleBinding, Some(&objects[3]), None);
    let reason = index.decide(&User::named("alice"), &pods()).reason.to_string();
    assert_eq!(
        reason,
        r#"RBAC: allowed by ClusterRoleBinding "again" of ClusterRole "reader" to User "alice""#
    );
}

#[test]
fn aggregated_cluster_role_is_the_union_of_the_selected_roles() {
    let roles = yaml(
        "
kind: ClusterRole
metadata: {name: all}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {team: a}}, {matchExpressions: [{key: tier, operator: In, values: [x]}]}]}
---
kind: ClusterRole
metadata: {name: one, labels: {team: a, tier: x}}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
kind: ClusterRole
metadata: {name: two, labels: {tier: x}}
rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]
---
kind: ClusterRole
metadata: {name: other, labels: {team: b}}
rules: [{apiGroups: [''], resources: [secrets], verbs: [list]}]
",
    );
    let all: Vec<&Value> = roles.iter().collect();
    let union = aggregation::rules(&roles[0], &all).unwrap();
    let verbs: Vec<&str> = union.iter().map(|rule| rule.verbs[0].as_str()).collect();
    assert_eq!(verbs, ["get", "list"]);
    let mut done = roles[0].clone();
    done.set_at(&["rules"], Value::List(union.iter().map(PolicyRule::to_value).collect()));
    assert_eq!(aggregation::rules(&done, &all), None, "nothing to do a second time");
    assert_eq!(aggregation::rules(&roles[1], &all), None, "it does not aggregate");
}

#[test]
fn aggregated_rules_keep_their_order_and_repeat_nothing() {
    const MANY: usize = 60_000;
    let mut all =
        one("{kind: ClusterRole, metadata: {name: all}, aggregationRule: {clusterRoleSelectors: [{}]}}");
    let rules = |numbers: &mut dyn Iterator<Item = usize>| -> Value {
        let rule =
            |i| Value::map([("resources", Value::list([format!("r{i}")])), ("verbs", Value::list(["get"]))]);
        Value::List(numbers.map(rule).collect())
    };
    let (mut one, mut two) = (all.clone(), all.clone());
    for (role, name, rules) in [
        (&mut one, "one", rules(&mut (0..MANY).chain(0..MANY))),
        (&mut two, "two", rules(&mut (0..=MANY).rev())),
    ] {
        role.remove_at(&["aggregationRule"]);
        role.set_at(&["metadata", "name"], name);
        role.set_at(&["rules"], rules);
    }
    let union = aggregation::rules(&all, &[&all, &one, &two]).unwrap();
    let expected: Vec<String> = (0..=MANY).map(|i| format!("r{i}")).collect();
    assert_eq!(union.iter().map(|rule| rule.resources[0].as_str()).collect::<Vec<_>>(), expected);
    all.set_at(&["rules"], Value::List(union.iter().map(PolicyRule::to_value).collect()));
    assert_eq!(aggregation::rules(&all, &[&all, &one, &two]), None);
}

#[test]
fn bootstrap_role_is_created_or_extended_unless_autoupdate_is_false() {
    let expected = one(
        "{kind: ClusterRole, metadata: {name: r, labels: {a: b}}, rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]}",
    );
    assert_eq!(reconcile(&expected, None), ReconcileAction::Create(expected.clone()));
    assert_eq!(reconcile(&expected, Some(&expected)), ReconcileAction::Keep);
    let narrow = one(
        "{kind: ClusterRole, metadata: {name: r, labels: {a: mine}}, aggregationRule: {}, rules: [{apiGroups: [''], resources: [pods, secrets], verbs: [get]}]}",
    );
    let ReconcileAction::Update(updated) = reconcile(&expected, Some(&narrow)) else { panic!() };
    expect![[r#"{"kind":"ClusterRole","metadata":{"labels":{"a":"mine"},"name":"r"},"rules":[{"apiGroups":[""],"resources":["pods","secrets"],"verbs":["get"]},{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}"#]]
        .assert_eq(&value::write::to_string(&updated));
    let mut left_alone = narrow;
    left_alone.set_at(&["metadata", "annotations", "rbac.authorization.kubernetes.io/autoupdate"], "false");
    assert_eq!(reconcile(&expected, Some(&left_alone)), ReconcileAction::Keep);
}

#[test]
fn bootstrap_binding_gets_missing_subjects_or_is_recreated_for_another_role() {
    let expected = one(
        "{metadata: {name: b}, roleRef: {name: r}, subjects: [{kind: User, name: a}, {kind: User, name: b}]}",
    );
    let fewer = one(
        "{metadata: {name: b}, roleRef: {name: r}, subjects: [{kind: User, name: b}, {kind: User, name: c}]}",
    );
    let ReconcileAction::Update(updated) = reconcile(&expected, Some(&fewer)) else { panic!() };
    let names: Vec<_> = updated.list_at(&["subjects"]).iter().map(|s| s.str_at(&["name"]).unwrap()).collect();
    assert_eq!(names, ["b", "c", "a"]);
    let other = one("{metadata: {name: b}, roleRef: {name: other}}");
    assert_eq!(reconcile(&expected, Some(&other)), ReconcileAction::Recreate(expected));
}

#[test]
fn node_needs_a_secret_until_the_last_pod_that_refers_to_it_is_gone() {
    use crate::node::{GraphKind, NodeGraph, NodeObject};
    let graph = NodeGraph::default();
    let pod = |name: &str, node: &str| {
        one(&format!(
            "{{metadata: {{name: {name}, namespace: ns}}, spec: {{nodeName: {node}, volumes: [{{secret: {{secretName: s}}}}, {{secret: {{secretName: s}}}}]}}}}"
        ))
    };
    let needs = |node: &str| graph.needs(node, NodeObject::Secret, "ns", "s");
    let (a, b) = (pod("a", "n1"), pod("b", "n1"));
    graph.apply(GraphKind::Pod, None, Some(&a));
    graph.apply(GraphKind::Pod, None, Some(&b));
    graph.apply(GraphKind::Pod, Some(&a), None);
    assert!(needs("n1"));
    graph.apply(GraphKind::Pod, Some(&b), Some(&pod("b", "n2")));
    assert!(!needs("n1") && needs("n2"));
    graph.apply(GraphKind::Pod, Some(&b), None);
    assert!(!needs("n2"));

    let volume =
        one("{metadata: {name: v}, spec: {claimRef: {namespace: ns, name: c}, rbd: {secretRef: {name: s}}}}");
    let user = one(
        "{metadata: {name: p, namespace: ns}, spec: {nodeName: n1, volumes: [{persistentVolumeClaim: {claimName: c}}]}}",
    );
    graph.apply(GraphKind::PersistentVolume, None, Some(&volume));
    graph.apply(GraphKind::Pod, None, Some(&user));
    assert!(needs("n1"), "through claim and volume");
    graph.apply(GraphKind::PersistentVolume, Some(&volume), None);
    assert!(!needs("n1"));
}

#[test]
fn abac_policy_file_error_names_its_line() {
    use crate::abac::AbacPolicies;
    let error = |text: &str| AbacPolicies::parse("p.jsonl", text).unwrap_err().to_string();
    expect![[
        r#"error reading policy file p.jsonl, line 2: {"user": 1}: json: cannot unmarshal number into Go struct field Policy.user of type string"#
    ]]
    .assert_eq(&error("# ok\n{\"user\": 1}\n"));
    assert!(error("[]").contains("line 1: []: couldn't get version/kind"));
    assert!(error("{").contains("line 1"));
    let version = "abac.authorization.kubernetes.io/v1beta1";
    assert!(
        error(&format!(r#"{{"apiVersion":"{version}","kind":"Foo"}}"#))
            .contains("no kind \"Foo\" is registered for version")
    );
    assert!(
        error(&format!(r#"{{"apiVersion":"{version}","kind":"Policy","spec":{{"readonly":1}}}}"#)).ends_with(
            "json: cannot unmarshal number into Go struct field PolicySpec.spec.readonly of type bool"
        )
    );
    let (policies, unversioned) = AbacPolicies::parse("p", "{\"user\":\"a\"}").unwrap();
    assert!(unversioned);
    assert_eq!(policies.rules_for(&User::named("a"), "x").rules.len(), 2);
    assert_eq!(policies.rules_for(&User::named("b"), "x").rules, []);
}

#[test]
fn node_authorizer_does_not_list_rules() {
    let nodes = chain(vec![("node", Authorizer::Node(Arc::new(crate::node::NodeAuthorizer::new())))]);
    let rules = nodes.rules_for(&User::named("system:node:n").in_groups(["system:nodes"]), "");
    assert!(rules.incomplete);
    assert_eq!(rules.error.unwrap(), "node authorizer does not support user rule resolution");
    assert_eq!(nodes.rules_for(&User::named("alice"), ""), rbac::SubjectRules::default());
}

#[test]
fn impersonation_is_authorized_by_the_chain() {
    let index = index(
        "
kind: ClusterRole
metadata: {name: actor}
rules: [{apiGroups: [''], resources: [users], resourceNames: [bob], verbs: [impersonate]}]
---
kind: ClusterRoleBinding
metadata: {name: actors}
subjects: [{kind: User, name: system:kube-scheduler}]
roleRef: {kind: ClusterRole, name: actor}
",
    );
    let chain = chain(vec![("rbac", Authorizer::Rbac(index))]);
    let caller = Caller::internal(InternalIdentity::Scheduler);
    let as_user = |name: &'static str| {
        let lines = [("impersonate-user", name)];
        run(impersonate(&chain, &caller, &authn::HeaderLines(&lines), &pods(), &LastModes::default()))
    };
    assert_eq!(as_user("bob").unwrap().name(), "bob");
    expect![[r#"pods is forbidden: User "system:kube-scheduler" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope"#]]
        .assert_eq(as_user("carol").unwrap_err().message());
    assert_eq!(
        run(impersonate(&chain, &caller, &authn::HeaderLines::<&str>(&[]), &pods(), &LastModes::default()))
            .unwrap(),
        caller
    );
}

#[test]
fn authorize_and_impersonate_futures_are_send() {
    fn is_send<T: Send>(_: &T) {}
    let chain = chain(vec![]);
    let caller = Caller::internal(InternalIdentity::Scheduler);
    is_send(&chain.authorize(&caller, pods()));
    let last = LastModes::default();
    is_send(&impersonate(&chain, &caller, &authn::HeaderLines::<&str>(&[]), &pods(), &last));
}

#[test]
fn access_review_spec_becomes_user_and_request_attributes() {
    let spec = one(
        "{user: a, uid: u, groups: [g], extra: {k: [v]}, resourceAttributes: {verb: list, resource: pods, namespace: n, fieldSelector: {rawSelector: 'metadata.name=x'}, labelSelector: {requirements: [{key: app, operator: In, values: [web]}, {key: '', operator: Exists}, {key: x, operator: Near}]}}}",
    );
    let user = review::subject(&spec);
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("a", "u"));
    assert_eq!(user.extra["k"], ["v"]);
    let attributes = review::attributes(&spec);
    assert_eq!(attributes.version, "*");
    assert_eq!(attributes.fields, SelectorAttributes::of_fields("metadata.name=x"));
    assert_eq!(attributes.labels.requirements.len(), 1);
    let answer =
        AuthorizerDecision { error: Some("boom".to_owned()), ..AuthorizerDecision::no_opinion("why") };
    expect![[r#"{"allowed":false,"evaluationError":"boom; spec.resourceAttributes.labelSelector partially ignored due to parse error","reason":"why"}"#]]
        .assert_eq(&value::write::to_string(&review::status(&answer, &attributes)));
    let path = review::attributes(&one("{nonResourceAttributes: {path: /x, verb: get}}"));
    assert_eq!(path, AuthorizationAttributes::path("get", "/x"));
    expect![[r#"{"allowed":false,"denied":true,"reason":"no"}"#]]
        .assert_eq(&value::write::to_string(&review::status(&AuthorizerDecision::deny("no"), &path)));
}

#[test]
fn rules_review_lists_resource_rules_and_non_resource_rules_separately() {
    let rules = rbac::SubjectRules { rules: everything(), ..rbac::SubjectRules::default() };
    expect![[r#"{"incomplete":false,"nonResourceRules":[{"nonResourceURLs":["*"],"verbs":["*"]}],"resourceRules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#]]
        .assert_eq(&value::write::to_string(&review::rules_status(&rules)));
}

#[test]
fn selectors_become_requirements_of_request_attributes() {
    let labels = SelectorAttributes::of_labels("a=b,c in (d,e),!f,g,h>1");
    let shown: Vec<String> = labels
        .requirements
        .iter()
        .map(|r| format!("{} {} {:?}", r.key, r.operator.as_str(), r.values))
        .collect();
    assert_eq!(shown, ["a In [\"b\"]", "c In [\"d\", \"e\"]", "f DoesNotExist []", "g Exists []"]);
    assert!(SelectorAttributes::of_labels("a=(").error.is_some());
    assert!(SelectorAttributes::of_fields("nonsense").error.is_some());
}

#[test]
fn forbidden_grant_names_the_roles_that_do_not_exist() {
    let (index, chain) = team();
    for (name, role) in [("m1", "gone"), ("m2", "gone2")] {
        let binding = one(&format!(
            "{{kind: ClusterRoleBinding, metadata: {{name: {name}}}, subjects: [{{kind: User, name: alice}}], roleRef: {{kind: ClusterRole, name: {role}}}}}"
        ));
        index.apply(RbacKind::ClusterRoleBinding, None, Some(&binding));
    }
    let role = one("{metadata: {name: r}, rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]}");
    let refused =
        run(granting(&chain, &index, &User::named("alice"), "ns").check_role(None, &role)).unwrap_err();
    expect![[r#"
        roles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=[]) is attempting to grant RBAC permissions not currently held:
        {APIGroups:[""], Resources:["secrets"], Verbs:["get"]}; resolution errors: [[roles.rbac.authorization.k8s.io "gone" not found, roles.rbac.authorization.k8s.io "gone2" not found]]"#]]
    .assert_eq(refused.message());
}
