use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::{Value, yaml};

use super::{CountedUsage, LimitedResource, UsageCount, check, recount};
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
fn a_second_count_decodes_only_objects_that_have_changed() {
    let pod = |name: &str, revision: usize, cpu: &str| {
        read(&format!(
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, resourceVersion: '{revision}', annotations: {{k: {}}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}",
            "x".repeat(1000)
        ))
        .remove(0)
    };
    let mut cluster: FakeCluster = (0..10).map(|i| pod(&format!("p{i}"), 1, "100m")).collect();
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {count/pods: '50', requests.cpu: '9'}}}",
    );
    let mut counted = CountedUsage::default();
    let mut count = |cluster: &FakeCluster| {
        let before = cluster.decoded.load(Ordering::Relaxed);
        let recount = UsageCount::new(&quota[0], &resources(), cluster);
        let bytes = recount.stored_bytes(&counted);
        let status = recount.status(&mut counted, 0).unwrap();
        let used = |name: &str| status.str_at(&["used", name]).unwrap().to_owned();
        let decoded = cluster.decoded.load(Ordering::Relaxed) - before;
        (used("count/pods"), used("requests.cpu"), decoded, bytes)
    };
    let (pods, cpu, decoded, bytes) = count(&cluster);
    assert_eq!((pods.as_str(), cpu.as_str(), decoded), ("10", "1", 10));
    assert!(bytes > 10_000, "{bytes}");
    let (.., decoded, bytes) = count(&cluster);
    assert_eq!(decoded, 0);
    assert!(bytes < 100, "{bytes}");
    // One is deleted, one changed, one created.
    cluster.objects.retain(|(.., name), _| name != "p0");
    cluster.extend([pod("p1", 2, "300m"), pod("p10", 1, "300m")]);
    let (pods, cpu, decoded, _) = count(&cluster);
    assert_eq!((pods.as_str(), cpu.as_str(), decoded), ("10", "1400m", 2));
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
        budget: value::Budget::UNLIMITED,
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

/// The steps of counting a pod with `count` containers of each kind and their statuses, for a quota with `count` equal scopes.
fn steps_of_recount(count: usize) -> u64 {
    let names = |prefix: &str| (0..count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let container = |name: String| {
        let mut container = Value::map([("name", name.clone())]);
        container.set_at(&["resources", "requests", &format!("example.com/{name}")], "1");
        container.set_at(&["restartPolicy"], "Always");
        container
    };
    let status = |name: String| Value::map([("name", name)]);
    let mut pod = read("- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ns}}").remove(0);
    pod.set_at(&["spec", "containers"], Value::list(names("c").into_iter().map(container)));
    pod.set_at(&["spec", "initContainers"], Value::list(names("i").into_iter().map(container)));
    pod.set_at(&["status", "containerStatuses"], Value::list(names("c").into_iter().map(status)));
    pod.set_at(&["status", "initContainerStatuses"], Value::list(names("i").into_iter().map(status)));
    let cluster: FakeCluster = [pod].into_iter().collect();
    let mut quota =
        read("- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {pods: '5'}}}")
            .remove(0);
    quota.set_at(&["spec", "scopes"], Value::list(vec!["BestEffort"; count]));
    value::steps::of(|| {
        let status = recount(&quota, &resources(), &cluster, 0).unwrap();
        assert_eq!(status.str_at(&["used", "pods"]), Some("1"));
    })
}

#[test]
fn usage_of_a_pod_is_counted_in_linear_time() {
    let (short, long) = (steps_of_recount(100), steps_of_recount(1000));
    assert!(long <= 15 * short, "{short} steps, then {long}");
}

/// The steps of counting `count` extended resource claims, of pods whose status does not name a claim yet.
fn steps_of_extended_claims(count: usize) -> u64 {
    let mut objects = read(
        "- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {extendedResourceName: example.com/gpu}}",
    );
    for i in 0..count {
        let pod = format!(
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: p{i}, namespace: ns, uid: u{i}}}, spec: {{containers: [{{name: c, resources: {{requests: {{example.com/gpu: '1'}}}}}}]}}}}"
        );
        objects.extend(read(&pod));
        // The second claim of the pod is newer, and is charged.
        for (name, year) in [("a", 2030), ("b", 2031)] {
            let claim = format!(
                "- {{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}{i}, namespace: ns, creationTimestamp: '{year}-01-01T00:00:00Z', annotations: {{resource.kubernetes.io/extended-resource-claim: 'true'}}, ownerReferences: [{{apiVersion: v1, kind: Pod, name: p{i}, uid: u{i}, controller: true}}]}}, spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu, allocationMode: ExactCount, count: 1}}}}]}}}}}}"
            );
            objects.extend(read(&claim));
        }
    }
    let cluster: FakeCluster = objects.into_iter().collect();
    let quota = read(
        "- {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: ns}, spec: {hard: {requests.example.com/gpu: '1'}}}",
    );
    let claims = RestMapping {
        resource: GroupResource::new("resource.k8s.io", "resourceclaims"),
        kind: GroupVersionKind::new("resource.k8s.io", "v1", "ResourceClaim"),
        namespaced: true,
    };
    value::steps::of(|| {
        let status = recount(&quota[0], std::slice::from_ref(&claims), &cluster, 0).unwrap();
        let used = status.str_at(&["used", "requests.example.com/gpu"]);
        assert_eq!(used, Some(count.to_string().as_str()));
    })
}

#[test]
fn extended_claims_of_pods_are_counted_in_linear_time() {
    let (short, long) = (steps_of_extended_claims(20), steps_of_extended_claims(200));
    assert!(long <= 15 * short, "{short} steps, then {long}");
}

#[test]
fn a_sidecar_counts_beside_each_init_container_after_it() {
    let container = |name: &str, cpu: &str, sidecar: bool| {
        let mut container = Value::map([("name", name)]);
        container.set_at(&["resources", "requests", "cpu"], cpu);
        if sidecar {
            container.set_at(&["restartPolicy"], "Always");
        }
        container
    };
    let mut pod = read("- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ns}}").remove(0);
    pod.set_at(&["spec", "containers"], Value::list([container("c", "1", false)]));
    let init = [container("a", "2", false), container("s", "1", true), container("b", "3", false)];
    pod.set_at(&["spec", "initContainers"], Value::list(init));
    // The sidecar with the last init container needs more than with the container.
    let cpu = |pod: &Value| {
        let all = api::pod_resources::of_containers(pod, "requests");
        all.get("cpu").map(ToString::to_string)
    };
    assert_eq!(cpu(&pod).as_deref(), Some("4"));
    pod.set_at(&["spec", "containers"], Value::list([container("c", "5", false)]));
    assert_eq!(cpu(&pod).as_deref(), Some("6"));
}
