use std::sync::atomic::Ordering;

use value::{Value, yaml};

use super::checks::{PodView, in_detail, violations};
use super::existing_pods::{MAX_BYTES, MAX_PODS, stored_bytes, warnings};
use super::{LevelVersion, NamespacePolicy, PodSecurityConfiguration, PodSecurityLevel, PodSecurityVersion};
use crate::fake_cluster::FakeCluster;

fn read(text: &str) -> Value {
    yaml::document(text.as_bytes()).unwrap().value
}

#[test]
fn pod_security_version_is_latest_or_v1_minor() {
    assert_eq!(PodSecurityVersion::parse("latest"), Ok(PodSecurityVersion::Latest));
    assert_eq!(PodSecurityVersion::parse("v1.0"), Ok(PodSecurityVersion::Minor(0)));
    assert_eq!(PodSecurityVersion::parse("v1.37"), Ok(PodSecurityVersion::Minor(37)));
    for bad in
        ["", "v1", "v1.", "v1.01", "v1.+1", "v1.-1", "1.37", "v2.0", "Latest", "v1.99999999999999999999"]
    {
        assert_eq!(PodSecurityVersion::parse(bad), Err("must be \"latest\" or \"v1.x\""), "{bad}");
    }
}

#[test]
fn latest_version_and_restricted_level_order_last() {
    assert!(PodSecurityVersion::Latest > PodSecurityVersion::Minor(u32::MAX));
    assert!(
        PodSecurityLevel::Restricted > PodSecurityLevel::Baseline
            && PodSecurityLevel::Baseline > PodSecurityLevel::Privileged
    );
}

#[test]
fn warn_level_defaults_to_the_enforce_level() {
    let namespace = |labels: &str| read(&format!("metadata: {{labels: {labels}}}"));
    let policy = |labels: &str| NamespacePolicy::of(&namespace(labels), &NamespacePolicy::default()).0;
    let strict = policy(
        "{pod-security.kubernetes.io/enforce: baseline, pod-security.kubernetes.io/enforce-version: v1.20}",
    );
    assert_eq!(
        strict.warn,
        LevelVersion { level: PodSecurityLevel::Baseline, version: PodSecurityVersion::Minor(20) }
    );
    assert_eq!(strict.audit, LevelVersion::PRIVILEGED);
    let silent =
        policy("{pod-security.kubernetes.io/enforce: baseline, pod-security.kubernetes.io/warn: privileged}");
    assert_eq!(silent.warn.level, PodSecurityLevel::Privileged);
}

#[test]
fn invalid_pod_security_labels_enforce_restricted_and_do_not_warn_or_audit() {
    let namespace = read(
        "metadata: {labels: {pod-security.kubernetes.io/enforce: x, pod-security.kubernetes.io/audit: x, pod-security.kubernetes.io/warn: x}}",
    );
    let (policy, errors) = NamespacePolicy::of(&namespace, &NamespacePolicy::default());
    assert_eq!(errors.len(), 3);
    assert_eq!(policy.enforce.level, PodSecurityLevel::Restricted);
    assert_eq!(
        (policy.audit.level, policy.warn.level),
        (PodSecurityLevel::Privileged, PodSecurityLevel::Privileged)
    );
}

#[test]
fn future_versions_are_evaluated_as_latest() {
    let pod = read("spec: {containers: [{name: c}]}");
    let found = |version| {
        in_detail(&violations(
            LevelVersion { level: PodSecurityLevel::Restricted, version },
            PodView { object: &pod },
        ))
    };
    assert_eq!(found(PodSecurityVersion::Minor(4000)), found(PodSecurityVersion::Latest));
    assert_ne!(found(PodSecurityVersion::Minor(7)), found(PodSecurityVersion::Minor(8)));
}

#[test]
fn a_configuration_has_defaults_and_exemptions() {
    let text = "
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}
exemptions: {usernames: [ann], namespaces: [kube-system], runtimeClasses: [vm]}
";
    let configuration = PodSecurityConfiguration::parse(text.as_bytes()).unwrap();
    assert_eq!(configuration.defaults.enforce.to_string(), "baseline:v1.30");
    assert_eq!(configuration.defaults.warn.to_string(), "restricted:latest");
    assert_eq!(configuration.defaults.audit.to_string(), "privileged:latest");
    assert_eq!(configuration.usernames, ["ann"]);
    assert_eq!(configuration.namespaces, ["kube-system"]);
    assert_eq!(configuration.runtime_classes, ["vm"]);
}

#[test]
fn a_configuration_that_is_wrong_is_refused() {
    let text = "
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: strict, audit-version: '1.2'}
exemptions: {usernames: ['', ann, ann], namespaces: [A_b]}
";
    let why = PodSecurityConfiguration::parse(text.as_bytes()).unwrap_err();
    for part in [
        "defaults.enforce",
        "defaults.audit-version",
        "exemptions.usernames[0]",
        "exemptions.usernames[2]",
        "exemptions.namespaces[0]",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
    assert!(PodSecurityConfiguration::parse(b"apiVersion: v1\nkind: PodSecurityConfiguration").is_err());
}

/// Ignoring such a mistake would leave the default level `privileged`, which allows everything.
#[test]
fn a_configuration_that_is_misspelt_is_refused() {
    let parse = |rest: &str| {
        let text = format!(
            "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n{rest}"
        );
        PodSecurityConfiguration::parse(text.as_bytes()).unwrap_err()
    };
    assert_eq!(parse("default: {enforce: restricted}"), "strict decoding error: unknown field \"default\"");
    assert_eq!(
        parse("defaults: {enforced: restricted}\nexemptions: {users: [a]}"),
        "strict decoding error: unknown field \"defaults.enforced\", unknown field \"exemptions.users\""
    );
    let twice = parse("defaults: {enforce: restricted}\ndefaults: {}");
    assert!(twice.starts_with("strict decoding error: "), "{twice}");
    assert_eq!(
        parse("defaults: [{enforce: restricted}]"),
        "json: cannot unmarshal array into Go struct field PodSecurityConfiguration.defaults of type v1.PodSecurityDefaults"
    );
    assert_eq!(
        parse("defaults: {enforce: 1}"),
        "json: cannot unmarshal number into Go struct field PodSecurityDefaults.defaults.enforce of type string"
    );
    assert_eq!(
        parse("exemptions: {namespaces: [1]}"),
        "json: cannot unmarshal number into Go struct field PodSecurityExemptions.exemptions.namespaces of type string"
    );
}

const BASELINE: LevelVersion =
    LevelVersion { level: PodSecurityLevel::Baseline, version: PodSecurityVersion::Latest };

/// A pod of a controller that violates the baseline level if `is_privileged`.
fn owned_pod(name: &str, controller: &str, is_privileged: bool) -> Value {
    let mut pod = read(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ns, ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: {controller}, controller: true}}]}}\nspec: {{containers: [{{name: c}}]}}"
    ));
    pod.set_at(&["spec", "hostNetwork"], is_privileged);
    pod
}

#[test]
fn one_existing_pod_of_each_controller_is_checked_first() {
    let mut cluster: FakeCluster = (0..MAX_PODS).map(|i| owned_pod(&format!("p{i}"), "a", false)).collect();
    cluster.extend([owned_pod("z", "b", true)]);
    let warned = warnings(&PodSecurityConfiguration::default(), "ns", BASELINE, &cluster);
    let total = MAX_PODS + 1;
    assert_eq!(
        warned,
        [
            format!(
                "new PodSecurity enforce level only checked against the first {MAX_PODS} of {total} existing pods"
            ),
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\""
                .to_owned(),
            "z: host namespaces".to_owned(),
        ]
    );
}

#[test]
fn the_check_of_existing_pods_decodes_a_limited_number_of_bytes() {
    const BYTES: usize = 2 * 1024 * 1024;
    let large = |i: usize| {
        let mut pod = owned_pod(&format!("p{i:02}"), "a", true);
        pod.set_at(&["metadata", "annotations", "k"], "x".repeat(BYTES));
        pod
    };
    let cluster: FakeCluster = (0..20).map(large).collect();
    assert_eq!(stored_bytes("ns", &cluster), MAX_BYTES);
    let warned = warnings(&PodSecurityConfiguration::default(), "ns", BASELINE, &cluster);
    let checked = MAX_BYTES / BYTES - 1;
    assert_eq!(cluster.decoded.load(Ordering::Relaxed), checked);
    let last = warned.last().unwrap();
    assert_eq!(*last, format!("p00 (and {} other pods): host namespaces", checked - 1));
    assert!(warned[0].ends_with(&format!("the first {checked} of 20 existing pods")), "{warned:?}");
}
