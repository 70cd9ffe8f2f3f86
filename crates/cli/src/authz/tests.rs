//! Tests of `authz check` and `authz can-i` with files in a temporary directory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as _, FromArgMatches as _};
use expect_test::{Expect, expect};

use super::{Args, AuthzCommand, can_i, load, print_chain};

/// A directory with a configuration, roles and a kubeconfig.
struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    fn new() -> Self {
        let directory = TestDirectory(tempfile::tempdir().unwrap());
        directory.write(
            "kubeconfig",
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: c, cluster: {server: 'https://hook.example/authz'}}]\ncontexts: [{name: x, context: {cluster: c}}]\n",
        );
        directory.write(
            "authz.yaml",
            &format!(
                r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: system
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}
    matchConditions:
    - expression: has(request.resourceAttributes)
    - expression: request.resourceAttributes.namespace == 'kube-system'
    - expression: "!('admins' in request.groups)"
- {{type: RBAC, name: rbac}}
"#,
                directory.path("kubeconfig").display()
            ),
        );
        directory.write(
            "roles.yaml",
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: web}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBindingList
items:
- metadata: {name: readers, namespace: web}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
  subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]
- metadata: {name: viewers, namespace: kube-system}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
  subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]
",
        );
        directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn parse(&self, words: &[&str]) -> AuthzCommand {
        let config = self.path("authz.yaml").display().to_string();
        let (task, rest) = words.split_first().unwrap();
        let command = Args::augment_args(clap::Command::new("authz"));
        let given = ["authz", task, "--config", &config].into_iter().chain(rest.iter().copied());
        Args::from_arg_matches(&command.get_matches_from(given)).unwrap().command
    }

    /// Runs `can-i` with the roles, and shows what it prints, without times and paths.
    fn can_i(&self, words: &[&str], expected: &Expect) -> ExitCode {
        let roles = self.path("roles.yaml").display().to_string();
        let words: Vec<&str> = ["can-i", "-f", &roles].into_iter().chain(words.iter().copied()).collect();
        let AuthzCommand::CanI(args) = self.parse(&words) else { panic!() };
        let mut out = Vec::new();
        let code = can_i::run(&args, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let shown: Vec<String> = shown
            .lines()
            .map(|line| match line.rsplit_once(" [") {
                Some((before, time)) if time.ends_with("s]") => format!("{before} [TIME]"),
                _ => line.to_owned(),
            })
            .collect();
        expected.assert_eq(&shown.join("\n"));
        code
    }

    fn refused(&self) -> String {
        let AuthzCommand::Check(args) = self.parse(&["check"]) else { panic!() };
        let path = self.path("").display().to_string();
        format!("{:#}", load(&args.file).map(|_| ()).unwrap_err()).replace(&path, "")
    }
}

#[test]
fn check_prints_the_authorizer_chain_of_a_valid_file() {
    let directory = TestDirectory::new();
    let AuthzCommand::Check(args) = directory.parse(&["check"]) else { panic!() };
    let mut out = Vec::new();
    print_chain(std::path::Path::new("authz.yaml"), &load(&args.file).unwrap().configuration, &mut out)
        .unwrap();
    expect![[r"
        authz.yaml is valid
        1. system (Webhook)
           sends v1 reviews to https://hook.example/authz, timeout 3s
           allowed responses are cached for 300s, other responses are cached for 30s; if the call fails: deny
           if has(request.resourceAttributes)
           if request.resourceAttributes.namespace == 'kube-system'
           if !('admins' in request.groups)
        2. rbac (RBAC)
    "]]
    .assert_eq(&String::from_utf8(out).unwrap());
}

#[test]
fn check_reports_every_problem_with_line_and_column() {
    let directory = TestDirectory::new();
    directory.write(
        "authz.yaml",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: RBAC\n- type: Nope\n  name: x\n",
    );
    expect![[r#"
        authz.yaml:4:3: authorizers[0].name: Required value (add `name: rbac`)
        authz.yaml:5:3: authorizers[1].type: Unsupported value: "Nope": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"

        kube-apiserver's message: [authorizers[0].name: Required value, authorizers[1].type: Unsupported value: "Nope": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"]"#]]
    .assert_eq(&directory.refused());
}

#[test]
fn an_unreadable_kubeconfig_is_an_error_unless_kubeconfigs_are_skipped() {
    let directory = TestDirectory::new();
    directory.write("kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: nope\n");
    assert!(
        directory.refused().contains("context was not found for specified context: nope"),
        "{}",
        directory.refused()
    );
    let AuthzCommand::Check(args) = directory.parse(&["check", "--without-kubeconfigs"]) else { panic!() };
    assert!(load(&args.file).is_ok());
}

#[test]
fn can_i_prints_conditions_decision_and_reason_of_each_authorizer() {
    let directory = TestDirectory::new();
    let code = directory.can_i(
        &["--as", "alice", "-n", "web", "get", "deploy/front"],
        &expect![[r#"
            1. system (Webhook)
               has(request.resourceAttributes): true
               request.resourceAttributes.namespace == 'kube-system': false
               !('admins' in request.groups): true
               is skipped [TIME]
            2. rbac (RBAC)
               allows: RBAC: allowed by RoleBinding "readers/web" of Role "reader" to User "alice" [TIME]
            yes"#]],
    );
    assert_eq!(code, ExitCode::SUCCESS);
    let code = directory.can_i(
        &["--as", "alice", "-n", "web", "delete", "deployments.apps", "front"],
        &expect![[r#"
            1. system (Webhook)
               has(request.resourceAttributes): true
               request.resourceAttributes.namespace == 'kube-system': false
               !('admins' in request.groups): true
               is skipped [TIME]
            2. rbac (RBAC)
               has no opinion [TIME]
            no
            deployments.apps "front" is forbidden: User "alice" cannot delete resource "deployments" in API group "apps" in the namespace "web""#]],
    );
    assert_eq!(code, ExitCode::FAILURE);
}

#[test]
fn can_i_does_not_call_webhooks_but_takes_an_assumed_response() {
    let directory = TestDirectory::new();
    let words = ["--as", "alice", "-n", "kube-system", "list", "pods"];
    let code = directory.can_i(
        &words,
        &expect![[r#"
            1. system (Webhook)
               has(request.resourceAttributes): true
               request.resourceAttributes.namespace == 'kube-system': true
               !('admins' in request.groups): true
               would be called; set its response with --assume
            2. rbac (RBAC)
               allows: RBAC: allowed by RoleBinding "viewers/kube-system" of ClusterRole "view" to User "alice" [TIME]
            the decision depends on the webhook `system`; if it has no opinion: yes (use --assume system=allow|deny|no-opinion|fail)"#]],
    );
    assert_eq!(code, ExitCode::from(3));
    let denied = [&["--assume", "system=deny"], words.as_slice()].concat();
    let code = directory.can_i(
        &denied,
        &expect![[r#"
            1. system (Webhook)
               has(request.resourceAttributes): true
               request.resourceAttributes.namespace == 'kube-system': true
               !('admins' in request.groups): true
               denies: assumed [TIME]
            no
            pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "kube-system": assumed"#]],
    );
    assert_eq!(code, ExitCode::FAILURE);
    let failing = [&["--assume", "system=fail"], words.as_slice()].concat();
    let code = directory.can_i(
        &failing,
        &expect![[r"
            1. system (Webhook)
               has(request.resourceAttributes): true
               request.resourceAttributes.namespace == 'kube-system': true
               !('admins' in request.groups): true
               denies (error: assumed to fail) [TIME]
            no
            the server would respond with 500: assumed to fail"]],
    );
    assert_eq!(code, ExitCode::FAILURE);
}

#[test]
fn can_i_handles_masters_paths_and_condition_errors() {
    let directory = TestDirectory::new();
    let code = directory.can_i(
        &["--as", "root", "--as-group", "system:masters", "delete", "nodes"],
        &expect![[r"
            0. members of system:masters may do everything
            yes"]],
    );
    assert_eq!(code, ExitCode::SUCCESS);
    directory.can_i(
        &["--as", "alice", "get", "/healthz"],
        &expect![[r#"
            1. system (Webhook)
               has(request.resourceAttributes): false
               request.resourceAttributes.namespace == 'kube-system': error: no such key: resourceAttributes
               !('admins' in request.groups): true
               is skipped [TIME]
            2. rbac (RBAC)
               allows: RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated" [TIME]
            yes"#]],
    );
}
