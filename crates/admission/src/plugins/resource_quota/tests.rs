use api::GroupResource;
use value::{Value, yaml};

use super::recount;
use crate::tests::Listed;

/// A list of objects.
fn read(text: &str) -> Vec<Value> {
    yaml::document(text.as_bytes()).unwrap().value.as_list().unwrap().to_vec()
}

fn resources() -> Vec<GroupResource> {
    ["pods", "services", "configmaps"].iter().map(|name| GroupResource::new("", *name)).collect()
}

const OBJECTS: &str = "
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ns}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: ns}, spec: {containers: [{name: c, resources: {requests: {cpu: 200m}}}]}, status: {phase: Failed}}
- {apiVersion: v1, kind: Pod, metadata: {name: c, namespace: other}, spec: {containers: [{name: c}]}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: ns}}
";

#[test]
fn what_is_used_is_counted_in_the_quotas_namespace() {
    let cluster = Listed(read(OBJECTS));
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
fn a_status_that_is_right_is_left_alone() {
    let cluster = Listed(read(OBJECTS));
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {pods: '5'}}, status: {hard: {pods: '5'}, used: {pods: '1'}}}",
    );
    assert_eq!(recount(&quota[0], &resources(), &cluster, 0), None);
}

#[test]
fn what_nobody_here_can_count_stays_as_it_was() {
    let cluster = Listed(read(OBJECTS));
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {count/widgets.example.com: '5', pods: '1'}}, status: {hard: {pods: '1'}, used: {count/widgets.example.com: '3', pods: '0'}}}",
    );
    let status = recount(&quota[0], &resources(), &cluster, 0).unwrap();
    assert_eq!(status.str_at(&["used", "count/widgets.example.com"]), Some("3"));
}

#[test]
fn scopes_choose_what_is_counted() {
    let cluster = Listed(read(OBJECTS));
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {pods: '5'}, scopes: [BestEffort]}}",
    );
    let status = recount(&quota[0], &resources(), &cluster, 0).unwrap();
    assert_eq!(status.str_at(&["used", "pods"]), Some("0"));
}
