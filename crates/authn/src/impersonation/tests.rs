//! Tests of impersonation: which checks are made in which order, and the resulting caller.

use std::sync::Mutex;

use expect_test::{Expect, expect};

use super::*;
use crate::{HeaderLines, InternalIdentity};

/// Allows the listed checks and records all: identity checks as `verb resource[/sub] [ns/]name`, requests as `on MODE`.
struct List {
    allowed: Vec<&'static str>,
    asked: Mutex<Vec<String>>,
}

impl List {
    fn say(&self, user: &User, text: String) -> Result<(), Status> {
        let allowed = self.allowed.iter().any(|a| *a == text);
        let refusal = Status::bad_request(format!("{} may not {text}", user.name));
        self.asked.lock().unwrap().push(text);
        if allowed { Ok(()) } else { Err(refusal) }
    }
}

impl ImpersonationChecks for List {
    fn identity<'a>(&'a self, user: &'a User, check: &'a IdentityCheck) -> CheckFuture<'a> {
        let sub =
            if check.subresource.is_empty() { String::new() } else { format!("/{}", check.subresource) };
        let namespace =
            if check.namespace.is_empty() { String::new() } else { format!("{}/", check.namespace) };
        let text = format!("{} {}{sub} {namespace}{}", check.verb, check.resource, check.name);
        Box::pin(async move { self.say(user, text) })
    }

    fn request<'a>(&'a self, user: &'a User, mode: &'a str) -> CheckFuture<'a> {
        Box::pin(async move { self.say(user, format!("on {mode}")) })
    }
}

fn caller() -> Caller {
    Caller::internal(InternalIdentity::Scheduler)
}

fn attempt(
    caller: &Caller,
    headers: &[(&str, &str)],
    allowed: &[&'static str],
) -> (Result<Caller, Status>, Vec<String>) {
    let checks = List { allowed: allowed.to_vec(), asked: Mutex::default() };
    let wanted = Impersonation::from_headers(&HeaderLines(headers)).unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let result = runtime.block_on(wanted.apply(caller, &checks, &LastModes::default()));
    (result, checks.asked.into_inner().unwrap())
}

fn check(headers: &[(&str, &str)], allowed: &[&'static str], expected: &Expect) {
    let (result, asked) = attempt(&caller(), headers, allowed);
    let shown = match result {
        Ok(user) => format!("{} {:?} {:?}", user.name(), user.groups(), user.via()),
        Err(status) => format!("refused: {status}"),
    };
    expected.assert_eq(&format!("{}\n{shown}", asked.join("\n")));
}

#[test]
fn a_request_without_impersonation_headers_is_not_impersonated() {
    assert_eq!(Impersonation::from_headers(&HeaderLines(&[("accept", "x")])).unwrap(), None);
    assert!(Impersonation::is_header("Impersonate-Extra-Scopes"));
    assert!(!Impersonation::is_header("Impersonate-Me"));
}

#[test]
fn malformed_impersonation_headers_are_rejected() {
    for name in ["Impersonate-User", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-Scopes"] {
        let lines: [(&str, &[u8]); 2] = [("Impersonate-User", b"bob"), (name, b"\xff")];
        let lines = if name == "Impersonate-User" { &lines[1..] } else { &lines[..] };
        let refused = Impersonation::from_headers(&HeaderLines(lines)).unwrap_err();
        assert_eq!(refused.code(), 400);
        let words = format!("the value of the header {name} is not UTF-8");
        assert_eq!(refused.message().to_lowercase(), words.to_lowercase());
    }
    assert!(Impersonation::from_headers(&HeaderLines(&[("accept", b"\xff")])).unwrap().is_none());
}

#[test]
fn impersonating_groups_or_uid_without_a_user_name_is_rejected() {
    let refused = |headers: &[(&str, &str)], expected: &Expect| {
        expected.assert_eq(Impersonation::from_headers(&HeaderLines(headers)).unwrap_err().message());
    };
    refused(
        &[("Impersonate-Group", "a"), ("Impersonate-Extra-Foo", "b")],
        &expect![[
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string{"foo":[]string{"b"}}} without impersonating a user name"#
        ]],
    );
    refused(
        &[("impersonate-uid", "1")],
        &expect![[
            r#"requested &user.DefaultInfo{Name:"", UID:"1", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name"#
        ]],
    );
}

#[test]
fn constrained_impersonation_requires_permission_for_the_request_and_the_user() {
    let bob = [("impersonate-user", "bob")];
    check(
        &bob,
        &["on user-info", "impersonate:user-info users bob"],
        &expect![[r#"
            on user-info
            impersonate:user-info users bob
            bob ["system:authenticated"] Impersonation { constraint: "impersonate:user-info" }"#]],
    );
    check(
        &bob,
        &["impersonate:user-info users bob"],
        &expect![[r"
            on user-info
            impersonate users bob
            refused: system:kube-scheduler may not on user-info"]],
    );
    check(
        &bob,
        &["impersonate users bob"],
        &expect![[r#"
            on user-info
            impersonate users bob
            bob ["system:authenticated"] Impersonation { constraint: "" }"#]],
    );
}

#[test]
fn impersonated_user_uid_groups_and_extra_are_authorized_separately() {
    let headers = [
        ("impersonate-user", "bob"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-Acme.io%2fScopes", "view"),
    ];
    check(
        &headers,
        &["impersonate users bob", "impersonate uids 7", "impersonate groups a", "impersonate groups b"],
        &expect![[r"
            on user-info
            impersonate users bob
            impersonate uids 7
            impersonate groups a
            impersonate groups b
            impersonate userextras/acme.io/scopes view
            refused: system:kube-scheduler may not on user-info"]],
    );
    let (result, _) = attempt(
        &caller(),
        &headers,
        &[
            "impersonate users bob",
            "impersonate uids 7",
            "impersonate groups a",
            "impersonate groups b",
            "impersonate userextras/acme.io/scopes view",
        ],
    );
    let bob = result.unwrap();
    assert_eq!(bob.groups(), ["a", "b", "system:authenticated"]);
    assert_eq!(bob.user().extra["acme.io/scopes"], ["view"]);
    assert_eq!(bob.impersonator(), Some(&caller()));
}

#[test]
fn impersonated_service_accounts_and_nodes_get_their_implicit_groups() {
    check(
        &[("impersonate-user", "system:serviceaccount:ns:robot")],
        &["on serviceaccount", "impersonate:serviceaccount serviceaccounts ns/robot"],
        &expect![[r#"
            on serviceaccount
            impersonate:serviceaccount serviceaccounts ns/robot
            system:serviceaccount:ns:robot ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"] Impersonation { constraint: "impersonate:serviceaccount" }"#]],
    );
    check(
        &[("impersonate-user", "system:node:n1")],
        &["on arbitrary-node", "impersonate:arbitrary-node nodes n1"],
        &expect![[r#"
            on arbitrary-node
            impersonate:arbitrary-node nodes n1
            system:node:n1 ["system:nodes", "system:authenticated"] Impersonation { constraint: "impersonate:arbitrary-node" }"#]],
    );
    // Plain impersonation checks a node as an ordinary user.
    check(
        &[("impersonate-user", "system:node:n1")],
        &["impersonate users system:node:n1"],
        &expect![[r#"
            on arbitrary-node
            impersonate users system:node:n1
            system:node:n1 ["system:authenticated"] Impersonation { constraint: "" }"#]],
    );
}

#[test]
fn service_account_may_impersonate_the_node_that_its_token_is_bound_to() {
    let mut user = service_account::user("ns", "agent", "u");
    user.extra.insert(names::NODE_NAME.into(), vec!["n1".into()]);
    let agent = Caller::authenticated(user, AuthenticationMethod::ServiceAccountToken);
    let allowed = ["on associated-node", "impersonate:associated-node nodes *"];
    let (own, asked) = attempt(&agent, &[("impersonate-user", "system:node:n1")], &allowed);
    assert_eq!(own.unwrap().name(), "system:node:n1");
    assert_eq!(asked, allowed);
    let (other, asked) = attempt(&agent, &[("impersonate-user", "system:node:n2")], &allowed);
    assert!(other.is_err());
    assert_eq!(asked[0], "on arbitrary-node");
}

#[test]
fn constrained_impersonation_rejects_system_masters_and_empty_groups() {
    let constrained = ["on user-info", "impersonate:user-info users bob", "impersonate:user-info groups *"];
    check(
        &[("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
        &constrained,
        &expect![[r#"
            on user-info
            impersonate:user-info users bob
            impersonate users bob
            refused: groups.authentication.k8s.io "system:masters" is forbidden: User "system:kube-scheduler" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#]],
    );
    let (result, _) =
        attempt(&caller(), &[("impersonate-user", "bob"), ("impersonate-group", "")], &constrained);
    assert!(result.unwrap_err().message().contains("impersonating the empty string group is not allowed"));
}

#[test]
fn constrained_impersonation_requires_domain_prefixed_extra_keys() {
    let constrained = ["on user-info", "impersonate:user-info users bob"];
    let (result, _) =
        attempt(&caller(), &[("impersonate-user", "bob"), ("impersonate-extra-scopes", "x")], &constrained);
    expect![[r#"userextras.authentication.k8s.io is forbidden: User "system:kube-scheduler" cannot impersonate:user-info resource "userextras" in API group "authentication.k8s.io" at the cluster scope: impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "scopes": must be a domain-prefixed path (such as "acme.io/foo")"#]]
        .assert_eq(result.unwrap_err().message());
}

#[test]
fn impersonating_many_groups_checks_the_wildcard_permission_first() {
    let headers = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-group", "c"),
        ("impersonate-group", "d"),
    ];
    let allowed = ["on user-info", "impersonate:user-info users bob", "impersonate:user-info groups *"];
    let (result, asked) = attempt(&caller(), &headers, &allowed);
    assert!(result.is_ok());
    assert_eq!(asked, allowed);
}

#[test]
fn impersonated_anonymous_user_is_in_the_unauthenticated_group() {
    let (result, _) = attempt(
        &caller(),
        &[("impersonate-user", "system:anonymous")],
        &["impersonate users system:anonymous"],
    );
    assert_eq!(result.unwrap().groups(), ["system:unauthenticated"]);
}

#[test]
fn impersonation_mode_that_was_last_allowed_is_tried_first() {
    let last_modes = LastModes::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let attempt = |name: &str, allowed: &[&'static str]| {
        let checks = List { allowed: allowed.to_vec(), asked: Mutex::default() };
        let wanted =
            Impersonation::from_headers(&HeaderLines(&[("Impersonate-User", name)])).unwrap().unwrap();
        let result = runtime.block_on(wanted.apply(&caller(), &checks, &last_modes));
        (
            result.map(|user| format!("{:?}", user.via())).map_err(|status| status.to_string()),
            checks.asked.into_inner().unwrap(),
        )
    };
    // Denials are not remembered: the modes are tried in their usual order again.
    let (_, asked) = attempt("bob", &[]);
    assert_eq!(asked, ["on user-info", "impersonate users bob"]);
    let (result, asked) = attempt("bob", &["impersonate users bob"]);
    assert_eq!(result.unwrap(), r#"Impersonation { constraint: "" }"#);
    assert_eq!(asked, ["on user-info", "impersonate users bob"]);
    // The plain mode was allowed last, so it is tried first and its denial is returned.
    let (result, asked) = attempt("bob", &["impersonate users bob"]);
    assert!(result.is_ok());
    assert_eq!(asked, ["impersonate users bob"]);
    let (result, asked) = attempt("carol", &[]);
    assert!(result.unwrap_err().contains("impersonate users carol"));
    assert_eq!(asked, ["impersonate users carol", "on user-info"]);
    // Another mode that allows becomes the first one.
    let (result, _) = attempt("carol", &["on user-info", "impersonate:user-info users carol"]);
    assert_eq!(result.unwrap(), r#"Impersonation { constraint: "impersonate:user-info" }"#);
    let (_, asked) = attempt("bob", &[]);
    assert_eq!(asked, ["on user-info", "impersonate users bob"]);
}
