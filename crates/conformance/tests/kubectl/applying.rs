//! `apply --server-side`, `diff --server-side`, and the migration from client-side apply.

use crate::session::{Session, contains};

const FIRST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v, own: o}\n";
const SECOND: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: w}\n";

fn managers(kubectl: &Session, what: &str) -> String {
    let path = "jsonpath={range .metadata.managedFields[*]}{.manager}/{.operation} {end}";
    // Older versions show managedFields by default.
    let asked: &[&str] = if kubectl.has(21) { &["--show-managed-fields"] } else { &[] };
    kubectl.ok(&[&["get", what, "-o", path], asked].concat())
}

#[tokio::test]
async fn server_side_apply_owns_the_applied_fields() {
    let kubectl = Session::start().await;
    contains(
        &kubectl.ok_with(&["apply", "--server-side", "-f", "-"], FIRST),
        &["configmap/a serverside-applied"],
    );
    assert_eq!(managers(&kubectl, "configmap/a"), "kubectl/Apply ");
    let revision = || kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.metadata.resourceVersion}"]);
    let before = revision();
    kubectl.ok_with(&["apply", "--server-side", "-f", "-"], FIRST);
    assert_eq!(revision(), before, "the same again is no change");
    kubectl.ok_with(&["apply", "--server-side", "-f", "-"], SECOND);
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data}"]), "{\"k\":\"w\"}");
}

#[tokio::test]
async fn a_conflict_names_the_manager_and_force_takes_over() {
    let kubectl = Session::start().await;
    kubectl.ok_with(&["apply", "--server-side", "--field-manager=first", "-f", "-"], FIRST);
    let said = kubectl.run_with(&["apply", "--server-side", "--field-manager=second", "-f", "-"], SECOND);
    assert_ne!(said.code, 0);
    contains(&said.err, &["Apply failed with 1 conflict: conflict with \"first\": .data.k"]);
    let forced = ["apply", "--server-side", "--force-conflicts", "--field-manager=second", "-f", "-"];
    contains(&kubectl.ok_with(&forced, SECOND), &["configmap/a serverside-applied"]);
    assert_eq!(
        kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data}"]),
        "{\"k\":\"w\",\"own\":\"o\"}"
    );
    assert_eq!(managers(&kubectl, "configmap/a"), "first/Apply second/Apply ");
}

#[tokio::test]
async fn a_server_side_diff_shows_changes_without_making_them() {
    let kubectl = Session::start().await;
    kubectl.ok_with(&["apply", "--server-side", "-f", "-"], FIRST);
    let said = kubectl.run_with(&["diff", "--server-side", "-f", "-"], SECOND);
    assert_eq!(said.code, 1, "{}", said.err);
    contains(&said.out, &["-  k: v\n", "+  k: w\n", "-  own: o\n"]);
    assert_eq!(kubectl.run_with(&["diff", "--server-side", "-f", "-"], FIRST).code, 0);
    let dry = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
    contains(&kubectl.ok_with(&dry, SECOND), &["configmap/a serverside-applied (server dry run)"]);
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data.k}"]), "v");
}

#[tokio::test]
async fn server_side_apply_takes_over_client_side_applied_fields() {
    let kubectl = Session::start().await;
    kubectl.ok_with(&["apply", "-f", "-"], FIRST);
    assert_eq!(managers(&kubectl, "configmap/a"), "kubectl-client-side-apply/Update ");
    contains(
        &kubectl.ok_with(&["apply", "--server-side", "-f", "-"], SECOND),
        &["configmap/a serverside-applied"],
    );
    // kubectl transfers the ownership.
    if !kubectl.since(26, "the way from client-side to server-side apply") {
        return;
    }
    // A field that is no longer applied is removed, as if it had been applied by server-side apply before.
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data}"]), "{\"k\":\"w\"}");
    contains(&managers(&kubectl, "configmap/a"), &["kubectl/Apply "]);
    assert!(!managers(&kubectl, "configmap/a").contains("Update"));
    // Back to client-side apply: the annotation is up to date.
    contains(&kubectl.ok_with(&["apply", "-f", "-"], SECOND), &["configmap/a"]);
    contains(&kubectl.ok_with(&["apply", "-f", "-"], SECOND), &["configmap/a unchanged"]);
}

#[tokio::test]
async fn a_deployment_without_replicas_can_be_scaled_by_another_manager() {
    let kubectl = Session::start().await;
    let deployment = |replicas: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  {replicas}\n  selector: {{matchLabels: {{a: b}}}}\n  \
             template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: nginx}}]}}}}\n"
        )
    };
    let applied = ["apply", "--server-side", "-f", "-"];
    kubectl.ok_with(&applied, &deployment("replicas: 2"));
    kubectl.ok(&["scale", "deployment", "d", "--replicas=5"]);
    let said = kubectl.run_with(&applied, &deployment("replicas: 2"));
    contains(
        &said.err,
        &["conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas"],
    );
    kubectl.ok_with(&applied, &deployment("paused: false"));
    assert_eq!(kubectl.ok(&["get", "deployment", "d", "-o", "jsonpath={.spec.replicas}"]), "5");
}
