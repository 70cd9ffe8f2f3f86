//! kubectl output for policies, webhooks and built-in admission plugins.

use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};

use crate::session::{Session, contains};

#[tokio::test]
async fn denials_and_warnings_name_the_policy() {
    let kubectl = Session::start().await;
    let namespace = kubectl.namespace.clone();
    let policy = format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: no-bad-names}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [""], apiVersions: ["v1"], operations: [CREATE, UPDATE], resources: [configmaps]}}]
  validations:
  - expression: "!object.metadata.name.startsWith('bad')"
    message: no bad names
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: no-bad-names-here}}
spec:
  policyName: no-bad-names
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"#
    );
    kubectl.ok_with(&["create", "-f", "-"], &policy);
    kubectl.eventually(&["create", "configmap", "bad"], |said| said.err.contains("denied"));
    assert_eq!(
        kubectl.fails(&["create", "configmap", "bad"]).trim_end(),
        "error: failed to create configmap: configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'no-bad-names' \
         with binding 'no-bad-names-here' denied request: no bad names"
    );
    kubectl.ok(&["create", "configmap", "good"]);
    kubectl.ok(&[
        "patch",
        "validatingadmissionpolicybinding",
        "no-bad-names-here",
        "--type=merge",
        "--patch={\"spec\":{\"validationActions\":[\"Warn\"]}}",
    ]);
    kubectl.eventually(&["create", "configmap", "bad-1"], |said| said.code == 0);
    let said = kubectl.run(&["create", "configmap", "bad-2"]);
    assert_eq!((said.code, said.out.trim_end()), (0, "configmap/bad-2 created"));
    contains(
        &said.err,
        &[
            "Warning: Validation failed for ValidatingAdmissionPolicy 'no-bad-names' with binding 'no-bad-names-here': no bad names",
        ],
    );
    kubectl.ok_with(&["delete", "-f", "-"], &policy);
    kubectl.eventually(&["create", "configmap", "bad-3"], |said| said.code == 0 && said.err.is_empty());
}

/// kubectl runs on another thread, so that the webhook in this process can answer.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_denials_name_the_webhook() {
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::deny("not on my watch"))
        .await
        .unwrap();
    let kubectl = Session::start().await;
    let configuration = format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: guards}}
webhooks:
- name: guard.example.com
  clientConfig: {{url: "{}", caBundle: "{}"}}
  rules: [{{apiGroups: [""], apiVersions: ["v1"], operations: [CREATE], resources: [configmaps]}}]
  namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}
  admissionReviewVersions: [v1]
  sideEffects: None
"#,
        webhook.url("/review"),
        webhook.ca_bundle,
        kubectl.namespace
    );
    kubectl.ok_with(&["create", "-f", "-"], &configuration);
    kubectl.eventually(&["create", "configmap", "a"], |said| said.err.contains("denied"));
    contains(
        &kubectl.fails(&["create", "configmap", "a"]),
        &["admission webhook \"guard.example.com\" denied the request: not on my watch"],
    );
    kubectl.ok_with(&["delete", "-f", "-"], &configuration);
    kubectl.eventually(&["create", "configmap", "a"], |said| said.code == 0);
}

#[tokio::test]
async fn pod_security_warns_and_denies() {
    let kubectl = Session::start().await;
    let namespace = kubectl.namespace.clone();
    kubectl.ok(&["label", "namespace", &namespace, "pod-security.kubernetes.io/warn=restricted"]);
    let said = kubectl.run(&["create", "deployment", "web", "--image=nginx"]);
    assert_eq!(said.code, 0, "{}", said.err);
    contains(
        &said.err,
        &["Warning: would violate PodSecurity \"restricted:latest\"", "runAsNonRoot != true"],
    );
    kubectl.ok(&["run", "fair", "--image=nginx"]);
    let said =
        kubectl.run(&["label", "namespace", &namespace, "pod-security.kubernetes.io/enforce=restricted"]);
    contains(&said.err, &["violate the new PodSecurity enforce level \"restricted:latest\"", "fair: "]);
    contains(
        &kubectl.fails(&["run", "bad", "--image=nginx"]),
        &[
            "pods \"bad\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false",
        ],
    );
}

#[tokio::test]
async fn limit_ranges_and_quotas_are_enforced_and_described() {
    let kubectl = Session::start().await;
    kubectl.ok_with(
        &["create", "-f", "-"],
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec: {limits: [{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}, max: {cpu: \"1\"}}]}\n",
    );
    kubectl.ok(&["create", "quota", "q", "--hard=pods=1,requests.cpu=1"]);
    kubectl.eventually(&["get", "quota", "q", "-o", "jsonpath={.status.used.pods}"], |said| said.out == "0");
    kubectl.ok(&["run", "one", "--image=nginx"]);
    assert_eq!(
        kubectl.ok(&["get", "pod", "one", "-o", "jsonpath={.spec.containers[0].resources.requests.cpu}"]),
        "100m"
    );
    contains(
        &kubectl.ok(&["get", "pod", "one", "-o", "jsonpath={.metadata.annotations}"]),
        &["LimitRanger plugin set: cpu request for container one; cpu limit for container one"],
    );
    contains(&kubectl.ok(&["describe", "quota", "q"]), &["pods", "requests.cpu"]);
    contains(
        &kubectl.fails(&["run", "two", "--image=nginx"]),
        &["exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"],
    );
    kubectl.ok(&["delete", "pod", "one", "--grace-period=0", "--force"]);
    kubectl.eventually(&["run", "two", "--image=nginx"], |said| said.code == 0);
}

#[tokio::test]
async fn pods_have_a_token_a_priority_and_tolerations() {
    let kubectl = Session::start().await;
    kubectl.ok(&["run", "p", "--image=nginx"]);
    let pod = |path: &str| kubectl.ok(&["get", "pod", "p", "-o", &format!("jsonpath={path}")]);
    assert_eq!(pod("{.spec.serviceAccountName}"), "default");
    assert_eq!(
        pod("{.spec.containers[0].volumeMounts[0].mountPath}"),
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    assert_eq!(pod("{.spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds}"), "3607");
    assert_eq!(pod("{.spec.priority} {.spec.preemptionPolicy}"), "0 PreemptLowerPriority");
    assert_eq!(
        pod("{.spec.tolerations[*].key}"),
        "node.kubernetes.io/not-ready node.kubernetes.io/unreachable"
    );
    kubectl.ok(&["create", "priorityclass", "high", "--value=1000"]);
    kubectl.ok(&["run", "h", "--image=nginx", "--overrides={\"spec\":{\"priorityClassName\":\"high\"}}"]);
    assert_eq!(kubectl.ok(&["get", "pod", "h", "-o", "jsonpath={.spec.priority}"]), "1000");
    contains(
        &kubectl.fails(&[
            "run",
            "n",
            "--image=nginx",
            "--overrides={\"spec\":{\"priorityClassName\":\"none\"}}",
        ]),
        &["no PriorityClass with name none was found"],
    );
}
