//! The examples of KEP-5793 and of its documentation page, with the required suffix of names.

use std::fs;
use std::time::Duration;

use conformance::{Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::folder::{Folders, NO_ACCOUNTS, denied};

const PROTECT: &str = r#"
# This is an example ValidatingAdmissionPolicy that prevents deletion or
# modification of API-based admission resources with the
# "platform.example.com/protected: true" label.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: "example-protect-admission-resources.static.k8s.io"
  annotations:
    kubernetes.io/description: "Prevent modification or deletion of protected admission resources"
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ["admissionregistration.k8s.io"]
      apiVersions: ["*"]
      operations: ["DELETE", "UPDATE"]
      resources:
      - "validatingadmissionpolicies"
      - "validatingadmissionpolicybindings"
      - "mutatingadmissionpolicies"
      - "mutatingadmissionpolicybindings"
      - "validatingwebhookconfigurations"
      - "mutatingwebhookconfigurations"
  validations:
  - expression: >-
      !has(oldObject.metadata.labels) ||
      !('platform.example.com/protected' in oldObject.metadata.labels) ||
      oldObject.metadata.labels['platform.example.com/protected'] != 'true'
    message: "Protected admission resources cannot be modified or deleted"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: "example-protect-admission-resources-binding.static.k8s.io"
  annotations:
    kubernetes.io/description: "Bind protect-admission-resources policy to all admission resources"
spec:
  policyName: "example-protect-admission-resources.static.k8s.io"
  validationActions:
  - Deny
"#;

const PRIVILEGED: &str = r#"
# This is an example ValidatingAdmissionPolicy that denies privileged containers
# in all namespaces except kube-system.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: "example-deny-privileged.static.k8s.io"
  annotations:
    kubernetes.io/description: "Deny privileged containers outside kube-system"
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["pods"]
  variables:
  - name: allContainers
    expression: >-
      object.spec.containers +
      (has(object.spec.initContainers) ? object.spec.initContainers : []) +
      (has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : [])
  validations:
  - expression: >-
      !variables.allContainers.exists(c,
      has(c.securityContext) && has(c.securityContext.privileged) &&
      c.securityContext.privileged == true)
    message: "Privileged containers are not allowed"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: "example-deny-privileged-binding.static.k8s.io"
  annotations:
    kubernetes.io/description: "Bind deny-privileged policy to all namespaces except kube-system"
spec:
  policyName: "example-deny-privileged.static.k8s.io"
  validationActions:
  - Deny
  matchResources:
    namespaceSelector:
      matchExpressions:
      - key: "kubernetes.io/metadata.name"
        operator: NotIn
        values: ["kube-system"]
"#;

/// User story 1 of the KEP.
const STORY: &str = r#"
# /etc/kubernetes/admission/no-privileged.yaml
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: "platform.deny-privileged-containers.static.k8s.io"
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["pods"]
  validations:
  - expression: "!object.spec.containers.exists(c, c.securityContext.privileged == true)"
    message: "Privileged containers are not allowed"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: "platform.deny-privileged-containers-binding.static.k8s.io"
spec:
  policyName: "platform.deny-privileged-containers.static.k8s.io"
  validationActions:
  - Deny
  matchResources:
    namespaceSelector:
      matchExpressions:
      - key: "kubernetes.io/metadata.name"
        operator: NotIn
        values: ["kube-system"]
"#;

const LABELS: &str = r#"
# This is an example of using the v1.List format to group a
# ValidatingAdmissionPolicy and its binding in a single document.
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicy
  metadata:
    name: "example-require-labels.static.k8s.io"
    annotations:
      kubernetes.io/description: "Require app.kubernetes.io/name label on all pods"
  spec:
    failurePolicy: Fail
    matchConstraints:
      resourceRules:
      - apiGroups: [""]
        apiVersions: ["v1"]
        operations: ["CREATE"]
        resources: ["pods"]
    validations:
    - expression: >-
        has(object.metadata.labels) &&
        'app.kubernetes.io/name' in object.metadata.labels
      message: "All pods must have the 'app.kubernetes.io/name' label"
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata:
    name: "example-require-labels-binding.static.k8s.io"
    annotations:
      kubernetes.io/description: "Bind require-labels policy to all namespaces except kube-system"
  spec:
    policyName: "example-require-labels.static.k8s.io"
    validationActions:
    - Deny
    matchResources:
      namespaceSelector:
        matchExpressions:
        - key: "kubernetes.io/metadata.name"
          operator: NotIn
          values: ["kube-system"]
"#;

const COLLISIONS: &str = r#"
# /etc/kubernetes/admission/prevent-name-collision.yaml
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: "platform.prevent-admission-name-collision.static.k8s.io"
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ["admissionregistration.k8s.io"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["validatingadmissionpolicies", "mutatingadmissionpolicies",
                  "validatingadmissionpolicybindings", "mutatingadmissionpolicybindings",
                  "validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
  validations:
  - expression: "!object.metadata.name.startsWith('platform.')"
    message: "Names starting with 'platform.' are reserved for manifest-based admission configs"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: "platform.prevent-admission-name-collision-binding.static.k8s.io"
spec:
  policyName: "platform.prevent-admission-name-collision.static.k8s.io"
  validationActions:
  - Deny
"#;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// An object of each of the six kinds: its resource and its body.
fn admission_objects_of_all_kinds(name: &str) -> [(&'static str, Value); 6] {
    let labels = json!({"name": name, "labels": {"platform.example.com/protected": "true"}});
    let constraints = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]});
    [
        (
            "validatingadmissionpolicies",
            json!({"metadata": labels, "spec": {"matchConstraints": constraints,
                "validations": [{"expression": "true"}]}}),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"metadata": labels, "spec": {"policyName": "p", "validationActions": ["Deny"]}}),
        ),
        (
            "mutatingadmissionpolicies",
            json!({"metadata": labels, "spec": {"matchConstraints": constraints, "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
                    "expression": "[JSONPatch{op: \"add\", path: \"/metadata/labels/x\", value: \"y\"}]"}}]}}),
        ),
        ("mutatingadmissionpolicybindings", json!({"metadata": labels, "spec": {"policyName": "p"}})),
        ("validatingwebhookconfigurations", json!({"metadata": labels})),
        ("mutatingwebhookconfigurations", json!({"metadata": labels})),
    ]
}

fn pod(name: &str, privileged: bool, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [
        {"name": "c", "image": "i", "securityContext": {"privileged": privileged}}]}})
}

#[tokio::test]
async fn protected_admission_resources_cannot_be_changed_or_deleted() {
    let folders = Folders::new();
    folders.write("protect.yaml", PROTECT);
    let guarded = folders.server().await;
    let free = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    let (policy, binding) =
        ("example-protect-admission-resources", "example-protect-admission-resources-binding");
    let words = "Protected admission resources cannot be modified or deleted";
    for (resource, body) in admission_objects_of_all_kinds("prot") {
        let (all, one) = (format!("{GROUP}/{resource}"), format!("{GROUP}/{resource}/prot"));
        for (server, is_guarded) in [(&guarded, true), (&free, false)] {
            let client = server.client().unwrap();
            accepts(client.post(&all, &body).await).unwrap();
            let mut changed = body.clone();
            changed["metadata"]["annotations"] = json!({"a": "b"});
            // Its status may be written at the same time, which is a conflict.
            let change = eventually(Duration::from_secs(20), async || {
                let answer = client
                    .json(
                        Method::PUT,
                        &one,
                        &with_current_resource_version(&client, &one, changed.clone()).await,
                    )
                    .await?;
                match answer.code {
                    409 => Err(conformance::Problem::new(answer.text())),
                    _ => Ok(answer),
                }
            })
            .await;
            let collection = client.delete(&format!("{all}?dryRun=All")).await;
            let deletion = client.delete(&one).await;
            if is_guarded {
                denied(change, policy, binding, words);
                denied(collection, policy, binding, words);
                denied(deletion, policy, binding, words);
            } else {
                accepts(change).unwrap();
                accepts(collection).unwrap();
                accepts(deletion).unwrap();
            }
        }
    }
}

async fn with_current_resource_version(client: &conformance::Client, path: &str, mut object: Value) -> Value {
    let now = accepts(client.get(path).await).unwrap();
    object["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
    object
}

#[tokio::test]
async fn privileged_containers_are_denied_outside_of_kube_system() {
    let folders = Folders::new();
    folders.write("privileged.yaml", PRIVILEGED);
    let server = folders.server().await;
    let client = server.client().unwrap();
    let pods = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let (policy, binding) = ("example-deny-privileged", "example-deny-privileged-binding");
    let privileged = pod("p", true, &json!({}));
    denied(
        client.post(&pods("default"), &privileged).await,
        policy,
        binding,
        "Privileged containers are not allowed",
    );
    accepts(client.post(&pods("kube-system"), &privileged).await).unwrap();
    accepts(client.post(&pods("default"), &pod("p", false, &json!({}))).await).unwrap();
    let free = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    accepts(free.client().unwrap().post(&pods("default"), &privileged).await).unwrap();
}

#[tokio::test]
async fn a_platform_policy_denies_privileged_containers() {
    let folders = Folders::new();
    folders.write("no-privileged.yaml", STORY);
    let server = folders.server().await;
    let client = server.client().unwrap();
    let pods = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let (policy, binding) =
        ("platform.deny-privileged-containers", "platform.deny-privileged-containers-binding");
    let privileged = pod("p", true, &json!({}));
    denied(
        client.post(&pods("default"), &privileged).await,
        policy,
        binding,
        "Privileged containers are not allowed",
    );
    accepts(client.post(&pods("default"), &pod("p", false, &json!({}))).await).unwrap();
    accepts(client.post(&pods("kube-system"), &privileged).await).unwrap();
    fs::remove_file(folders.policies().join("no-privileged.yaml")).unwrap();
    eventually(Duration::from_secs(20), async || accepts(client.post(&pods("default"), &privileged).await))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_list_of_policy_and_binding_requires_labels() {
    let folders = Folders::new();
    folders.write("labels.yaml", LABELS);
    let server = folders.server().await;
    let client = server.client().unwrap();
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    denied(
        client.post(pods, &pod("p", false, &json!({}))).await,
        "example-require-labels",
        "example-require-labels-binding",
        "All pods must have the 'app.kubernetes.io/name' label",
    );
    let labeled = pod("p", false, &json!({"app.kubernetes.io/name": "x"}));
    accepts(client.post(pods, &labeled).await).unwrap();
    let free = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    accepts(free.client().unwrap().post(pods, &pod("p", false, &json!({}))).await).unwrap();
}

#[tokio::test]
async fn a_name_prefix_can_be_reserved_for_manifests() {
    let folders = Folders::new();
    folders.write("collisions.yaml", COLLISIONS);
    let server = folders.server().await;
    let client = server.client().unwrap();
    for (resource, body) in admission_objects_of_all_kinds("platform.mine") {
        denied(
            client.post(&format!("{GROUP}/{resource}?dryRun=All"), &body).await,
            "platform.prevent-admission-name-collision",
            "platform.prevent-admission-name-collision-binding",
            "Names starting with 'platform.' are reserved for manifest-based admission configs",
        );
    }
    let free = Server::serve(&[NO_ACCOUNTS]).await.unwrap();
    for (resource, body) in admission_objects_of_all_kinds("platform.mine") {
        let path = format!("{GROUP}/{resource}?dryRun=All");
        accepts(free.client().unwrap().post(&path, &body).await).unwrap();
    }
    for (resource, body) in admission_objects_of_all_kinds("mine") {
        accepts(client.post(&format!("{GROUP}/{resource}?dryRun=All"), &body).await).unwrap();
    }
}

#[tokio::test]
async fn manifests_are_not_visible_through_the_api() {
    let folders = Folders::new();
    folders.write("privileged.yaml", PRIVILEGED);
    let server = folders.server().await;
    let client = server.client().unwrap();
    let list = accepts(client.get(&format!("{GROUP}/validatingadmissionpolicies")).await).unwrap();
    assert_eq!(list["items"], json!([]));
    for path in [
        "validatingadmissionpolicies/example-deny-privileged.static.k8s.io",
        "validatingadmissionpolicybindings/example-deny-privileged-binding.static.k8s.io",
    ] {
        let path = format!("{GROUP}/{path}");
        conformance::rejects(client.get(&path).await, 404, "NotFound").unwrap();
        conformance::rejects(client.delete(&path).await, 404, "NotFound").unwrap();
    }
}

#[tokio::test]
async fn a_policy_for_all_resources_does_not_intercept_access_and_token_reviews() {
    let folders = Folders::new();
    folders.write(
        "nothing.yaml",
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: nothing.static.k8s.io
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["CREATE"], resources: ["*/*"]}
  matchConditions:
  - {name: people, expression: "!request.userInfo.username.startsWith('system:')"}
  validations:
  - {expression: "false", message: nothing at all}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: nothing-binding.static.k8s.io
spec: {policyName: nothing.static.k8s.io, validationActions: [Deny]}
"#,
    );
    let server = folders.server().await;
    let client = server.client().unwrap();
    let access = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}});
    let mut other = access.clone();
    other["user"] = json!("alice");
    for (path, body) in [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!({"spec": access})),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", json!({"spec": other})),
        (
            "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
            json!({"metadata": {"namespace": "default"}, "spec": other}),
        ),
        ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json!({"spec": {"namespace": "default"}})),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})),
        ("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": "admintoken"}})),
    ] {
        accepts(client.post(path, &body).await).unwrap();
    }
    let denied = |answer| denied(answer, "nothing", "nothing-binding", "nothing at all");
    denied(client.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "m"}})).await);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually(Duration::from_secs(20), async || accepts(client.get(account).await)).await.unwrap();
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    denied(client.post(token, &json!({"spec": {"audiences": ["a"]}})).await);
    for (resource, body) in admission_objects_of_all_kinds("any") {
        denied(client.post(&format!("{GROUP}/{resource}"), &body).await);
    }
}
