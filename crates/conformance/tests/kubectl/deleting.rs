//! `delete` with all cascading modes.

use crate::session::{Session, contains};

fn create_owner_and_dependent(kubectl: &Session, owner: &str) {
    kubectl.ok(&["create", "configmap", owner]);
    let uid = kubectl.ok(&["get", "configmap", owner, "-o", "jsonpath={.metadata.uid}"]);
    let child = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {owner}-child\n  ownerReferences:\n  \
         - {{apiVersion: v1, kind: ConfigMap, name: {owner}, uid: {uid}, controller: true, blockOwnerDeletion: true}}\n"
    );
    kubectl.ok_with(&["create", "-f", "-"], &child);
}

#[tokio::test]
async fn delete_works_by_name_by_label_and_for_all() {
    let kubectl = Session::start().await;
    for name in ["a", "b", "c", "d"] {
        kubectl.ok(&["create", "secret", "generic", name]);
    }
    kubectl.ok(&["label", "secret", "b", "c", "set=x"]);
    contains(
        &kubectl.ok(&["delete", "secret", "a", "--dry-run=server"]),
        &["secret \"a\" deleted", "(server dry run)"],
    );
    contains(&kubectl.ok(&["delete", "secret", "a"]), &["secret \"a\" deleted"]);
    contains(&kubectl.fails(&["delete", "secret", "a"]), &["secrets \"a\" not found"]);
    assert_eq!(kubectl.ok(&["delete", "secret", "a", "--ignore-not-found"]), "");
    contains(
        &kubectl.ok(&["delete", "secrets", "-l", "set=x"]),
        &["secret \"b\" deleted", "secret \"c\" deleted"],
    );
    contains(&kubectl.ok(&["delete", "secrets", "--all"]), &["secret \"d\" deleted"]);
    contains(&kubectl.run(&["get", "secrets"]).err, &["No resources found"]);
}

#[tokio::test]
async fn a_finalizer_delays_deletion() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "secret", "generic", "f"]);
    kubectl.ok(&[
        "patch",
        "secret",
        "f",
        "--type=merge",
        "-p",
        "{\"metadata\":{\"finalizers\":[\"example.com/wait\"]}}",
    ]);
    contains(&kubectl.ok(&["delete", "secret", "f", "--wait=false"]), &["secret \"f\" deleted"]);
    assert_ne!(kubectl.ok(&["get", "secret", "f", "-o", "jsonpath={.metadata.deletionTimestamp}"]), "");
    contains(
        &kubectl.fails(&["delete", "secret", "f", "--timeout=1s"]),
        &["timed out waiting for the condition"],
    );
    kubectl.ok(&["patch", "secret", "f", "--type=merge", "-p", "{\"metadata\":{\"finalizers\":null}}"]);
    contains(&kubectl.fails(&["get", "secret", "f"]), &["NotFound"]);
}

#[tokio::test]
async fn cascading_deletion_deletes_dependents() {
    let kubectl = Session::start().await;
    if !kubectl.has_controllers() {
        println!("left out: cascades, which need controllers beside the API server");
        return;
    }
    create_owner_and_dependent(&kubectl, "back");
    kubectl.ok(&["delete", "configmap", "back", "--cascade=background"]);
    kubectl.eventually(&["get", "configmap", "back-child"], |said| said.err.contains("NotFound"));

    create_owner_and_dependent(&kubectl, "fore");
    kubectl.ok(&["delete", "configmap", "fore", "--cascade=foreground"]);
    // The owner is deleted last. kubectl waited for it, so both are gone.
    contains(&kubectl.fails(&["get", "configmap", "fore-child"]), &["NotFound"]);
    contains(&kubectl.fails(&["get", "configmap", "fore"]), &["NotFound"]);

    create_owner_and_dependent(&kubectl, "orphan");
    kubectl.ok(&["delete", "configmap", "orphan", "--cascade=orphan"]);
    contains(&kubectl.fails(&["get", "configmap", "orphan"]), &["NotFound"]);
    kubectl.eventually(
        &["get", "configmap", "orphan-child", "-o", "jsonpath={.metadata.ownerReferences}"],
        |said| said.code == 0 && said.out.is_empty(),
    );
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_content() {
    let kubectl = Session::start().await;
    if !kubectl.has_controllers() {
        println!("left out: the end of a namespace, which needs controllers beside the API server");
        return;
    }
    // Objects that every namespace has.
    kubectl.eventually(&["get", "serviceaccount", "default"], |said| said.code == 0);
    kubectl.eventually(&["get", "configmap", "kube-root-ca.crt"], |said| said.code == 0);
    kubectl.ok(&["create", "secret", "generic", "inside"]);
    kubectl.ok(&["create", "deployment", "web", "--image=nginx"]);
    kubectl.ok(&["run", "pod", "--image=busybox"]);
    contains(&kubectl.ok(&["delete", "namespace", &kubectl.namespace, "--timeout=60s"]), &["deleted"]);
    contains(&kubectl.fails(&["get", "namespace", &kubectl.namespace]), &["NotFound"]);
    assert_eq!(kubectl.ok(&["get", "secrets,deployments,pods", "-o", "name"]), "");
    contains(&kubectl.fails(&["create", "configmap", "late"]), &["namespaces \"", "\" not found"]);
    // A new namespace with the same name is empty.
    kubectl.ok(&["create", "namespace", &kubectl.namespace]);
    kubectl.eventually(&["get", "serviceaccount", "default"], |said| said.code == 0);
    assert_eq!(kubectl.ok(&["get", "secrets,deployments,pods", "-o", "name"]), "");
}
