//! Selectors of claims, which the scheduler evaluates for every device, have a bounded cost.

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::callers::SOON;
use crate::heavy_lane::lane_requests;

const DEVICES: &str = "/apis/resource.k8s.io/v1";

async fn create_node_and_devices(admin: &Client) {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "100"});
    let node =
        json!({"metadata": {"name": "n"}, "status": {"allocatable": resources, "capacity": resources}});
    accepts(admin.post("/api/v1/nodes", &node).await).unwrap();
    // A new node has the not-ready taint; no node controller removes it here.
    let headers = [("content-type", "application/merge-patch+json")];
    let ready = json!({"spec": {"taints": null}}).to_string();
    accepts(admin.send(Method::PATCH, "/api/v1/nodes/n", &headers, ready.into()).await).unwrap();
    accepts(
        admin
            .post(&format!("{DEVICES}/deviceclasses"), &json!({"metadata": {"name": "gpu"}, "spec": {}}))
            .await,
    )
    .unwrap();
    let devices: Vec<Value> = (0..16).map(|number| json!({"name": format!("gpu-{number}")})).collect();
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
    accepts(admin.post(&format!("{DEVICES}/resourceslices"), &slice).await).unwrap();
    accepts(admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await).unwrap();
}

/// A pod in a namespace whose claim has these selectors.
async fn create(admin: &Client, namespace: &str, name: &str, selectors: &[String]) {
    let selectors: Vec<Value> =
        selectors.iter().map(|expression| json!({"cel": {"expression": expression}})).collect();
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}]}}});
    let claims = format!("{DEVICES}/namespaces/{namespace}/resourceclaims");
    accepts(admin.post(&claims, &claim).await).unwrap();
    let pod = json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "x"}]}}],
        "resourceClaims": [{"name": "x", "resourceClaimName": name}]}});
    accepts(admin.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await).unwrap();
}

/// The node of a pod, or the reason why it has none.
async fn wait_for_scheduling(admin: &Client, namespace: &str, name: &str) -> Result<String, String> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    eventually(SOON * 4, async || {
        let pod = accepts(admin.get(&path).await)?;
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            return Ok(Ok(node.to_owned()));
        }
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
        let said = said.and_then(|one| one["message"].as_str()).unwrap_or_default();
        // The claim may be created after the pod.
        match said {
            "" => Err(Problem::new("nothing was decided")),
            said => Ok(Err(said.to_owned())),
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn expensive_selectors_fail_without_delaying_other_pods() {
    let server =
        Server::serve(&["--enable-scheduler", "--disable-admission-plugins=ServiceAccount"]).await.unwrap();
    let admin = server.client().unwrap();
    create_node_and_devices(&admin).await;
    let ordinary = ["device.driver == 'gpu.example.com'".to_owned()];
    create(&admin, "default", "ordinary", &ordinary).await;
    assert_eq!(wait_for_scheduling(&admin, "default", "ordinary").await, Ok("n".to_owned()));

    // Each selector is within its limit; all of them for all devices are not. The last one selects no device.
    let items = vec!["1"; 120].join(",");
    let mut costly: Vec<String> =
        (0..16).map(|number| format!("[{items}].all(x, [{items}].all(y, x + y > -{number}))")).collect();
    costly.push("device.driver == 'none'".to_owned());
    create(&admin, "default", "allowed", &costly[15..]).await;
    let why = wait_for_scheduling(&admin, "default", "allowed").await.unwrap_err();
    assert_eq!(why, "0/1 nodes are available: 1 cannot allocate all claims.");
    create(&admin, "default", "too-costly", &costly).await;
    let why = wait_for_scheduling(&admin, "default", "too-costly").await.unwrap_err();
    assert!(why.contains("costs too much"), "{why}");
    eventually(SOON, async || {
        let events = accepts(admin.get("/api/v1/namespaces/default/events").await)?;
        let has_event = events["items"].as_array().is_some_and(|events| {
            events.iter().any(|event| {
                event["reason"] == "FailedScheduling"
                    && event["message"].as_str().is_some_and(|message| message.contains("costs too much"))
            })
        });
        if has_event { Ok(()) } else { Err(Problem::new(format!("no event: {events}"))) }
    })
    .await
    .unwrap();

    // Claims of other namespaces are allocated, and pods without claims are scheduled.
    create(&admin, "other", "ordinary", &ordinary).await;
    assert_eq!(wait_for_scheduling(&admin, "other", "ordinary").await, Ok("n".to_owned()));
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    accepts(admin.post("/api/v1/namespaces/default/pods", &plain).await).unwrap();
    assert_eq!(wait_for_scheduling(&admin, "default", "plain").await, Ok("n".to_owned()));
}

/// A claim with selectors, each of which is a chain of macros that double the tree.
fn doubling(links: usize, selectors: usize) -> Value {
    let selectors: Vec<Value> = (0..selectors)
        .map(|number| {
            let expression = format!("optional.of({number}){}.hasValue()", ".optMap(a,a)".repeat(links));
            json!({"cel": {"expression": expression}})
        })
        .collect();
    json!({"metadata": {"name": "doubling"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}]}}})
}

#[tokio::test]
async fn short_selectors_that_expand_to_large_trees_are_compiled_on_the_heavy_lane_or_refused() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let claims = format!("{DEVICES}/namespaces/default/resourceclaims?dryRun=All");
    for (links, selectors, in_lane) in [(2, 1, false), (8, 6, true)] {
        let claim = doubling(links, selectors);
        assert!(claim.to_string().len() < 2048, "larger claims run there anyway");
        let before = lane_requests(&admin).await;
        accepts(admin.post(&claims, &claim).await).unwrap();
        assert_eq!(lane_requests(&admin).await > before, in_lane, "{links} links, {selectors} selectors");
    }
    let refused = rejects(admin.post(&claims, &doubling(14, 6)).await, 422, "Invalid").unwrap();
    assert!(refused.to_string().contains("too large once its macros are expanded"), "{refused}");
}
