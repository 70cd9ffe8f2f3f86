use std::sync::Arc;

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::{Value, yaml};

use super::{LimitedResource, check, recount};
use crate::fake_cluster::FakeCluster;
use crate::{AdmissionAttributes, Operation, RestMapping, VersionedObject};

/// Parses a YAML list of objects.
fn read(text: &str) -> Vec<Value> {
    yaml::document(text.as_bytes()).unwrap().value.as_list().unwrap().to_vec()
}

fn resources() -> Vec<RestMapping> {
    let served = |(plural, kind): (&str, &str)| RestMapping {
        resource: GroupResource::new("", plural),
        kind: GroupVersionKind::new("", "v1", kind),
        namespaced: true,
    };
    [("pods", "Pod"), ("services", "Service"), ("configmaps", "ConfigMap")].map(served).to_vec()
}

const OBJECTS: &str = "
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ns}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: ns}, spec: {containers: [{name: c, resources: {requests: {cpu: 200m}}}]}, status: {phase: Failed}}
- {apiVersion: v1, kind: Pod, metadata: {name: c, namespace: other}, spec: {containers: [{name: c}]}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: ns}}
";

#[test]
fn quota_usage_is_counted_in_the_namespace_of_the_quota() {
    let cluster: FakeCluster = read(OBJECTS).into_iter().collect();
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {pods: '5', requests.cpu: '1', count/pods: '9', services: '1', configmaps: '3'}}}",
    );
    let status = recount(&quota[0], &resources(), &cluster, 0).unwrap();
    let used = |name: &str| status.str_at(&["used", name]).unwrap().to_owned();
    assert_eq!(used("pods"), "1");
    assert_eq!(used("requests.cpu"), "100m");
    assert_eq!(used("count/pods"), "2");
    assert_eq!(used("services"), "0");
    assert_eq!(used("configmaps"), "1");
    assert_eq!(status.at(&["hard"]), quota[0].at(&["spec", "hard"]));
}

#[test]
fn up_to_date_quota_status_is_not_updated() {
    let cluster: FakeCluster = read(OBJECTS).into_iter().collect();
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {pods: '5'}}, status: {hard: {pods: '5'}, used: {pods: '1'}}}",
    );
    assert_eq!(recount(&quota[0], &resources(), &cluster, 0), None);
}

#[test]
fn usage_of_resources_without_an_evaluator_stays_unchanged() {
    let cluster: FakeCluster = read(OBJECTS).into_iter().collect();
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {count/widgets.example.com: '5', pods: '1'}}, status: {hard: {pods: '1'}, used: {count/widgets.example.com: '3', pods: '0'}}}",
    );
    let status = recount(&quota[0], &resources(), &cluster, 0).unwrap();
    assert_eq!(status.str_at(&["used", "count/widgets.example.com"]), Some("3"));
}

#[test]
fn quota_counts_only_objects_in_its_scopes() {
    let cluster: FakeCluster = read(OBJECTS).into_iter().collect();
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {pods: '5'}, scopes: [BestEffort]}}",
    );
    let status = recount(&quota[0], &resources(), &cluster, 0).unwrap();
    assert_eq!(status.str_at(&["used", "pods"]), Some("0"));
}

const LIMITED: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\n";

#[test]
fn the_configuration_is_read_strictly() {
    let parse = |rest: &str| LimitedResource::parse(format!("{LIMITED}{rest}").as_bytes());
    assert_eq!(parse("limitedResources: [{resource: pods, matchContains: [cpu]}]").unwrap().len(), 1);
    assert!(
        LimitedResource::parse(b"apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration")
            .is_ok()
    );
    assert_eq!(parse("limitedResources: [{}]").unwrap_err(), "limitedResources[0].resource: Required value");
    assert_eq!(
        parse("limitedResources: [{resource: pods, matchContain: [cpu]}]").unwrap_err(),
        "strict decoding error: unknown field \"limitedResources[0].matchContain\""
    );
    assert_eq!(
        parse("limitedResources: [{resource: pods, matchScopes: [{scope: x}]}]").unwrap_err(),
        "strict decoding error: unknown field \"limitedResources[0].matchScopes[0].scope\""
    );
    assert!(parse("limitedResources: {}").unwrap_err().contains("of type []v1.LimitedResource"));
}

/// Checks the creation of a pod with a CPU request and a priority class. Returns the number of charged quotas.
fn charged(limited: &str, quotas: &str) -> Result<usize, String> {
    let limited = LimitedResource::parse(format!("{LIMITED}limitedResources: {limited}").as_bytes()).unwrap();
    let quotas: Vec<Arc<Value>> = read(quotas).into_iter().map(Arc::new).collect();
    let pod = &read(
        "- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {priorityClassName: high, containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}",
    )[0];
    let (user, options) = (User::named("u"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let attributes = AdmissionAttributes {
        user: &user,
        operation: Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "pods"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "ns".into(),
        name: "p".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
        snapshot: crate::AdmissionSnapshot::default(),
    };
    check(&attributes, pod, &quotas, &limited, &FakeCluster::default())
        .map(|charges| charges.len())
        .map_err(|status| format!("{} {}", status.code(), status.message()))
}

#[test]
fn limited_resource_is_forbidden_without_a_quota_that_covers_it() {
    let cpu = "[{resource: pods, matchContains: [requests.cpu]}]";
    assert_eq!(charged("[]", "[]"), Ok(0));
    assert_eq!(charged("[{resource: services, matchContains: [cpu]}]", "[]"), Ok(0));
    assert_eq!(
        charged(cpu, "[]"),
        Err("403 pods \"p\" is forbidden: insufficient quota to consume: requests.cpu".to_owned())
    );
    let quota = |hard: &str| {
        format!("[{{metadata: {{name: q}}, status: {{hard: {{{hard}: '1'}}, used: {{{hard}: '0'}}}}}}]")
    };
    assert_eq!(charged(cpu, &quota("requests.cpu")), Ok(1));
    assert_eq!(
        charged(cpu, &quota("pods")),
        Err("403 pods \"p\" is forbidden: insufficient quota to consume: requests.cpu".to_owned())
    );
}

#[test]
fn limited_scope_is_rejected_without_a_quota_of_that_scope() {
    let of = |class: &str| {
        format!(
            "[{{resource: pods, matchScopes: [{{scopeName: PriorityClass, operator: In, values: [{class}]}}]}}]"
        )
    };
    assert_eq!(charged(&of("low"), "[]"), Ok(0));
    assert_eq!(
        charged(&of("high"), "[]"),
        Err("500 insufficient quota to match these scopes: [{PriorityClass In [high]}]".to_owned())
    );
    let quota = "[{metadata: {name: q}, spec: {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}}, status: {hard: {pods: '1'}, used: {pods: '0'}}}]";
    assert_eq!(charged(&of("high"), quota), Ok(1));
}
