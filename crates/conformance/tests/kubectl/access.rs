//! `api-resources`, `auth can-i`, `create token`, impersonation and `cluster-info`.

use std::fs;

use crate::session::{Session, contains};

#[tokio::test]
async fn api_resources_and_versions_are_listed() {
    let kubectl = Session::start().await;
    let resources = kubectl.ok(&["api-resources", "--no-headers", "-o", "wide"]);
    contains(
        &resources,
        &["configmaps", "deployments", "clusterroles", "resourceclaims", "leases", "tokenreviews"],
    );
    let deployments = resources.lines().find(|line| line.starts_with("deployments ")).unwrap();
    contains(
        deployments,
        &[" deploy ", " apps/v1 ", " true ", " Deployment ", "create", "watch", "deletecollection"],
    );
    assert_eq!(
        kubectl.ok(&["api-resources", "--api-group=coordination.k8s.io", "-o", "name"]),
        "leases.coordination.k8s.io\n"
    );
    let cluster = kubectl.ok(&["api-resources", "--namespaced=false", "-o", "name"]);
    contains(&cluster, &["nodes\n", "namespaces\n", "persistentvolumes\n"]);
    assert!(!cluster.contains("pods\n"), "{cluster}");
    contains(&kubectl.ok(&["api-resources", "--verbs=deletecollection", "-o", "name"]), &["configmaps\n"]);
    contains(
        &kubectl.ok(&["api-versions"]),
        &[
            "admissionregistration.k8s.io/v1\n",
            "apps/v1\n",
            "autoscaling/v2\n",
            "rbac.authorization.k8s.io/v1\n",
            "resource.k8s.io/v1\n",
            "v1\n",
        ],
    );
}

#[tokio::test]
async fn auth_can_i_and_whoami_show_permissions() {
    let kubectl = Session::start().await;
    assert_eq!(kubectl.ok(&["auth", "can-i", "create", "deployments"]), "yes\n");
    assert_eq!(kubectl.ok(&["auth", "can-i", "*", "*", "--all-namespaces"]), "yes\n");
    contains(&kubectl.ok(&["auth", "can-i", "--list"]), &["Resources", "*.*"]);
    kubectl.ok(&["create", "role", "reader", "--verb=get", "--resource=configmaps"]);
    kubectl.ok(&["create", "rolebinding", "readers", "--role=reader", "--user=alice"]);
    kubectl.eventually(&["auth", "can-i", "get", "configmaps", "--as=alice"], |said| said.out == "yes\n");
    let said = kubectl.run(&["auth", "can-i", "list", "configmaps", "--as=alice"]);
    assert_eq!((said.code, said.out.as_str()), (1, "no\n"), "{}", said.err);
    contains(
        &kubectl.fails(&["get", "configmaps", "--as=alice"]),
        &[
            "Error from server (Forbidden): configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\"",
        ],
    );
    if kubectl.since(28, "`auth whoami`") {
        contains(&kubectl.ok(&["auth", "whoami"]), &["Username", "system:masters"]);
    }
    fs::write(
        kubectl.folder.path().join("role.yaml"),
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: reader, namespace: {}}}\n\
             rules: [{{apiGroups: [''], resources: [secrets], verbs: [get]}}]\n",
            kubectl.namespace
        ),
    )
    .unwrap();
    contains(
        &kubectl.ok(&["auth", "reconcile", "-f", "role.yaml"]),
        &["role.rbac.authorization.k8s.io/reader reconciled"],
    );
}

#[tokio::test]
async fn created_tokens_authenticate_their_service_account() {
    let kubectl = Session::start().await;
    let namespace = kubectl.namespace.clone();
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    kubectl.ok(&[
        "create",
        "rolebinding",
        "robot",
        "--clusterrole=view",
        &format!("--serviceaccount={namespace}:robot"),
    ]);
    if !kubectl.since(28, "`create token` and `auth whoami`") {
        return;
    }
    // With the token only: a client certificate would take precedence.
    let url = kubectl.ok(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let server = format!("--server={url}");
    let as_robot = |token: &str, words: &[&'static str]| -> Vec<String> {
        let alone = ["--kubeconfig=/dev/null", "--insecure-skip-tls-verify", &server];
        let token = format!("--token={}", token.trim());
        words.iter().chain(&alone).map(|word| (*word).to_owned()).chain([token]).collect()
    };
    let token = kubectl.ok(&["create", "token", "robot", "--duration=20m"]);
    let run = |token: &str, asked: &[&'static str]| {
        let owned = as_robot(token, asked);
        kubectl.run(&owned.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let who = run(&token, &["auth", "whoami"]);
    let name = format!("system:serviceaccount:{namespace}:robot");
    contains(&who.out, &[&name, "system:serviceaccounts", "system:authenticated"]);
    let owned = as_robot(&token, &["auth", "can-i", "list", "pods"]);
    let asked: Vec<&str> = owned.iter().map(String::as_str).collect();
    kubectl.eventually(&asked, |said| said.out == "yes\n");
    let said = run(&token, &["auth", "can-i", "delete", "pods"]);
    assert_eq!((said.code, said.out.as_str()), (1, "no\n"), "{}", said.err);

    // A token for another audience is rejected, and a bound token is invalid after its object was deleted.
    let other = kubectl.ok(&["create", "token", "robot", "--audience=https://other.example"]);
    contains(&run(&other, &["auth", "whoami"]).err, &["Unauthorized"]);
    kubectl.ok(&["create", "secret", "generic", "leash"]);
    let bound =
        kubectl.ok(&["create", "token", "robot", "--bound-object-kind=Secret", "--bound-object-name=leash"]);
    contains(&run(&bound, &["auth", "whoami"]).out, &[&name]);
    kubectl.ok(&["delete", "secret", "leash"]);
    let owned = as_robot(&bound, &["auth", "whoami"]);
    let asked: Vec<&str> = owned.iter().map(String::as_str).collect();
    kubectl.eventually(&asked, |said| said.code != 0 && said.err.contains("Unauthorized"));
    contains(&kubectl.fails(&["create", "token", "nobody"]), &["serviceaccounts \"nobody\" not found"]);
    contains(
        &kubectl.fails(&["create", "token", "robot", "--duration=9m"]),
        &["may not specify a duration less than 10 minutes"],
    );
}

#[tokio::test]
async fn impersonation_flags_set_user_groups_uid_and_extra() {
    let kubectl = Session::start().await;
    if kubectl.since(28, "`auth whoami`") {
        let who = kubectl.ok(&[
            "auth",
            "whoami",
            "--as=zoe",
            "--as-group=keepers",
            "--as-group=readers",
            "--as-uid=77",
            "-o",
            "json",
        ]);
        contains(
            &who,
            &[
                "\"username\": \"zoe\"",
                "\"keepers\"",
                "\"readers\"",
                "\"uid\": \"77\"",
                "\"system:authenticated\"",
            ],
        );
    }
    kubectl.ok(&["create", "role", "keeper", "--verb=get,list", "--resource=secrets,pods/log"]);
    kubectl.ok(&["create", "rolebinding", "keepers", "--role=keeper", "--group=keepers"]);
    let asked = ["auth", "can-i", "list", "secrets", "--as=zoe", "--as-group=keepers"];
    kubectl.eventually(&asked, |said| said.out == "yes\n");
    let said = kubectl.run(&["auth", "can-i", "list", "secrets", "--as=zoe"]);
    assert_eq!((said.code, said.out.as_str()), (1, "no\n"), "{}", said.err);
    let said =
        kubectl.run(&["auth", "can-i", "get", "pods", "--subresource=log", "--as=zoe", "--as-group=keepers"]);
    assert_eq!(said.out, "yes\n", "{}", said.err);
    let said = kubectl.run(&["auth", "can-i", "get", "/metrics", "--as=zoe"]);
    assert_eq!(said.out, "no\n", "{}", said.err);
    contains(
        &kubectl.ok(&["auth", "can-i", "--list", "--as=zoe", "--as-group=keepers"]),
        &["secrets", "pods/log", "[get list]", "selfsubjectreviews.authentication.k8s.io"],
    );
}

#[tokio::test]
async fn cluster_info_and_version_work() {
    let kubectl = Session::start().await;
    contains(&kubectl.ok(&["cluster-info"]), &["is running at", "https://127.0.0.1:"]);
    let version = kubectl.ok(&["version", "-o", "json"]);
    contains(&version, &["\"serverVersion\"", "\"minor\": \"37\"", "\"gitVersion\": \"v1.37."]);
    contains(&kubectl.ok(&["get", "--raw", "/readyz?verbose"]), &["[+]ping ok\n", "readyz check passed\n"]);
    contains(
        &kubectl.ok(&["get", "--raw", "/metrics"]),
        &[
            "apiserver_request_total{",
            "apiserver_current_inflight_requests{",
            "process_resident_memory_bytes",
        ],
    );
    contains(
        &kubectl.ok(&["get", "service", "kubernetes", "--namespace=default"]),
        &["ClusterIP", "10.0.0.1", "443/TCP"],
    );
    contains(&kubectl.fails(&["logs", "missing"]), &["pods \"missing\" not found"]);
    if kubectl.since(26, "`events`") {
        contains(&kubectl.run(&["events"]).err, &["No events found"]);
    }
}
