//! `replace`, `edit`, `patch`, `label`, `annotate`, `scale`, `set`, `wait`.

use crate::session::{Session, contains};

#[tokio::test]
async fn replace_and_edit_update_objects() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=v"]);
    let whole = kubectl.ok(&["get", "configmap", "a", "-o", "yaml"]).replace("k: v", "k: replaced");
    contains(&kubectl.ok_with(&["replace", "-f", "-"], &whole), &["configmap/a replaced"]);
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data.k}"]), "replaced");
    // The file has a resourceVersion, which is stale now.
    let said = kubectl.run_with(&["replace", "-f", "-"], &whole);
    contains(
        &said.err,
        &["the object has been modified; please apply your changes to the latest version and try again"],
    );
    let said = kubectl
        .run_with(&["replace", "-f", "-"], "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: missing}\n");
    contains(&said.err, &["configmaps \"missing\" not found"]);
    contains(
        &kubectl.ok_with(
            &["replace", "--force", "-f", "-"],
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: forced}\n",
        ),
        &["configmap \"a\" deleted", "configmap/a replaced"],
    );

    let said = kubectl.edit(&["edit", "configmap", "a"], "s/forced/edited/");
    contains(&said.out, &["configmap/a edited"]);
    assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data.k}"]), "edited");
    let said = kubectl.edit(&["edit", "configmap", "a"], "s/nothing/matches/");
    contains(&said.err, &["Edit cancelled, no changes made."]);
}

#[tokio::test]
async fn all_three_patch_types_work() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "deployment", "web", "--image=nginx"]);
    let container =
        "{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"side\",\"image\":\"busybox\"}]}}}}";
    contains(&kubectl.ok(&["patch", "deployment", "web", "-p", container]), &["deployment.apps/web patched"]);
    assert_eq!(
        kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].name}"]),
        "side nginx"
    );
    contains(
        &kubectl.ok(&["patch", "deployment", "web", "--type=merge", "-p", "{\"spec\":{\"replicas\":3}}"]),
        &["deployment.apps/web patched"],
    );
    contains(
        &kubectl.ok(&[
            "patch",
            "deployment",
            "web",
            "--type=json",
            "-p",
            "[{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":4}]",
        ]),
        &["deployment.apps/web patched"],
    );
    assert_eq!(kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]), "4");
    contains(
        &kubectl.ok(&["patch", "deployment", "web", "--type=merge", "-p", "{\"spec\":{\"replicas\":4}}"]),
        &["deployment.apps/web patched (no change)"],
    );
    contains(
        &kubectl.fails(&["patch", "deployment", "web", "--type=merge", "-p", "{\"spec\":{\"replicas\":-4}}"]),
        &[
            "The Deployment \"web\" is invalid: spec.replicas: Invalid value: -4: must be greater than or equal to 0",
        ],
    );
    if kubectl.since(24, "`--subresource`") {
        kubectl.ok(&[
            "patch",
            "deployment",
            "web",
            "--subresource=status",
            "--type=merge",
            "-p",
            "{\"status\":{\"replicas\":4}}",
        ]);
        assert_eq!(kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.status.replicas}"]), "4");
    }
}

#[tokio::test]
async fn label_annotate_scale_and_set_work() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "deployment", "web", "--image=nginx"]);
    contains(&kubectl.ok(&["label", "deployment", "web", "tier=front"]), &["deployment.apps/web labeled"]);
    contains(
        &kubectl.fails(&["label", "deployment", "web", "tier=back"]),
        &["'tier' already has a value (front), and --overwrite is false"],
    );
    contains(&kubectl.ok(&["label", "deployment", "web", "tier=back", "--overwrite"]), &["labeled"]);
    let said = if kubectl.has(22) { "unlabeled" } else { "labeled" };
    contains(&kubectl.ok(&["label", "deployment", "web", "tier-"]), &[said]);
    contains(
        &kubectl.ok(&["annotate", "deployment", "web", "note=hello"]),
        &["deployment.apps/web annotated"],
    );
    assert_eq!(
        kubectl.ok(&[
            "get",
            "deployment",
            "web",
            "-o",
            "jsonpath={.metadata.annotations.note}{.metadata.labels.tier}"
        ]),
        "hello"
    );
    contains(&kubectl.ok(&["annotate", "deployments", "--all", "note-"]), &["annotated"]);

    contains(&kubectl.ok(&["scale", "deployment", "web", "--replicas=3"]), &["deployment.apps/web scaled"]);
    assert_eq!(kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]), "3");
    contains(
        &kubectl.fails(&["scale", "deployment", "web", "--current-replicas=7", "--replicas=1"]),
        &["Expected replicas to be 7, was 3"],
    );
    contains(
        &kubectl.ok(&["set", "image", "deployment/web", "nginx=nginx:2"]),
        &["deployment.apps/web image updated"],
    );
    contains(&kubectl.ok(&["set", "env", "deployment/web", "A=b"]), &["deployment.apps/web env updated"]);
    contains(&kubectl.ok(&["rollout", "pause", "deployment/web"]), &["deployment.apps/web paused"]);
    assert_eq!(
        kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.spec.paused} {.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].value}"]),
        "true nginx:2 b"
    );
    kubectl.ok_with(&["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: taint-me}\n");
    contains(
        &kubectl.ok(&["taint", "nodes", "taint-me", "key=value:NoSchedule"]),
        &["node/taint-me tainted"],
    );
    contains(&kubectl.ok(&["cordon", "taint-me"]), &["node/taint-me cordoned"]);
    contains(&kubectl.ok(&["get", "nodes", "taint-me"]), &["SchedulingDisabled"]);
    kubectl.ok(&["delete", "node", "taint-me"]);
}

#[tokio::test]
async fn wait_returns_when_the_condition_holds() {
    let kubectl = Session::start().await;
    kubectl.ok(&["run", "p", "--image=busybox"]);
    contains(
        &kubectl.fails(&["wait", "--for=condition=Ready", "pod/p", "--timeout=1s"]),
        &["timed out waiting for the condition on pods/p"],
    );
    if kubectl.since(24, "`--subresource`, which sets the condition") {
        let waiting = kubectl.watch(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
        kubectl.ok(&[
            "patch",
            "pod",
            "p",
            "--subresource=status",
            "-p",
            "{\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
        ]);
        waiting.sees("pod/p condition met");
        contains(
            &kubectl.ok(&["wait", "--for=jsonpath={.status.phase}=Running", "pod/p", "--timeout=10s"]),
            &["condition met"],
        );
    }
    let waiting = kubectl.watch(&["wait", "--for=delete", "pod/p", "--timeout=60s"]);
    kubectl.ok(&["delete", "pod", "p", "--grace-period=0", "--force", "--wait=false"]);
    drop(waiting);
    contains(&kubectl.fails(&["get", "pod", "p"]), &["NotFound"]);
}
