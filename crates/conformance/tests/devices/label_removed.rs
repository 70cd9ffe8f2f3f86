//! A namespace loses the label for admin access: waiting pods report it once, and are scheduled when the label is back.

use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::{Value, json};

use crate::claims::{
    PODS, REFUSED, SOON, V1, allocation, claim, label, node, pod, request, template, wait_for_node,
};

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// The condition of an unscheduled pod, once its message contains these words.
async fn condition(client: &Client, name: &str, words: &str) -> Value {
    eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/{name}")).await)?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.iter().find(|one| {
            one["type"] == "PodScheduled" && one["message"].as_str().is_some_and(|said| said.contains(words))
        });
        said.cloned().ok_or_else(|| Problem::new(pod.to_string()))
    })
    .await
    .unwrap()
}

/// The events about a pod, as reason and message.
async fn events(client: &Client, name: &str) -> Vec<(String, String)> {
    let events = accepts(client.get("/api/v1/namespaces/default/events").await).unwrap();
    let about = events["items"].as_array().unwrap().iter().filter(|e| e["involvedObject"]["name"] == name);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    about.map(|event| (text(event, "reason"), text(event, "message"))).collect()
}

async fn metric(client: &Client, series: &str) -> u64 {
    let page = client.get("/metrics").await.unwrap().text();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    line.unwrap_or(0)
}

async fn server_with_a_device_in_use() -> Server {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    node(&client, "one").await;
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"spec": request(false)}});
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &plain).await).unwrap();
    accepts(client.post(PODS, &pod("user", &json!({"resourceClaimTemplateName": "plain"}))).await).unwrap();
    assert_eq!(wait_for_node(&client, "user").await, Ok("one".to_owned()));
    server
}

#[tokio::test]
async fn a_pod_whose_admin_claim_cannot_be_allocated_reports_it_once() {
    let server = server_with_a_device_in_use().await;
    let client = server.client().unwrap();
    label(&client, json!({LABEL: "true"})).await;
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("look", true)).await).unwrap();
    label(&client, json!({LABEL: null})).await;

    accepts(client.post(PODS, &pod("monitor", &json!({"resourceClaimName": "look"}))).await).unwrap();
    let said = condition(&client, "monitor", REFUSED).await;
    assert_eq!(said["status"], "False");
    assert_eq!(said["reason"], "Unschedulable");
    assert_eq!(said["message"], format!("resourceclaim \"look\": {REFUSED}"));
    // Unrelated changes cause new attempts, but no new event, count or rejection.
    for name in ["two", "three", "four"] {
        node(&client, name).await;
    }
    condition(&client, "monitor", REFUSED).await;
    let about = events(&client, "monitor").await;
    assert_eq!(about, [("FailedScheduling".to_owned(), format!("resourceclaim \"look\": {REFUSED}"))]);
    let counted = "apiserver_device_admin_access_total";
    assert_eq!(metric(&client, &format!("{counted}{{allowed=\"true\",kind=\"ResourceClaim\"}}")).await, 1);
    assert_eq!(metric(&client, &format!("{counted}{{allowed=\"false\",kind=\"ResourceClaim\"}}")).await, 0);

    // With the label back, the pod is scheduled.
    label(&client, json!({LABEL: "true"})).await;
    eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/monitor")).await)?;
        if pod["spec"]["nodeName"].is_string() { Ok(()) } else { Err(Problem::new(pod.to_string())) }
    })
    .await
    .unwrap();
    // A status update is not counted as another object.
    assert_eq!(metric(&client, &format!("{counted}{{allowed=\"true\",kind=\"ResourceClaim\"}}")).await, 1);
    // An allocated claim keeps its devices: a second pod may share it without the label.
    label(&client, json!({LABEL: null})).await;
    accepts(client.post(PODS, &pod("second", &json!({"resourceClaimName": "look"}))).await).unwrap();
    wait_for_node(&client, "second").await.unwrap();
}

#[tokio::test]
async fn a_pod_whose_template_may_not_create_an_admin_claim_reports_it_once() {
    let server = server_with_a_device_in_use().await;
    let client = server.client().unwrap();
    label(&client, json!({LABEL: "true"})).await;
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &template("admin")).await).unwrap();
    label(&client, json!({LABEL: null})).await;
    accepts(client.post(PODS, &pod("monitor", &json!({"resourceClaimTemplateName": "admin"}))).await)
        .unwrap();
    let failed = |events: &[(String, String)]| -> Vec<String> {
        let failed = events.iter().filter(|(reason, _)| reason == "FailedResourceClaimCreation");
        failed.map(|(_, message)| message.clone()).collect()
    };
    let words = format!("PodResourceClaim gpu: resource claim template \"admin\": {REFUSED}");
    eventually(SOON, async || {
        let about = failed(&events(&client, "monitor").await);
        if about == [words.clone()] { Ok(()) } else { Err(Problem::new(format!("{about:?}"))) }
    })
    .await
    .unwrap();
    condition(&client, "monitor", "waiting for resource claim of \"gpu\" to be created").await;
    // No write was rejected, because none was attempted.
    let refused = "apiserver_device_admin_access_total{allowed=\"false\",kind=\"ResourceClaim\"}";
    assert_eq!(metric(&client, refused).await, 0);
    let made = "resourceclaim_controller_creates_total{admin_access=\"true\",status=\"success\"}";
    assert_eq!(metric(&client, made).await, 0);

    label(&client, json!({LABEL: "true"})).await;
    eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/monitor")).await)?;
        if pod["spec"]["nodeName"].is_string() { Ok(()) } else { Err(Problem::new(pod.to_string())) }
    })
    .await
    .unwrap();
    let claim = allocation(&client, "monitor").await;
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/adminAccess"), Some(&json!(true)));
    assert_eq!(failed(&events(&client, "monitor").await), [words]);
    assert_eq!(metric(&client, made).await, 1);
}

#[tokio::test]
async fn a_pod_whose_allocation_a_policy_denies_reports_it_once() {
    let server = server_with_a_device_in_use().await;
    let client = server.client().unwrap();
    node(&client, "two").await;
    let policy = json!({"metadata": {"name": "frozen"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["resourceclaims/status"]}]},
        "validations": [{"expression": "false", "message": "allocations are frozen"}]}});
    let path = "/apis/admissionregistration.k8s.io/v1";
    accepts(client.post(&format!("{path}/validatingadmissionpolicies"), &policy).await).unwrap();
    let binding = json!({"metadata": {"name": "frozen"}, "spec": {"policyName": "frozen", "validationActions": ["Deny"]}});
    let bindings = format!("{path}/validatingadmissionpolicybindings");
    accepts(client.post(&bindings, &binding).await).unwrap();
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("mine", false)).await).unwrap();
    accepts(client.post(PODS, &pod("waits", &json!({"resourceClaimName": "mine"}))).await).unwrap();
    let said = condition(&client, "waits", "allocations are frozen").await;
    assert_eq!(said["reason"], "SchedulerError");
    assert!(said["message"].as_str().unwrap().starts_with("cannot be assigned to node two: "), "{said}");
    eventually(SOON, async || {
        let about = events(&client, "waits").await;
        match about.as_slice() {
            [(reason, message)] if reason == "FailedScheduling" && message.contains("frozen") => Ok(()),
            other => Err(Problem::new(format!("{other:?}"))),
        }
    })
    .await
    .unwrap();
    accepts(client.delete(&format!("{bindings}/frozen")).await).unwrap();
    eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/waits")).await)?;
        if pod["spec"]["nodeName"] == "two" { Ok(()) } else { Err(Problem::new(pod.to_string())) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn claim_metrics_count_allocated_claims_and_scheduled_pods_get_an_event() {
    let server = server_with_a_device_in_use().await;
    let client = server.client().unwrap();
    let scheduled = ("Scheduled".to_owned(), "Successfully assigned default/user to one".to_owned());
    eventually(SOON, async || {
        let about = events(&client, "user").await;
        if about.contains(&scheduled) { Ok(()) } else { Err(Problem::new(format!("{about:?}"))) }
    })
    .await
    .unwrap();
    label(&client, json!({LABEL: "true"})).await;
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("look", true)).await).unwrap();
    let wait_for_claim_metrics = async |wanted: &[(&str, u64)]| {
        eventually(SOON, async || {
            for name in
                ["resourceclaim_controller_resource_claims", "dynamic_resource_allocation_resource_claims"]
            {
                for (labels, wanted) in wanted {
                    let counted = metric(&client, &format!("{name}{{{labels}}}")).await;
                    if counted != *wanted {
                        return Err(Problem::new(format!("{name}{{{labels}}}: {counted}, not {wanted}")));
                    }
                }
            }
            Ok(())
        })
        .await
        .unwrap();
    };
    let made = "admin_access=\"false\",allocated=\"true\",source=\"resource_claim_template\"";
    let by_hand = "admin_access=\"true\",allocated=\"false\",source=\"\"";
    let allocated = "admin_access=\"true\",allocated=\"true\",source=\"\"";
    wait_for_claim_metrics(&[(made, 1), (by_hand, 1), (allocated, 0)]).await;
    accepts(client.post(PODS, &pod("monitor", &json!({"resourceClaimName": "look"}))).await).unwrap();
    wait_for_node(&client, "monitor").await.unwrap();
    wait_for_claim_metrics(&[(made, 1), (by_hand, 0), (allocated, 1)]).await;
    accepts(client.delete(&format!("{PODS}/user?gracePeriodSeconds=0")).await).unwrap();
    wait_for_claim_metrics(&[(made, 0), (by_hand, 0), (allocated, 1)]).await;
    for series in [
        "resourceclaim_controller_creates_total{admin_access=\"false\",status=\"success\"}",
        "resourceclaim_controller_create_attempts_total",
        "dynamic_resource_allocation_resourceclaim_creates_total{admin_access=\"false\",owner_api_group=\"\",owner_api_kind=\"Pod\",status=\"success\"}",
    ] {
        assert_eq!(metric(&client, series).await, 1, "{series}");
    }
    assert_eq!(metric(&client, "resourceclaim_controller_create_failures_total").await, 0);
}
