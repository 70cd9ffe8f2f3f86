//! `create`, `run`, `expose` and `apply`.

use std::fs;

use crate::session::{Session, contains};

#[tokio::test]
async fn create_works_for_every_generator() {
    let kubectl = Session::start().await;
    fs::write(kubectl.folder.path().join("file.txt"), "content\n").unwrap();
    let made: &[(&[&str], &str)] = &[
        (&["configmap", "c", "--from-literal=a=b", "--from-file=file.txt"], "configmap/c created"),
        (&["secret", "generic", "s", "--from-literal=a=b"], "secret/s created"),
        (
            &["secret", "docker-registry", "d", "--docker-username=u", "--docker-password=p"],
            "secret/d created",
        ),
        (&["deployment", "web", "--image=nginx", "--port=80"], "deployment.apps/web created"),
        (&["service", "nodeport", "np", "--tcp=80"], "service/np created"),
        (&["service", "externalname", "en", "--external-name=example.com"], "service/en created"),
        (&["job", "j", "--image=busybox", "--", "true"], "job.batch/j created"),
        (
            &["role", "r", "--verb=get,list", "--resource=pods,deployments.apps"],
            "role.rbac.authorization.k8s.io/r created",
        ),
        (
            &["rolebinding", "rb", "--role=r", "--user=alice"],
            "rolebinding.rbac.authorization.k8s.io/rb created",
        ),
        (&["serviceaccount", "sa"], "serviceaccount/sa created"),
        (&["quota", "q", "--hard=pods=10"], "resourcequota/q created"),
        (&["ingress", "i", "--rule=example.com/*=web:80"], "ingress.networking.k8s.io/i created"),
    ];
    let since_21: &[(&[&str], &str)] = &[
        (&["cronjob", "cj", "--image=busybox", "--schedule=*/5 * * * *"], "cronjob.batch/cj created"),
        (
            &["poddisruptionbudget", "p", "--selector=app=web", "--min-available=1"],
            "poddisruptionbudget.policy/p created",
        ),
    ];
    // Older versions create these in beta versions that Kubernetes 1.37 does not serve.
    let newer = kubectl.since(21, "`create cronjob` and `create poddisruptionbudget` in v1");
    for (args, said) in made.iter().chain(since_21.iter().filter(|_| newer)) {
        contains(&kubectl.ok(&[&["create"], *args].concat()), &[said]);
    }
    assert_eq!(kubectl.ok(&["get", "configmap", "c", "-o", "jsonpath={.data.file\\.txt}"]), "content\n");
    assert_eq!(
        kubectl.ok(&["get", "deployment", "web", "-o", "jsonpath={.spec.strategy.type}"]),
        "RollingUpdate"
    );
    contains(&kubectl.fails(&["create", "configmap", "c"]), &["configmaps \"c\" already exists\n"]);
    contains(&kubectl.ok(&["expose", "deployment", "web", "--name=exposed"]), &["service/exposed exposed"]);
    assert_eq!(kubectl.ok(&["get", "service", "exposed", "-o", "jsonpath={.spec.selector.app}"]), "web");
    contains(&kubectl.ok(&["run", "lone", "--image=busybox"]), &["pod/lone created"]);
    contains(
        &kubectl.ok(&["autoscale", "deployment", "web", "--max=5"]),
        &["horizontalpodautoscaler.autoscaling/web autoscaled"],
    );
    if kubectl.since(24, "`create token`") {
        // A token needs a signing key; `up` has one.
        let said = kubectl.run(&["create", "token", "sa"]);
        assert!(said.code == 0 && said.out.split('.').count() == 3, "{}{}", said.out, said.err);
    }
}

#[tokio::test]
async fn a_dry_run_creates_nothing() {
    let kubectl = Session::start().await;
    contains(&kubectl.ok(&["create", "configmap", "c", "--dry-run=client", "-o", "yaml"]), &["name: c\n"]);
    contains(
        &kubectl.ok(&["create", "configmap", "c", "--dry-run=server"]),
        &["configmap/c created (server dry run)"],
    );
    contains(&kubectl.fails(&["get", "configmap", "c"]), &["NotFound"]);
}

#[tokio::test]
async fn create_errors_name_the_invalid_field_or_unknown_kind() {
    let kubectl = Session::start().await;
    let wrong = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec: {replicas: 1, replcas: 2, selector: {matchLabels: {a: b}}, \
                 template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n";
    let said = kubectl.run_with(&["create", "-f", "-"], wrong);
    assert_ne!(said.code, 0, "{}", said.out);
    contains(&said.err, &["replcas"]);
    if kubectl.since(25, "validation by the server") {
        contains(&said.err, &["strict decoding error: unknown field \"spec.replcas\""]);
        let said = kubectl.run_with(&["create", "--validate=warn", "-f", "-"], wrong);
        assert_eq!(said.code, 0, "{}", said.err);
        contains(&said.err, &["Warning: unknown field \"spec.replcas\""]);
    }
    let said = kubectl.run_with(
        &["create", "-f", "-"],
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n",
    );
    contains(&said.err, &["Pod \"p\" is invalid: spec.containers: Required value"]);
    let said = kubectl
        .run_with(&["create", "-f", "-"], "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: p}\n");
    contains(&said.err, &["no matches for kind \"Thing\" in version \"example.com/v1\""]);
}

#[tokio::test]
async fn apply_and_diff_show_changes() {
    let kubectl = Session::start().await;
    let first =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: one}}\ndata: {k: v, gone: soon}\n";
    let second = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: two}}\ndata: {k: w}\n";
    contains(&kubectl.ok_with(&["apply", "-f", "-"], first), &["configmap/a created"]);
    contains(&kubectl.ok_with(&["apply", "-f", "-"], first), &["configmap/a unchanged"]);
    let said = kubectl.run_with(&["diff", "-f", "-"], first);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    let said = kubectl.run_with(&["diff", "-f", "-"], second);
    assert_eq!(said.code, 1, "{}", said.err);
    contains(&said.out, &["-  gone: soon\n", "-  k: v\n", "+  k: w\n", "-    x: one\n", "+    x: two\n"]);
    // Fields of other managers stay; fields that are no longer in the file are removed.
    kubectl.ok(&["annotate", "configmap", "a", "by=others"]);
    contains(&kubectl.ok_with(&["apply", "-f", "-"], second), &["configmap/a configured"]);
    assert_eq!(
        kubectl.ok(&["get", "configmap", "a", "-o", "jsonpath={.data} {.metadata.annotations.by}"]),
        "{\"k\":\"w\"} others"
    );
    contains(&kubectl.ok(&["apply", "view-last-applied", "configmap/a"]), &["k: w\n"]);

    let deployment = |image: &str, replicas: u32| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec: {{replicas: {replicas}, selector: {{matchLabels: {{a: b}}}}, \
             template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: {image}}}]}}}}}}\n"
        )
    };
    contains(&kubectl.ok_with(&["apply", "-f", "-"], &deployment("one", 1)), &["deployment.apps/d created"]);
    contains(
        &kubectl.ok_with(&["apply", "-f", "-"], &deployment("two", 1)),
        &["deployment.apps/d configured"],
    );
    contains(
        &kubectl.ok_with(&["apply", "-f", "-"], &deployment("two", 1)),
        &["deployment.apps/d unchanged"],
    );
    contains(
        &kubectl.ok_with(&["apply", "--dry-run=server", "-f", "-"], &deployment("three", 5)),
        &["deployment.apps/d configured (server dry run)"],
    );
    assert_eq!(kubectl.ok(&["get", "deployment", "d", "-o", "jsonpath={.spec.replicas}"]), "1");

    // A folder with several kinds.
    let folder = kubectl.folder.path().join("manifests");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), second).unwrap();
    fs::write(folder.join("d.yaml"), deployment("four", 2)).unwrap();
    contains(
        &kubectl.ok(&["apply", "-f", "manifests"]),
        &["configmap/a unchanged", "deployment.apps/d configured"],
    );
    contains(
        &kubectl.ok(&["delete", "-f", "manifests"]),
        &["configmap \"a\" deleted", "deployment.apps \"d\" deleted"],
    );
}
