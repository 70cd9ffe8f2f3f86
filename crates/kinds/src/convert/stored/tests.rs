use value::{Value, json};

use super::{STORED_VERSIONS, stored_version};
use crate::table;

fn converted(group: &str, version: &str, kind: &str, text: &str) -> String {
    let mut object: Value = json::parse(text.as_bytes()).unwrap();
    stored_version(group, version, kind).unwrap().convert(&mut object);
    object.remove_at(&["apiVersion"]);
    value::write::to_string(&object)
}

#[test]
fn every_version_is_read_as_one_of_a_row() {
    for stored in STORED_VERSIONS {
        let (group, version) = stored.read_as;
        assert!(table::find_kind(group, version, stored.kind).is_some(), "{stored:?}");
        assert_eq!(
            schema::of(stored.group, stored.version, stored.kind).is_some(),
            stored.has_own_schema || table::find_kind(stored.group, stored.version, stored.kind).is_some(),
            "{stored:?}"
        );
    }
    assert!(stored_version("autoscaling", "v2beta2", "HorizontalPodAutoscaler").is_none());
}

#[test]
fn the_topology_of_endpoints_becomes_zone_and_node_name() {
    let slice = |text: &str| converted("discovery.k8s.io", "v1beta1", "EndpointSlice", text);
    assert_eq!(
        slice(
            r#"{"endpoints":[{"nodeName":"n","topology":{"topology.kubernetes.io/zone":"z","kubernetes.io/hostname":"n"}}]}"#
        ),
        r#"{"endpoints":[{"nodeName":"n","zone":"z"}]}"#
    );
    assert_eq!(
        slice(r#"{"endpoints":[{"topology":{"kubernetes.io/hostname":"m","rack":"r"}},{"hostname":"h"}]}"#),
        r#"{"endpoints":[{"deprecatedTopology":{"kubernetes.io/hostname":"m","rack":"r"}},{"hostname":"h"}]}"#
    );
}

#[test]
fn empty_selectors_of_budgets_keep_their_meaning() {
    let budget = |text: &str| converted("policy", "v1beta1", "PodDisruptionBudget", text);
    assert_eq!(
        budget(r#"{"spec":{"selector":{}}}"#),
        r#"{"spec":{"selector":{"matchExpressions":[{"key":"pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match","operator":"Exists"}]}}}"#
    );
    assert_eq!(
        budget(
            r#"{"spec":{"selector":{"matchExpressions":[{"key":"pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match","operator":"DoesNotExist"}]}}}"#
        ),
        r#"{"spec":{"selector":{}}}"#
    );
    let other = r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#;
    assert_eq!(budget(other), other);
}

#[test]
fn shares_of_priority_levels_keep_their_meaning() {
    let level = |version: &str, text: &str| {
        converted("flowcontrol.apiserver.k8s.io", version, "PriorityLevelConfiguration", text)
    };
    assert_eq!(
        level("v1beta2", r#"{"spec":{"limited":{"assuredConcurrencyShares":7}}}"#),
        r#"{"spec":{"limited":{"nominalConcurrencyShares":7}}}"#
    );
    let zero = r#"{"spec":{"limited":{"nominalConcurrencyShares":0}}}"#;
    assert_eq!(level("v1beta3", zero), r#"{"spec":{"limited":{}}}"#);
    assert_eq!(
        level(
            "v1beta3",
            r#"{"metadata":{"annotations":{"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""}},"spec":{"limited":{"nominalConcurrencyShares":0}}}"#
        ),
        r#"{"metadata":{"annotations":{}},"spec":{"limited":{"nominalConcurrencyShares":0}}}"#
    );
}

#[test]
fn webhooks_stored_in_v1beta1_get_its_defaults() {
    assert_eq!(
        converted(
            "admissionregistration.k8s.io",
            "v1beta1",
            "ValidatingWebhookConfiguration",
            r#"{"webhooks":[{"name":"w"}]}"#
        ),
        r#"{"webhooks":[{"admissionReviewVersions":["v1beta1"],"failurePolicy":"Ignore","matchPolicy":"Exact","name":"w","sideEffects":"Unknown","timeoutSeconds":30}]}"#
    );
}

#[test]
fn old_workloads_get_the_defaults_of_their_version() {
    let template = r#""template":{"metadata":{"labels":{"a":"b"}}}"#;
    assert_eq!(
        converted(
            "extensions",
            "v1beta1",
            "Deployment",
            &format!(r#"{{"spec":{{{template},"rollbackTo":{{"revision":3}}}}}}"#)
        ),
        format!(
            r#"{{"metadata":{{"annotations":{{"deprecated.deployment.rollback.to":"3"}},"labels":{{"a":"b"}}}},"spec":{{"progressDeadlineSeconds":2147483647,"revisionHistoryLimit":2147483647,"selector":{{"matchLabels":{{"a":"b"}}}},"strategy":{{"rollingUpdate":{{"maxSurge":1,"maxUnavailable":1}},"type":"RollingUpdate"}},{template}}}}}"#
        )
    );
    let set = r#"{"metadata":{"labels":{"own":"1"}},"spec":{"progressDeadlineSeconds":7,"revisionHistoryLimit":8,"selector":{},"strategy":{"type":"Recreate"},"template":{"metadata":{"labels":{"a":"b"}}}}}"#;
    assert_eq!(converted("extensions", "v1beta1", "Deployment", set), set);
    assert_eq!(converted("apps", "v1beta1", "Deployment", set), set);
    assert_eq!(
        converted("apps", "v1beta1", "Deployment", r#"{"spec":{}}"#),
        r#"{"spec":{"revisionHistoryLimit":2}}"#
    );
    assert_eq!(
        converted("apps", "v1beta1", "StatefulSet", r#"{"spec":{}}"#),
        r#"{"spec":{"updateStrategy":{"type":"OnDelete"}}}"#
    );
    assert_eq!(
        converted("extensions", "v1beta1", "DaemonSet", r#"{"spec":{"templateGeneration":4}}"#),
        r#"{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"4"}},"spec":{"updateStrategy":{"type":"OnDelete"}}}"#
    );
    let set = r#"{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}"#;
    assert_eq!(converted("apps", "v1beta1", "StatefulSet", set), set);
}

#[test]
fn backends_of_old_ingresses_become_services() {
    for group in ["extensions", "networking.k8s.io"] {
        let ingress = |spec: &str| converted(group, "v1beta1", "Ingress", &format!(r#"{{"spec":{spec}}}"#));
        assert_eq!(
            ingress(
                r#"{"backend":{"serviceName":"s","servicePort":80},"rules":[{"http":{"paths":[{"path":"/","backend":{"serviceName":"t","servicePort":"web"}}]}}]}"#
            ),
            r#"{"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}},"rules":[{"http":{"paths":[{"backend":{"service":{"name":"t","port":{"name":"web"}}},"path":"/","pathType":"ImplementationSpecific"}]}}]}}"#
        );
        let resource = r#"{"resource":{"kind":"Bucket","name":"b"}}"#;
        assert_eq!(
            ingress(&format!(
                r#"{{"backend":{{"resource":{{"kind":"Bucket","name":"b"}},"serviceName":"","servicePort":0}},"rules":[{{"http":{{"paths":[{{"backend":{resource},"pathType":"Exact"}}]}}}}]}}"#
            )),
            format!(
                r#"{{"spec":{{"defaultBackend":{resource},"rules":[{{"http":{{"paths":[{{"backend":{resource},"pathType":"Exact"}}]}}}}]}}}}"#
            )
        );
        assert_eq!(
            ingress(r#"{"backend":{"serviceName":"s"}}"#),
            r#"{"spec":{"defaultBackend":{"service":{"name":"s","port":{}}}}}"#
        );
    }
}

#[test]
fn runtime_classes_in_v1alpha1_lose_their_spec() {
    assert_eq!(
        converted(
            "node.k8s.io",
            "v1alpha1",
            "RuntimeClass",
            r#"{"spec":{"runtimeHandler":"h","overhead":{"podFixed":{"cpu":"1"}}}}"#
        ),
        r#"{"handler":"h","overhead":{"podFixed":{"cpu":"1"}}}"#
    );
}

#[test]
fn subjects_in_v1alpha1_get_a_group() {
    assert_eq!(
        converted(
            "rbac.authorization.k8s.io",
            "v1alpha1",
            "ClusterRoleBinding",
            r#"{"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"*","apiVersion":"rbac.authorization.k8s.io/v1alpha1"},{"kind":"User","name":"u"},{"apiVersion":"v1","kind":"ServiceAccount","name":"*","namespace":"n"},{"apiVersion":"example.com/v1","kind":"Robot","name":"*"}]}"#
        ),
        r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"},{"kind":"ServiceAccount","name":"*","namespace":"n"},{"apiGroup":"example.com","kind":"Robot","name":"*"}]}"#
    );
}

#[test]
fn certificate_requests_in_v1beta1_get_its_defaults() {
    let request = |text: &str| converted("certificates.k8s.io", "v1beta1", "CertificateSigningRequest", text);
    assert_eq!(
        request(r#"{"status":{"conditions":[{"type":"Approved"}]}}"#),
        r#"{"spec":{"signerName":"kubernetes.io/legacy-unknown","usages":["digital signature","key encipherment"]},"status":{"conditions":[{"status":"True","type":"Approved"}]}}"#
    );
    let set = r#"{"spec":{"signerName":"example.com/a","usages":["any"]},"status":{"conditions":[{"status":"False","type":"Approved"}]}}"#;
    assert_eq!(request(set), set);
}

#[test]
fn bindings_in_v1alpha1_deny_without_parameters() {
    let kind = "ValidatingAdmissionPolicyBinding";
    let binding = |text: &str| converted("admissionregistration.k8s.io", "v1alpha1", kind, text);
    assert_eq!(
        binding(r#"{"spec":{"paramRef":{"name":"p"}}}"#),
        r#"{"spec":{"paramRef":{"name":"p","parameterNotFoundAction":"Deny"}}}"#
    );
    let set = r#"{"spec":{"paramRef":{"name":"p","parameterNotFoundAction":"Allow"}}}"#;
    assert_eq!(binding(set), set);
    assert_eq!(binding(r#"{"spec":{}}"#), r#"{"spec":{}}"#);
}
