//! Features that are off by default: `--feature-gates` and `--runtime-config` together decide what is served.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use conformance::client::Client;
use conformance::server::run_to_end;
use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const VERSIONS: &str = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true,lifecycle.k8s.io/v1alpha1=true";
const GATES: &str = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true,EvictionRequestAPI=true";
/// Pods can be created before the default service account exists.
const WITHOUT_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";
const SCHEDULING: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default";
const ALPHA: &str = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default";
const LIFECYCLE: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const UID: &str = "3d7fdff1-3fe5-48b9-b106-1ee24b0277f6";

/// A pod with the fields of two features. They exclude each other, so that each pod has one.
fn pod(name: &str, field: &str, value: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"][field] = value.clone();
    pod
}

fn pods() -> [(&'static str, Value, Value); 2] {
    let group = json!({"podGroupName": "g"});
    let responders = json!([{"name": "a.example/x", "priority": 1000}]);
    [
        ("schedulingGroup", pod("grouped", "schedulingGroup", &group), group),
        ("evictionResponders", pod("responding", "evictionResponders", &responders), responders),
    ]
}

async fn status(client: &Client, path: &str, object: &Value, status: &Value) -> Value {
    let mut object = object.clone();
    object["status"] = status.clone();
    accepts(client.json(Method::PUT, &format!("{path}/status"), &object).await).unwrap()
}

#[tokio::test]
async fn without_its_gate_no_kind_of_a_feature_is_served_and_no_field_is_stored() {
    let server = Server::serve(&[VERSIONS, WITHOUT_ACCOUNTS]).await.unwrap();
    let client = server.client().unwrap();
    for path in [
        format!("{SCHEDULING}/workloads"),
        format!("{ALPHA}/podgroups"),
        format!("{ALPHA}/compositepodgroups"),
        format!("{LIFECYCLE}/evictions"),
        format!("{LIFECYCLE}/evictionrequests"),
    ] {
        let answer = client.get(&path).await.unwrap();
        assert_eq!(answer.code, 404, "{path}");
    }
    let groups = accepts(client.get("/apis").await).unwrap();
    let groups = groups["groups"].as_array().unwrap();
    assert!(groups.iter().all(|group| group["name"] != "lifecycle.k8s.io"));
    let scheduling = groups.iter().find(|group| group["name"] == "scheduling.k8s.io").unwrap();
    assert_eq!(scheduling["versions"].as_array().unwrap().len(), 1);
    for (field, pod, _) in pods() {
        let created = accepts(client.post(PODS, &pod).await).unwrap();
        assert_eq!(created["spec"].get(field), None, "{field}");
    }
    let role =
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:podgroup-protection-controller";
    rejects(client.get(role).await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn a_gate_without_its_version_serves_nothing_but_keeps_the_fields_of_pods() {
    let server = Server::serve(&[GATES, WITHOUT_ACCOUNTS]).await.unwrap();
    let client = server.client().unwrap();
    assert_eq!(client.get(&format!("{SCHEDULING}/workloads")).await.unwrap().code, 404);
    assert_eq!(client.get(&format!("{LIFECYCLE}/evictions")).await.unwrap().code, 404);
    for (field, pod, value) in pods() {
        let created = accepts(client.post(PODS, &pod).await).unwrap();
        assert_eq!(created["spec"][field], value, "{field}");
    }
    let reserved = pod("reserved", "evictionResponders", &json!([{"name": "a.k8s.io/x", "priority": 999}]));
    rejects(client.post(PODS, &reserved).await, 422, "Invalid").unwrap();
    let mut both = pod("both", "evictionResponders", &json!([{"name": "a.example/x", "priority": 1000}]));
    both["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    rejects(client.post(PODS, &both).await, 422, "Invalid").unwrap();
    let role =
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:podgroup-protection-controller";
    accepts(client.get(role).await).unwrap();
}

#[tokio::test]
async fn a_gate_is_rejected_while_one_is_off_that_it_depends_on() {
    let folder = TempDir::new().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let gates = "--feature-gates=CompositePodGroup=true,GenericWorkload=true";
    let (code, said) = run_to_end(&["serve", &data, gates], Duration::from_secs(20)).await.unwrap();
    assert_ne!(code, Some(0), "{said}");
    let expected = "CompositePodGroup is enabled, but depends on features that are disabled: [TopologyAwareWorkloadScheduling]";
    assert!(said.contains(expected), "{said}");
}

#[tokio::test]
async fn workloads_and_pod_groups_are_served_in_both_versions() {
    let server = Server::serve(&[GATES, VERSIONS]).await.unwrap();
    let client = server.client().unwrap();

    let workloads = format!("{SCHEDULING}/workloads");
    let workload = json!({"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [
        {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}},
    ]}});
    let created = accepts(client.post(&workloads, &workload).await).unwrap();
    assert_eq!(created["spec"], workload["spec"]);
    let shown = accepts(client.get(&format!("{ALPHA}/workloads/w")).await).unwrap();
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]),
        (&json!("scheduling.k8s.io/v1alpha3"), &workload["spec"])
    );
    let empty = json!({"metadata": {"name": "v"}, "spec": {}});
    rejects(client.post(&workloads, &empty).await, 422, "Invalid").unwrap();
    let mut scaled = shown.clone();
    scaled["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] = json!(3);
    accepts(client.json(Method::PUT, &format!("{ALPHA}/workloads/w"), &scaled).await).unwrap();
    rejects(client.json(Method::PUT, &format!("{ALPHA}/workloads/w"), &scaled).await, 409, "Conflict")
        .unwrap();
    accepts(client.delete(&format!("{workloads}/w")).await).unwrap();

    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    accepts(client.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await).unwrap();
    let groups = format!("{SCHEDULING}/podgroups");
    let group = json!({"metadata": {"name": "g"}, "spec": {
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "parentCompositePodGroupName": "c", "priorityClassName": "high", "preemptionPolicy": "Never",
        "schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    }, "status": {"conditions": []}});
    let created = accepts(client.post(&groups, &group).await).unwrap();
    assert_eq!(created["metadata"]["finalizers"], json!(["scheduling.k8s.io/podgroup-protection"]));
    assert_eq!(created["spec"]["priority"], 1000);
    assert_eq!(created["spec"]["disruptionMode"], json!({"single": {}}));
    // The gates of these fields cannot be turned on.
    assert_eq!(
        (created["spec"].get("resourceClaims"), created["spec"].get("preemptionPolicy")),
        (None, None)
    );
    for wrong in
        [json!({"priorityClassName": "low"}), json!({"priority": 7}), json!({"schedulingPolicy": {}})]
    {
        let mut group = json!({"metadata": {"name": "wrong"}, "spec": {"schedulingPolicy": {"basic": {}}}});
        for (field, value) in wrong.as_object().unwrap() {
            group["spec"][field] = value.clone();
        }
        let answer = client.post(&groups, &group).await.unwrap();
        assert!(matches!(answer.code, 403 | 422), "{wrong}: {}", answer.text());
    }
    let condition = json!({"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let path = format!("{ALPHA}/podgroups/g");
    let shown = accepts(client.get(&path).await).unwrap();
    let updated = status(&client, &path, &shown, &json!({"conditions": [condition]})).await;
    assert_eq!(updated["status"]["conditions"], json!([condition]));
    accepts(client.delete(&path).await).unwrap();
    let deleted = accepts(client.get(&path).await).unwrap();
    assert!(deleted["metadata"].get("deletionTimestamp").is_some());

    let composite = json!({"metadata": {"name": "c"}, "spec": {
        "workloadRef": {"workloadName": "w", "templateName": "t"}, "schedulingPolicy": {"gang": {"minGroupCount": 1}},
    }});
    let composites = format!("{ALPHA}/compositepodgroups");
    let created = accepts(client.post(&composites, &composite).await).unwrap();
    assert_eq!(
        (&created["spec"]["priority"], &created["spec"]["disruptionMode"]),
        (&json!(0), &json!({"single": {}}))
    );
    let orphan = json!({"metadata": {"name": "o"}, "spec": {"schedulingPolicy": {"basic": {}}}});
    rejects(client.post(&composites, &orphan).await, 422, "Invalid").unwrap();
    let path = format!("{composites}/c");
    status(&client, &path, &created, &json!({"conditions": [condition]})).await;
    accepts(client.delete(&path).await).unwrap();
    rejects(client.get(&format!("{SCHEDULING}/compositepodgroups")).await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn eviction_requests_and_evictions_are_served() {
    let server = Server::serve(&[GATES, VERSIONS]).await.unwrap();
    let client = server.client().unwrap();
    let target = json!({"pod": {"name": "p", "uid": UID}});

    let requests = format!("{LIFECYCLE}/evictionrequests");
    let request = json!({"metadata": {"name": "r"}, "spec": {"target": target, "requester": "drain.example/r", "intent": "Eviction"}});
    let created = accepts(client.post(&requests, &request).await).unwrap();
    assert_eq!(created["metadata"]["generation"], 1);
    let mut reserved = request.clone();
    reserved["metadata"]["name"] = json!("reserved");
    reserved["spec"]["requester"] = json!("drain.k8s.io/r");
    rejects(client.post(&requests, &reserved).await, 422, "Invalid").unwrap();
    let path = format!("{requests}/r");
    let mut withdrawn = created.clone();
    withdrawn["spec"]["intent"] = json!("Withdrawn");
    let withdrawn = accepts(client.json(Method::PUT, &path, &withdrawn).await).unwrap();
    assert_eq!(withdrawn["metadata"]["generation"], 2);
    status(&client, &path, &withdrawn, &json!({"observedGeneration": 2})).await;
    accepts(client.delete(&path).await).unwrap();

    let evictions = format!("{LIFECYCLE}/evictions");
    let eviction =
        json!({"metadata": {"name": "e"}, "spec": {"target": target}, "status": {"observedGeneration": 9}});
    let created = accepts(client.post(&evictions, &eviction).await).unwrap();
    assert_eq!(created["status"], json!({}));
    let path = format!("{evictions}/e");
    let mut moved = created.clone();
    moved["spec"]["target"]["pod"]["name"] = json!("q");
    rejects(client.json(Method::PUT, &path, &moved).await, 422, "Invalid").unwrap();
    let mut skipped = created.clone();
    skipped["status"] = json!({
        "targetResponders": [{"name": "a.example/x", "priority": 1000, "state": "Completed"}],
        "responders": [{"name": "a.example/x"}],
    });
    rejects(client.json(Method::PUT, &format!("{path}/status"), &skipped).await, 422, "Invalid").unwrap();
    let requesters = json!({"requesters": [{"name": "drain.example/r", "intent": "Eviction"}]});
    status(&client, &path, &created, &requesters).await;
    accepts(client.delete(&path).await).unwrap();
    rejects(client.get(&path).await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn stored_objects_of_a_feature_can_be_read_again_when_it_is_turned_on_again() {
    let folder = TempDir::new().unwrap();
    let workload = json!({"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [
        {"name": "t", "schedulingPolicy": {"basic": {}}, "schedulingConstraints": null},
    ]}});
    let path = format!("{SCHEDULING}/workloads");
    for (flags, expected) in [(&[GATES, VERSIONS][..], 201), (&[][..], 404), (&[GATES, VERSIONS][..], 200)] {
        let mut server = Server::serve_at(folder.path(), flags).await.unwrap();
        let client = server.client().unwrap();
        let answer = if expected == 201 {
            client.post(&path, &workload).await.unwrap()
        } else {
            client.get(&format!("{path}/w")).await.unwrap()
        };
        assert_eq!(answer.code, expected, "{}", answer.text());
        if expected == 200 {
            assert_eq!(answer.json()["spec"], workload["spec"]);
        }
        server.terminate().unwrap();
        server.wait(Duration::from_secs(20)).await.unwrap();
    }
}
