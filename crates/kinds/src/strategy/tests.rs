use api::GroupKind;
use api::features::Feature;
use value::Value;
use value::json::parse;

use super::*;

fn object(text: &str) -> Value {
    parse(text.as_bytes()).unwrap()
}

fn kind(group: &str, kind: &str) -> GroupKind {
    GroupKind::new(group, kind)
}

fn strategy(group: &str, name: &str) -> Option<&'static Strategy> {
    crate::table::behavior(&kind(group, name)).strategy.as_ref()
}

fn context() -> StrategyContext {
    StrategyContext {
        now: "2026-01-02T03:04:05Z".to_owned(),
        caller: RequestUserInfo {
            username: "alice".to_owned(),
            uid: "1".to_owned(),
            groups: vec!["devs".to_owned()],
            extra: vec![("k".to_owned(), vec!["v".to_owned()])],
        },
        features: Features::default(),
    }
}

fn created(group: &str, name: &str, text: &str) -> Value {
    let mut new = object(text);
    prepare_create(strategy(group, name), &mut new, &context());
    new
}

fn updated(group: &str, name: &str, new: &str, old: &str) -> Value {
    let mut new = object(new);
    prepare_update(strategy(group, name), &mut new, &object(old), &context());
    new
}

fn status_updated(group: &str, name: &str, new: &str, old: &str) -> Value {
    let mut new = object(new);
    prepare_update_status(strategy(group, name), &mut new, &object(old), &context());
    new
}

fn text(value: &Value) -> String {
    value::write::to_string(value)
}

#[test]
fn a_status_sent_with_a_new_object_is_dropped() {
    let new =
        created("apps", "Deployment", r#"{"metadata":{"generation":9},"spec":{},"status":{"replicas":3}}"#);
    assert_eq!(text(&new), r#"{"metadata":{"generation":1},"spec":{}}"#);
    // A node sends its status when it registers.
    let new = created(
        "",
        "Node",
        r#"{"metadata":{},"spec":{"configSource":{}},"status":{"phase":"x","config":{}}}"#,
    );
    assert_eq!(text(&new), r#"{"metadata":{},"spec":{},"status":{"phase":"x"}}"#);
}

#[test]
fn an_update_preserves_status_and_increments_generation_only_on_spec_changes() {
    let old = r#"{"metadata":{"generation":4},"spec":{"replicas":1},"status":{"replicas":1}}"#;
    let same = updated(
        "apps",
        "ReplicaSet",
        r#"{"metadata":{"generation":7,"labels":{"a":"b"}},"spec":{"replicas":1}}"#,
        old,
    );
    assert_eq!(same.int_at(&["metadata", "generation"]), Some(4));
    assert_eq!(same.int_at(&["status", "replicas"]), Some(1));
    let grown = updated(
        "apps",
        "ReplicaSet",
        r#"{"metadata":{},"spec":{"replicas":2},"status":{"replicas":9}}"#,
        old,
    );
    assert_eq!(grown.int_at(&["metadata", "generation"]), Some(5));
    assert_eq!(grown.int_at(&["status", "replicas"]), Some(1));
    let annotated = r#"{"metadata":{"annotations":{"a":"b"}},"spec":{"replicas":1}}"#;
    assert_eq!(updated("apps", "Deployment", annotated, old).int_at(&["metadata", "generation"]), Some(5));
    assert_eq!(updated("apps", "ReplicaSet", annotated, old).int_at(&["metadata", "generation"]), Some(4));
}

#[test]
fn endpoint_slice_generation_increments_on_label_and_endpoint_changes() {
    let old = r#"{"metadata":{"generation":1},"endpoints":[{"addresses":["1.2.3.4"]}]}"#;
    let generation = |new: &str| {
        updated("discovery.k8s.io", "EndpointSlice", new, old).int_at(&["metadata", "generation"])
    };
    assert_eq!(
        generation(r#"{"metadata":{"annotations":{"a":"b"}},"endpoints":[{"addresses":["1.2.3.4"]}]}"#),
        Some(1)
    );
    assert_eq!(
        generation(r#"{"metadata":{"labels":{"a":"b"}},"endpoints":[{"addresses":["1.2.3.4"]}]}"#),
        Some(2)
    );
    assert_eq!(generation(r#"{"metadata":{},"endpoints":[]}"#), Some(2));
}

#[test]
fn a_status_update_changes_status_and_only_permitted_metadata() {
    let old = r#"{"metadata":{"generation":2,"labels":{"a":"b"},"finalizers":["f/x"]},"spec":{"a":1},"status":{"b":1}}"#;
    let new = r#"{"metadata":{"labels":{"c":"d"},"annotations":{"e":"f"}},"spec":{"a":2},"status":{"b":2}}"#;
    let replica_set = status_updated("apps", "ReplicaSet", new, old);
    assert_eq!(
        text(&replica_set),
        r#"{"metadata":{"annotations":{"e":"f"},"generation":2,"labels":{"c":"d"}},"spec":{"a":1},"status":{"b":2}}"#
    );
    let deployment = status_updated("apps", "Deployment", new, old);
    assert_eq!(deployment.str_at(&["metadata", "labels", "a"]), Some("b"));
    let claim = status_updated("resource.k8s.io", "ResourceClaim", new, old);
    assert_eq!(
        text(&claim),
        r#"{"metadata":{"finalizers":["f/x"],"generation":2,"labels":{"a":"b"}},"spec":{"a":1},"status":{"b":2}}"#
    );
    let schema = status_updated("flowcontrol.apiserver.k8s.io", "FlowSchema", new, old);
    assert_eq!(schema.at(&["metadata"]), object(old).at(&["metadata"]));
}

#[test]
fn namespaces_start_active_with_their_finalizer_and_keep_their_finalizers() {
    let new = created(
        "",
        "Namespace",
        r#"{"metadata":{"name":"n"},"spec":{"finalizers":["x/y"]},"status":{"phase":"Terminating"}}"#,
    );
    assert_eq!(
        text(&new),
        r#"{"metadata":{"name":"n"},"spec":{"finalizers":["x/y","kubernetes"]},"status":{"phase":"Active"}}"#
    );
    let result = updated(
        "",
        "Namespace",
        r#"{"metadata":{},"spec":{"finalizers":[]}}"#,
        r#"{"metadata":{},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}"#,
    );
    assert_eq!(result.list_at(&["spec", "finalizers"]).len(), 1);
    let mut finalized = object(r#"{"metadata":{},"spec":{},"status":{"phase":"x"}}"#);
    prepare_namespace_finalize(
        &mut finalized,
        &object(r#"{"metadata":{},"status":{"phase":"Terminating"}}"#),
    );
    assert_eq!(finalized.str_at(&["status", "phase"]), Some("Terminating"));
    assert!(finalized.at(&["spec", "finalizers"]).is_none());
    let mut canonical = object(r#"{"metadata":{"name":"n"}}"#);
    canonicalize(strategy("", "Namespace"), &mut canonical);
    assert_eq!(canonical.str_at(&["metadata", "labels", "kubernetes.io/metadata.name"]), Some("n"));
}

#[test]
fn signing_requests_record_the_requester_and_are_decided_only_through_approval() {
    let csr = "CertificateSigningRequest";
    let new = created(
        "certificates.k8s.io",
        csr,
        r#"{"metadata":{},"spec":{"username":"root","groups":["system:masters"]},"status":{"certificate":"x"}}"#,
    );
    assert_eq!(
        text(&new),
        r#"{"metadata":{},"spec":{"extra":{"k":["v"]},"groups":["devs"],"uid":"1","username":"alice"}}"#
    );
    let old = r#"{"metadata":{},"spec":{"a":1},"status":{"conditions":[{"type":"Approved","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","reason":"old"}],"certificate":"c"}}"#;
    let new = r#"{"metadata":{},"spec":{"a":2},"status":{"conditions":[{"type":"Approved","status":"True","reason":"new"},{"type":"Failed","status":"True"}]}}"#;
    let through_status = status_updated("certificates.k8s.io", csr, new, old);
    assert_eq!(through_status.str_at(&["status", "conditions"]), None);
    let reasons: Vec<Option<&str>> = through_status
        .list_at(&["status", "conditions"])
        .iter()
        .map(|condition| condition.str_at(&["reason"]))
        .collect();
    assert_eq!(reasons, [Some("old"), None]);
    let mut approved = object(new);
    prepare_approval(&mut approved, &object(old), &context());
    let condition = &approved.list_at(&["status", "conditions"])[0];
    assert_eq!(condition.str_at(&["reason"]), Some("new"));
    assert_eq!(condition.str_at(&["lastTransitionTime"]), Some("2020-01-01T00:00:00Z"));
    assert_eq!(condition.str_at(&["lastUpdateTime"]), Some("2026-01-02T03:04:05Z"));
    assert_eq!(approved.str_at(&["status", "certificate"]), Some("c"));
    assert_eq!(approved.int_at(&["spec", "a"]), Some(1));
}

#[test]
fn persistent_volumes_record_their_last_phase_transition_time() {
    let new = created("", "PersistentVolume", r#"{"metadata":{},"status":{"phase":"Bound"}}"#);
    assert_eq!(
        text(&new),
        r#"{"metadata":{},"status":{"lastPhaseTransitionTime":"2026-01-02T03:04:05Z","phase":"Pending"}}"#
    );
    let old =
        r#"{"metadata":{},"status":{"phase":"Pending","lastPhaseTransitionTime":"2020-01-01T00:00:00Z"}}"#;
    let time = |new: &str| {
        let volume = status_updated("", "PersistentVolume", new, old);
        volume.str_at(&["status", "lastPhaseTransitionTime"]).map(str::to_owned)
    };
    assert_eq!(
        time(r#"{"metadata":{},"status":{"phase":"Pending"}}"#).as_deref(),
        Some("2020-01-01T00:00:00Z")
    );
    assert_eq!(
        time(r#"{"metadata":{},"status":{"phase":"Bound"}}"#).as_deref(),
        Some("2026-01-02T03:04:05Z")
    );
}

#[test]
fn data_source_and_data_source_ref_stay_in_sync() {
    let source = |text: &str| {
        let claim = created("", "PersistentVolumeClaim", &format!(r#"{{"metadata":{{}},"spec":{text}}}"#));
        claim.at(&["spec"]).map(super::tests::text)
    };
    let both = r#"{"dataSource":{"kind":"PersistentVolumeClaim","name":"x"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"x"}}"#;
    assert_eq!(
        source(r#"{"dataSource":{"kind":"PersistentVolumeClaim","name":"x"}}"#).as_deref(),
        Some(both)
    );
    assert_eq!(
        source(r#"{"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"x"}}"#).as_deref(),
        Some(both)
    );
    // Kinds that Kubernetes always ignored, and references to other namespaces (a disabled feature).
    assert_eq!(source(r#"{"dataSource":{"kind":"Foo","name":"x"}}"#).as_deref(), Some("{}"));
    assert_eq!(
        source(r#"{"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"x","namespace":"n"}}"#).as_deref(),
        Some("{}")
    );
}

#[test]
fn fields_of_features_that_are_off_are_dropped_unless_in_use() {
    let sent = r#"{"metadata":{},"spec":{"strategy":"x","preferredHolder":"y"}}"#;
    assert_eq!(text(&created("coordination.k8s.io", "Lease", sent)), r#"{"metadata":{},"spec":{}}"#);
    let result = updated("coordination.k8s.io", "Lease", sent, r#"{"metadata":{},"spec":{"strategy":"z"}}"#);
    assert_eq!(text(&result), r#"{"metadata":{},"spec":{"strategy":"x"}}"#);
    let pod = created(
        "",
        "Pod",
        r#"{"metadata":{},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v","bindMountOptions":["x"]}]}]}}"#,
    );
    let mount = &pod.list_at(&["spec", "containers"])[0].list_at(&["volumeMounts"])[0];
    assert_eq!(text(mount), r#"{"name":"v"}"#);
}

#[test]
fn new_pods_get_a_phase_and_a_qos_class() {
    let class = |resources: &str| {
        let pod = created(
            "",
            "Pod",
            &format!(
                r#"{{"metadata":{{}},"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#
            ),
        );
        assert_eq!(pod.str_at(&["status", "phase"]), Some("Pending"));
        pod.str_at(&["status", "qosClass"]).map(str::to_owned).unwrap()
    };
    assert_eq!(class("{}"), "BestEffort");
    assert_eq!(class(r#"{"requests":{"cpu":"1"}}"#), "Burstable");
    assert_eq!(
        class(r#"{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1000m","memory":"1024Mi"}}"#),
        "Guaranteed"
    );
    assert_eq!(class(r#"{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}"#), "Burstable");
}

#[test]
fn pod_level_resources_come_from_the_containers() {
    let pod = created(
        "",
        "Pod",
        r#"{"metadata":{},"spec":{"resources":{"requests":{"cpu":"1"}},"containers":[{"name":"a","resources":{"requests":{"memory":"1Gi"},"limits":{"cpu":"1","memory":"2Gi"}}},{"name":"b","resources":{"requests":{"memory":"1Gi"},"limits":{"cpu":"1","memory":"2Gi"}}}]}}"#,
    );
    assert_eq!(
        pod.at(&["spec", "resources"]).map(text).as_deref(),
        Some(r#"{"limits":{"cpu":"2","memory":"4Gi"},"requests":{"cpu":"1","memory":"2Gi"}}"#)
    );
}

#[test]
fn label_keys_become_requirements_of_their_selectors() {
    let pod = created(
        "",
        "Pod",
        r#"{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[],"topologySpreadConstraints":[{"labelSelector":{},"matchLabelKeys":["a","b"]},{"matchLabelKeys":["a"]}]}}"#,
    );
    let constraints = pod.list_at(&["spec", "topologySpreadConstraints"]);
    assert_eq!(
        constraints[0].at(&["labelSelector"]).map(text).as_deref(),
        Some(r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1"]}]}"#)
    );
    assert!(constraints[1].at(&["labelSelector"]).is_none());
}

#[test]
fn pods_have_a_grace_period_when_a_kubelet_runs_them() {
    let pod = object(r#"{"spec":{"nodeName":"n","terminationGracePeriodSeconds":30}}"#);
    let grace = |pod: &Value, requested| check_graceful_delete(strategy("", "Pod"), pod, requested);
    assert_eq!(grace(&pod, None), Some(30));
    assert_eq!(grace(&pod, Some(5)), Some(5));
    assert_eq!(grace(&pod, Some(-1)), Some(1));
    assert_eq!(grace(&object(r#"{"spec":{"terminationGracePeriodSeconds":30}}"#), None), Some(0));
    assert_eq!(grace(&object(r#"{"spec":{"nodeName":"n"},"status":{"phase":"Failed"}}"#), Some(9)), Some(0));
    assert_eq!(check_graceful_delete(strategy("", "ConfigMap"), &pod, None), None);
}

#[test]
fn ephemeral_container_and_resize_updates_change_only_their_own_fields() {
    let old = object(
        r#"{"metadata":{"generation":1,"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x","resources":{}}]},"status":{"phase":"Running"}}"#,
    );
    let mut new = object(
        r#"{"metadata":{},"spec":{"containers":[{"name":"c","image":"y"}],"ephemeralContainers":[{"name":"e"}]}}"#,
    );
    prepare_ephemeral_containers(&mut new, &old);
    assert_eq!(new.list_at(&["spec", "containers"])[0].str_at(&["image"]), Some("x"));
    assert_eq!(new.list_at(&["spec", "ephemeralContainers"]).len(), 1);
    assert_eq!(new.int_at(&["metadata", "generation"]), Some(2));
    let mut new = object(
        r#"{"metadata":{},"spec":{"containers":[{"name":"c","image":"y","resources":{"limits":{"cpu":"1"}}}]}}"#,
    );
    prepare_resize(&mut new, &old);
    assert_eq!(
        text(&new.list_at(&["spec", "containers"])[0]),
        r#"{"image":"x","name":"c","resources":{"limits":{"cpu":"1"}}}"#
    );
    assert_eq!(new.str_at(&["metadata", "labels", "a"]), Some("b"));
}

#[test]
fn devices_that_are_no_longer_allocated_lose_their_status() {
    let old = r#"{"metadata":{},"spec":{},"status":{"allocation":{"devices":{"results":[{"driver":"d","pool":"p","device":"1"},{"driver":"d","pool":"p","device":"2"}]}}}}"#;
    let new = r#"{"metadata":{},"spec":{},"status":{"allocation":{"devices":{"results":[{"driver":"d","pool":"p","device":"2"}]}},"devices":[{"driver":"d","pool":"p","device":"1"},{"driver":"d","pool":"p","device":"2"}]}}"#;
    let claim = status_updated("resource.k8s.io", "ResourceClaim", new, old);
    assert_eq!(claim.list_at(&["status", "devices"]).len(), 1);
}

#[test]
fn crds_record_the_versions_that_objects_were_stored_in() {
    let crd = "CustomResourceDefinition";
    let new = created(
        "apiextensions.k8s.io",
        crd,
        r#"{"metadata":{},"spec":{"versions":[{"name":"v1","storage":true}]},"status":{"storedVersions":["v0"]}}"#,
    );
    assert_eq!(new.at(&["status", "storedVersions"]).map(text).as_deref(), Some(r#"["v1"]"#));
    let changed = updated(
        "apiextensions.k8s.io",
        crd,
        r#"{"metadata":{},"spec":{"versions":[{"name":"v2","storage":true}]}}"#,
        &text(&new),
    );
    assert_eq!(changed.at(&["status", "storedVersions"]).map(text).as_deref(), Some(r#"["v1","v2"]"#));
}

#[test]
fn service_accounts_secrets_api_services_and_taint_rules_are_prepared_as_in_kubernetes() {
    let account =
        created("", "ServiceAccount", r#"{"secrets":[{"name":"s","kind":"Secret","namespace":"n"}]}"#);
    assert_eq!(text(&account), r#"{"secrets":[{"name":"s"}]}"#);
    let secret = updated("", "Secret", r#"{"metadata":{}}"#, r#"{"metadata":{},"type":"Opaque"}"#);
    assert_eq!(secret.str_at(&["type"]), Some("Opaque"));
    let local = created("apiregistration.k8s.io", "APIService", r#"{"metadata":{},"spec":{}}"#);
    assert_eq!(local.list_at(&["status", "conditions"])[0].str_at(&["reason"]), Some("Local"));
    let remote =
        created("apiregistration.k8s.io", "APIService", r#"{"metadata":{},"spec":{"service":{"name":"x"}}}"#);
    assert!(remote.at(&["status", "conditions"]).is_none());
    let rule = updated(
        "resource.k8s.io",
        "DeviceTaintRule",
        r#"{"metadata":{},"spec":{"taint":{"effect":"NoExecute","timeAdded":"2020-01-01T00:00:00Z"}}}"#,
        r#"{"metadata":{},"spec":{"taint":{"effect":"NoSchedule","timeAdded":"2020-01-01T00:00:00Z"}}}"#,
    );
    assert_eq!(rule.str_at(&["spec", "taint", "timeAdded"]), Some("2026-01-02T03:04:05Z"));
}

#[test]
fn create_on_update_and_propagation_defaults_match_kubernetes() {
    assert!(allow_create_on_update(strategy("", "Service")));
    assert!(allow_create_on_update(strategy("rbac.authorization.k8s.io", "Role")));
    assert!(!allow_create_on_update(strategy("", "ConfigMap")));
    assert!(allow_unconditional_update(strategy("", "ConfigMap")));
    assert!(!allow_unconditional_update(strategy("coordination.k8s.io", "Lease")));
    assert!(!allow_unconditional_update(strategy("policy", "PodDisruptionBudget")));
    assert_eq!(default_propagation(strategy("batch", "Job")), Propagation::Orphan);
    assert_eq!(default_propagation(strategy("", "ReplicationController")), Propagation::Orphan);
    assert_eq!(default_propagation(strategy("apps", "Deployment")), Propagation::Background);
    assert_eq!(default_propagation(strategy("", "Event")), Propagation::Unsupported);
}

#[test]
fn kinds_have_a_strategy_exactly_if_they_are_stored() {
    for row in crate::table::all() {
        let is_stored = row.storage != crate::table::KindStorage::Nowhere;
        assert_eq!(row.behavior.strategy.is_some(), is_stored, "{}/{}", row.group, row.kind);
    }
}

#[test]
fn a_lifecycle_left_empty_by_a_dropped_stop_signal_is_dropped() {
    let pod = |lifecycle: &str| {
        let text = format!(r#"{{"metadata":{{}},"spec":{{"containers":[{{"lifecycle":{lifecycle}}}]}}}}"#);
        created("", "Pod", &text).at(&["spec", "containers"]).map(text_of_first).unwrap_or_default()
    };
    assert_eq!(pod(r#"{"stopSignal":"SIGINT"}"#), "{}");
    assert_eq!(pod(r#"{"stopSignal":"SIGINT","preStop":{}}"#), r#"{"lifecycle":{"preStop":{}}}"#);
    assert_eq!(pod("{}"), r#"{"lifecycle":{}}"#, "it was empty before");
}

fn text_of_first(list: &Value) -> String {
    list.as_list().and_then(|list| list.first()).map(text).unwrap_or_default()
}

#[test]
fn resource_slice_generation_increments_even_if_the_changed_field_is_dropped() {
    let old = r#"{"metadata":{"generation":1},"spec":{"driver":"d"}}"#;
    let new = r#"{"metadata":{},"spec":{"driver":"d","partitionTypeAttribute":"a"}}"#;
    let new = updated("resource.k8s.io", "ResourceSlice", new, old);
    assert_eq!(text(&new), r#"{"metadata":{"generation":2},"spec":{"driver":"d"}}"#);
    let same = updated("resource.k8s.io", "ResourceSlice", r#"{"metadata":{},"spec":{"driver":"d"}}"#, old);
    assert_eq!(same.int_at(&["metadata", "generation"]), Some(1));
}

#[test]
fn the_digest_of_an_image_volume_is_dropped_from_a_status() {
    let mounts = r#"{"metadata":{},"status":{"containerStatuses":[{"volumeMounts":[{"name":"v","volumeStatus":{"image":{}}}]}]}}"#;
    let result = status_updated("", "Pod", mounts, r#"{"metadata":{}}"#);
    assert!(!text(&result).contains("volumeStatus"), "{}", text(&result));
    let result = status_updated("", "Pod", mounts, mounts);
    assert!(text(&result).contains("volumeStatus"), "in use already: {}", text(&result));
}

#[test]
fn fields_of_a_feature_are_dropped_from_pods_and_templates_unless_it_is_on() {
    const SPEC: &str =
        r#"{"evictionResponders":[{"name":"a.example/x"}],"schedulingGroup":{"podGroupName":"g"}}"#;
    let with = |features: Features, name: &str, group: &str, text: &str| -> String {
        let mut new = object(text);
        let context = StrategyContext { features, ..context() };
        prepare_create(strategy(group, name), &mut new, &context);
        value::write::to_string(&new)
    };
    for (group, kind, text) in [
        ("", "Pod", format!(r#"{{"spec":{SPEC}}}"#)),
        ("", "PodTemplate", format!(r#"{{"template":{{"spec":{SPEC}}}}}"#)),
        ("apps", "Deployment", format!(r#"{{"spec":{{"template":{{"spec":{SPEC}}}}}}}"#)),
        ("batch", "Job", format!(r#"{{"spec":{{"template":{{"spec":{SPEC}}}}}}}"#)),
        (
            "batch",
            "CronJob",
            format!(r#"{{"spec":{{"jobTemplate":{{"spec":{{"template":{{"spec":{SPEC}}}}}}}}}}}"#),
        ),
    ] {
        let none = with(Features::default(), kind, group, &text);
        assert!(!none.contains("schedulingGroup") && !none.contains("evictionResponders"), "{kind}: {none}");
        let all = with(Features::ALL, kind, group, &text);
        assert!(all.contains("schedulingGroup") && all.contains("evictionResponders"), "{kind}: {all}");
        let one = with(Features::default().with(Feature::GenericWorkload), kind, group, &text);
        assert!(one.contains("schedulingGroup") && !one.contains("evictionResponders"), "{kind}: {one}");
    }
    // A stored pod keeps its fields.
    let pod = format!(r#"{{"spec":{SPEC}}}"#);
    assert!(text(&updated("", "Pod", &pod, &pod)).contains("evictionResponders"));
}

#[test]
fn pod_level_limits_that_become_requests_take_linear_steps() {
    let steps_of = |count: usize| {
        // The names of the limits come before those of the requests.
        let amounts = |digit: u8| Value::map((0..count).map(|i| (format!("hugepages-{digit}{i}Ki"), "1Gi")));
        let mut pod = object(r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}"#);
        pod.set_at(&["spec", "resources", "limits"], amounts(1));
        pod.set_at(&["spec", "resources", "requests"], amounts(2));
        let steps = value::steps::of(|| prepare_create(strategy("", "Pod"), &mut pod, &context()));
        let requests = pod.at(&["spec", "resources", "requests"]).and_then(Value::as_map).unwrap();
        assert_eq!(requests.len(), 2 * count);
        steps
    };
    let (short, long) = (steps_of(300), steps_of(3000));
    assert!(long <= 15 * short, "{short} steps, then {long}");
}
