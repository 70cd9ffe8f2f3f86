//! Custom resources with kubectl: CRDs, explain, create, get, scale, validation errors and delete.

use crate::session::{Session, contains};

/// A CRD whose names are unique to the test: `NAME` is replaced.
const CRD: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.NAME.example.com}
spec:
  group: NAME.example.com
  scope: Namespaced
  names: {plural: crontabs, kind: CronTab, shortNames: [ct], categories: [tabs]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Schedule, type: string, jsonPath: .spec.cronSpec}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    selectableFields: [{jsonPath: .spec.cronSpec}]
    schema:
      openAPIV3Schema:
        type: object
        description: A table of times.
        properties:
          spec:
            type: object
            required: [cronSpec]
            properties:
              cronSpec: {type: string, description: When it runs.}
              replicas: {type: integer, default: 1, maximum: 10}
            x-kubernetes-validations: [{rule: "self.replicas != 7", message: seven is taken}]
          status: {type: object, properties: {replicas: {type: integer}}}
"#;

fn object(group: &str, extra: &str) -> String {
    format!(
        "apiVersion: {group}/v1\nkind: CronTab\nmetadata: {{name: mine}}\nspec: {{cronSpec: '* * * * *'{extra}}}\n"
    )
}

#[tokio::test]
async fn all_commands_work_with_custom_resources() {
    let kubectl = Session::start().await;
    let group = format!("{}.example.com", kubectl.namespace);
    let crd = CRD.replace("NAME", &kubectl.namespace);
    let name = format!("crd/crontabs.{group}");
    contains(&kubectl.ok_with(&["apply", "-f", "-"], &crd), &["created"]);
    kubectl.ok(&["wait", "--for=condition=Established", "--timeout=30s", &name]);
    contains(
        &kubectl.ok(&["api-resources", &format!("--api-group={group}")]),
        &["crontabs", "ct", "CronTab"],
    );
    // Older versions do not accept a group in the name.
    let explained =
        if kubectl.has(27) { format!("crontabs.{group}.spec") } else { "crontabs.spec".to_owned() };
    contains(&kubectl.ok(&["explain", &explained]), &["cronSpec", "When it runs.", "replicas"]);

    contains(&kubectl.ok_with(&["apply", "-f", "-"], &object(&group, "")), &["created"]);
    contains(&kubectl.ok_with(&["apply", "-f", "-"], &object(&group, "")), &["unchanged"]);
    contains(&kubectl.ok(&["get", "ct"]), &["NAME", "SCHEDULE", "REPLICAS", "mine", "* * * * *", "1"]);
    contains(&kubectl.ok(&["get", "tabs", "-o", "name"]), &["mine"]);
    contains(
        &kubectl.ok(&["get", "ct", "--field-selector", "spec.cronSpec=* * * * *", "-o", "name"]),
        &["mine"],
    );
    assert_eq!(kubectl.ok(&["get", "ct", "--field-selector", "spec.cronSpec=x", "-o", "name"]), "");
    kubectl.ok(&["scale", "--replicas=4", "ct/mine"]);
    assert_eq!(kubectl.ok(&["get", "ct", "mine", "-o", "jsonpath={.spec.replicas}"]), "4");

    let refused = kubectl.run_with(&["apply", "-f", "-"], &object(&group, ", unknown: 1"));
    assert_ne!(refused.code, 0);
    // Older versions validate by the published OpenAPI document before they send the request.
    let words = if kubectl.has(25) { "unknown field \"spec.unknown\"" } else { "unknown field \"unknown\"" };
    contains(&refused.err, &[words]);
    let refused = kubectl.fails(&["scale", "--replicas=7", "ct/mine"]);
    contains(&refused, &["seven is taken"]);
    let refused =
        kubectl.fails(&["patch", "ct", "mine", "--type=merge", "-p", r#"{"spec":{"replicas":11}}"#]);
    contains(&refused, &["spec.replicas in body should be less than or equal to 10"]);

    kubectl.ok(&["delete", &name]);
    contains(
        &kubectl.fails(&["get", &format!("crontabs.{group}")]),
        &["the server doesn't have a resource type"],
    );
}

#[tokio::test]
async fn custom_resources_are_deleted_with_their_namespace_and_owner() {
    let kubectl = Session::start().await;
    if !kubectl.has_controllers() {
        return;
    }
    let group = format!("{}.example.com", kubectl.namespace);
    let crd = CRD.replace("NAME", &kubectl.namespace);
    let name = format!("crd/crontabs.{group}");
    kubectl.ok_with(&["apply", "-f", "-"], &crd);
    kubectl.ok(&["wait", "--for=condition=Established", "--timeout=30s", &name]);
    kubectl.ok(&["create", "configmap", "owner"]);
    let uid = kubectl.ok(&["get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"]);
    let owned = object(&group, "").replace(
        "{name: mine}",
        &format!(
            "{{name: owned, ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]}}"
        ),
    );
    kubectl.ok_with(&["apply", "-f", "-"], &owned);
    kubectl.ok(&["delete", "configmap", "owner"]);
    kubectl.eventually(&["get", "ct", "owned"], |said| said.code != 0);
    kubectl.ok_with(&["apply", "-f", "-"], &object(&group, ""));
    let namespace = kubectl.namespace.clone();
    kubectl.ok(&["delete", "namespace", &namespace]);
    assert_eq!(kubectl.ok(&["get", &format!("crontabs.{group}"), "-A", "-o", "name"]), "");
    kubectl.ok(&["delete", &name]);
}

#[tokio::test]
async fn a_custom_resource_is_applied_diffed_and_shared_between_managers() {
    let kubectl = Session::start().await;
    let group = format!("{}.example.com", kubectl.namespace);
    kubectl.ok_with(&["apply", "--server-side", "-f", "-"], &CRD.replace("NAME", &kubectl.namespace));
    let name = format!("crd/crontabs.{group}");
    kubectl.ok(&["wait", "--for=condition=Established", "--timeout=30s", &name]);
    let what = format!("crontabs.{group}/mine");
    let get = |path: &str| kubectl.ok(&["get", &what, "-o", &format!("jsonpath={path}")]);

    let apply = |manager: &str| {
        vec![
            "apply".to_owned(),
            "--server-side".into(),
            format!("--field-manager={manager}"),
            "-f".into(),
            "-".into(),
        ]
    };
    let run = |args: &[String], input: &str| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        kubectl.run_with(&args, input)
    };
    let said = run(&apply("first"), &object(&group, ", replicas: 2"));
    contains(&said.out, &["crontab", "serverside-applied"]);
    let other = object(&group, ", replicas: 3");
    let said = run(&apply("second"), &other);
    assert_ne!(said.code, 0);
    contains(&said.err, &["Apply failed with 1 conflict: conflict with \"first\": .spec.replicas"]);
    let diff = ["diff", "--server-side", "--force-conflicts", "--field-manager=second", "-f", "-"];
    let said = kubectl.run_with(&diff, &other);
    assert_eq!(said.code, 1, "{}", said.err);
    contains(&said.out, &["-  replicas: 2\n", "+  replicas: 3\n"]);
    assert_eq!(get("{.spec.replicas}"), "2", "a diff changes nothing");
    let forced = ["apply", "--server-side", "--force-conflicts", "--field-manager=second", "-f", "-"];
    contains(&kubectl.ok_with(&forced, &other), &["serverside-applied"]);
    assert_eq!(get("{.spec.replicas}"), "3");
    assert_eq!(kubectl.run_with(&diff, &other).code, 0);
    let managers = "{range .metadata.managedFields[*]}{.manager}/{.operation} {end}";
    let managers =
        kubectl.ok(&["get", &what, "--show-managed-fields", "-o", &format!("jsonpath={managers}")]);
    assert_eq!(managers, "first/Apply second/Apply ");
    // The manager that scales it owns the replicas from then on.
    kubectl.ok(&["scale", &what, "--replicas=5"]);
    let said = run(&apply("second"), &other);
    contains(&said.err, &["conflict with \"kubectl\" with subresource \"scale\"", ".spec.replicas"]);
    // A violated validation rule rejects an apply too.
    let said = kubectl.run_with(&forced, &object(&group, ", replicas: 7"));
    contains(&said.err, &["seven is taken"]);
    kubectl.ok(&["delete", &name]);
}

#[tokio::test]
async fn custom_resources_migrate_from_client_side_to_server_side_apply() {
    let kubectl = Session::start().await;
    let group = format!("{}.example.com", kubectl.namespace);
    kubectl.ok_with(&["apply", "-f", "-"], &CRD.replace("NAME", &kubectl.namespace));
    let name = format!("crd/crontabs.{group}");
    kubectl.ok(&["wait", "--for=condition=Established", "--timeout=30s", &name]);
    let what = format!("crontabs.{group}/mine");
    kubectl.ok_with(&["apply", "-f", "-"], &object(&group, ", replicas: 2"));
    contains(&kubectl.ok_with(&["apply", "-f", "-"], &object(&group, ", replicas: 2")), &["unchanged"]);
    contains(
        &kubectl.ok_with(&["apply", "--server-side", "-f", "-"], &object(&group, ", replicas: 4")),
        &["serverside-applied"],
    );
    assert_eq!(kubectl.ok(&["get", &what, "-o", "jsonpath={.spec.replicas}"]), "4");
    kubectl.ok(&["delete", &name]);
}
