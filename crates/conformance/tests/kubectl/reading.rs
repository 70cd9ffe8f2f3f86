//! `get` in all output forms, paging, watching, `describe`, `explain`.

use std::fmt::Write as _;

use crate::session::{Session, contains};

const PAIR: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {tier: front, app: web}}
data: {greeting: hello}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two, labels: {tier: back, app: web}}
data: {greeting: bye, more: stuff}
";

#[tokio::test]
async fn get_supports_every_output_format() {
    let kubectl = Session::start().await;
    contains(
        &kubectl.ok_with(&["create", "-f", "-"], PAIR),
        &["configmap/one created", "configmap/two created"],
    );
    let selected = ["get", "configmaps", "-l", "app=web"];
    let get = |more: &[&str]| kubectl.ok(&[&selected[..], more].concat());

    contains(&get(&[]), &["NAME   DATA   AGE\n", "one    1      ", "two    2      "]);
    contains(&get(&["--no-headers"]), &["one   1 ", "two   2 "]);
    contains(&get(&["-o", "wide"]), &["NAME   DATA   AGE\n"]);
    assert_eq!(get(&["-o", "name"]), "configmap/one\nconfigmap/two\n");
    contains(&get(&["-o", "json"]), &["\"kind\": \"List\"", "\"greeting\": \"hello\"", "\"namespace\": "]);
    contains(&get(&["-o", "yaml"]), &["kind: List\n", "    greeting: hello\n", "    namespace: "]);
    assert_eq!(get(&["-o", "jsonpath={.items[*].data.greeting}"]), "hello bye");
    assert_eq!(get(&["-o", "go-template={{range .items}}{{.metadata.name}},{{end}}"]), "one,two,");
    contains(
        &get(&["-o", "custom-columns=N:.metadata.name,G:.data.greeting"]),
        &["N     G\n", "one   hello\n", "two   bye\n"],
    );
    contains(&get(&["--show-labels"]), &["LABELS\n", "app=web,tier=front"]);
    contains(&get(&["-L", "tier"]), &["TIER\n", "front\n", "back\n"]);
    contains(&get(&["--show-kind"]), &["configmap/one "]);
    assert_eq!(get(&["--sort-by=.data.greeting", "-o", "name"]), "configmap/two\nconfigmap/one\n");

    contains(
        &kubectl.ok(&["get", "cm", "one", "-o", "yaml"]),
        &["kind: ConfigMap\n", "  name: one\n", "  uid: "],
    );
    contains(&kubectl.ok(&["get", "configmap/one", "configmap/two"]), &["one ", "two "]);
    contains(&kubectl.ok(&["get", "cm", "-A"]), &["NAMESPACE ", &kubectl.namespace]);
    assert_eq!(kubectl.ok(&["get", "cm", "-l", "tier in (back)", "-o", "name"]), "configmap/two\n");
    assert_eq!(
        kubectl.ok(&["get", "cm", "--field-selector", "metadata.name=one", "-o", "name"]),
        "configmap/one\n"
    );
    assert_eq!(
        kubectl.fails(&["get", "cm", "missing"]),
        "Error from server (NotFound): configmaps \"missing\" not found\n"
    );
    contains(
        &kubectl.ok(&["get", "componentstatuses"]),
        &["NAME     STATUS    MESSAGE   ERROR\n", "etcd-0   Healthy   ok"],
    );
    assert_eq!(
        kubectl.fails(&["get", "componentstatus", "other"]).lines().last(),
        Some("Error from server (NotFound): componentstatus \"other\" not found")
    );
    contains(&kubectl.fails(&["get", "gadgets"]), &["the server doesn't have a resource type \"gadgets\""]);
    assert_eq!(kubectl.ok(&["get", "cm", "missing", "--ignore-not-found"]), "");
    contains(&kubectl.run(&["get", "pods"]).err, &["No resources found in "]);
    contains(&kubectl.ok(&["get", "--raw", "/healthz"]), &["ok"]);
}

#[tokio::test]
async fn get_prints_the_table_columns_of_many_kinds() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    kubectl.ok(&["create", "service", "clusterip", "web", "--tcp=80:8080"]);
    kubectl.ok(&[
        "run",
        "lone",
        "--image=busybox",
        "--restart=Never",
        "--overrides",
        "{\"apiVersion\":\"v1\"}",
    ]);
    contains(
        &kubectl.ok(&["get", "deployments"]),
        &["NAME   READY   UP-TO-DATE   AVAILABLE   AGE\n", "web    0/2     0            0 "],
    );
    contains(
        &kubectl.ok(&["get", "deploy", "-o", "wide"]),
        &["CONTAINERS", "IMAGES", "SELECTOR", "nginx", "app=web"],
    );
    contains(
        &kubectl.ok(&["get", "svc", "web"]),
        &["NAME   TYPE        CLUSTER-IP", "EXTERNAL-IP   PORT(S)   AGE\n", "ClusterIP", "<none>", "80/TCP"],
    );
    contains(
        &kubectl.ok(&["get", "pods"]),
        &["NAME   READY   STATUS    RESTARTS   AGE\n", "lone   0/1     Pending   0 "],
    );
    contains(&kubectl.ok(&["get", "all"]), &["pod/lone", "service/web", "deployment.apps/web"]);
    contains(
        &kubectl.ok(&["get", "namespaces"]),
        &["NAME", "STATUS ", "AGE\n", "default", "kube-system", "Active"],
    );
    contains(&kubectl.ok(&["get", "pods,services"]), &["pod/lone", "service/web"]);
}

#[tokio::test]
async fn long_lists_are_paged() {
    let kubectl = Session::start().await;
    let mut many = String::new();
    for number in 0..7 {
        writeln!(many, "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s{number}}}").unwrap();
    }
    kubectl.ok_with(&["create", "-f", "-"], &many);
    let said = kubectl.run(&["get", "secrets", "--chunk-size=3", "-o", "name", "-v=8"]);
    assert_eq!(said.out.lines().filter(|line| line.starts_with("secret/s")).count(), 7, "{}", said.out);
    let requests: Vec<_> = said.err.lines().filter(|line| line.contains("/secrets?")).collect();
    assert!(requests.iter().any(|line| line.contains("limit=3")), "{requests:?}");
    assert!(requests.iter().filter(|line| line.contains("continue=")).count() >= 2, "{requests:?}");
    assert_eq!(kubectl.ok(&["get", "secrets", "--chunk-size=0", "-o", "name"]).lines().count(), 7);
}

#[tokio::test]
async fn get_watch_prints_changes() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "secret", "generic", "first"]);
    let all = kubectl.watch(&["get", "secrets", "-w"]);
    all.sees("first");
    let events = kubectl.watch(&["get", "secrets", "--watch-only", "--output-watch-events", "-o", "name"]);
    kubectl.ok(&["create", "secret", "generic", "second"]);
    all.sees("second");
    // The second watch may start after the first event; the object is changed until the watch shows a change.
    for round in 0..100 {
        kubectl.ok(&["label", "secret", "second", "--overwrite", &format!("round={round}")]);
        if round == 99 || all.sees("second").contains("second") {
            break;
        }
    }
    kubectl.ok(&["delete", "secret", "first"]);
    events.sees("first");
}

#[tokio::test]
async fn describe_shows_objects_and_events() {
    let kubectl = Session::start().await;
    kubectl.ok(&["create", "configmap", "one", "--from-literal=a=b"]);
    contains(
        &kubectl.ok(&["describe", "configmap", "one"]),
        &["Name:         one\n", "Data\n====\n", "a:\n----\nb\n"],
    );
    kubectl.ok(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    contains(
        &kubectl.ok(&["describe", "deployment", "web"]),
        &[
            "Name:                   web\n",
            "Selector:               app=web\n",
            "StrategyType:           RollingUpdate\n",
            "    Image:",
        ],
    );
    kubectl.ok(&["create", "service", "clusterip", "web", "--tcp=80:8080"]);
    contains(&kubectl.ok(&["describe", "service", "web"]), &["Type:", "ClusterIP", "80/TCP", "8080/TCP"]);
    contains(&kubectl.ok(&["describe", "namespace", &kubectl.namespace]), &["Status:       Active\n"]);
    kubectl.ok(&["run", "lone", "--image=busybox", "--restart=Never"]);
    contains(&kubectl.ok(&["describe", "pod", "lone"]), &["Status: ", "Pending\n", "    Image:", "busybox"]);
    kubectl.ok(&["create", "role", "r", "--verb=get", "--resource=pods"]);
    contains(&kubectl.ok(&["describe", "role", "r"]), &["PolicyRule:\n", "pods", "[get]"]);
    contains(&kubectl.fails(&["describe", "configmap", "missing"]), &["configmaps \"missing\" not found"]);
}

#[tokio::test]
async fn explain_shows_fields_and_their_types() {
    let kubectl = Session::start().await;
    if !kubectl.has(27) {
        // Older versions use another layout and the OpenAPI v2 document.
        contains(
            &kubectl.ok(&["explain", "configmaps"]),
            &["KIND:     ConfigMap\n", "binaryData\t<map[string]string>"],
        );
        contains(&kubectl.ok(&["explain", "pod.spec.containers.image"]), &["FIELD:    image <string>\n"]);
        contains(
            &kubectl.ok(&["explain", "job", "--recursive"]),
            &["backoffLimit", "template", "restartPolicy"],
        );
        contains(&kubectl.fails(&["explain", "pod.spec.nothing"]), &["field \"nothing\" does not exist"]);
        return;
    }
    contains(
        &kubectl.ok(&["explain", "configmaps"]),
        &["KIND:       ConfigMap\n", "VERSION:    v1\n", "binaryData", "<map[string]string>", "immutable"],
    );
    contains(&kubectl.ok(&["explain", "pod.spec.containers.image"]), &["FIELD: image <string>\n"]);
    contains(&kubectl.ok(&["explain", "deployment.spec.replicas"]), &["GROUP:      apps\n", "<integer>"]);
    contains(
        &kubectl.ok(&["explain", "deployment.spec.strategy.rollingUpdate"]),
        &["maxSurge", "<IntOrString>"],
    );
    contains(&kubectl.ok(&["explain", "job", "--recursive"]), &["backoffLimit", "template", "restartPolicy"]);
    contains(&kubectl.ok(&["explain", "hpa", "--api-version=autoscaling/v1"]), &["VERSION:    v1\n"]);
    contains(&kubectl.fails(&["explain", "pod.spec.nothing"]), &["field \"nothing\" does not exist"]);
}
