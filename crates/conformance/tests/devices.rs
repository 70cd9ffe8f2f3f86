//! Devices of `resource.k8s.io` over the wire: who may ask for admin access, and who may write which part of a claim's status.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);
const V1: &str = "/apis/resource.k8s.io/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn request(admin: bool) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    if admin {
        exactly["adminAccess"] = json!(true);
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

fn claim(name: &str, admin: bool) -> Value {
    json!({"metadata": {"name": name}, "spec": request(admin)})
}

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"spec": request(true)}})
}

async fn label(client: &Client, labels: Value) {
    let patch = json!({"metadata": {"labels": labels}});
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&patch).unwrap();
    accepts(client.send(Method::PATCH, "/api/v1/namespaces/default", &headers, body.into()).await).unwrap();
}

const REFUSED: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

#[tokio::test]
async fn admin_access_is_asked_for_in_labelled_namespaces_only() {
    let betas = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true";
    let server = Server::serve(&[betas]).await.unwrap();
    let client = server.client().unwrap();
    let old = json!({"metadata": {"name": "old"}, "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu", "adminAccess": true}]}}});
    let cases = [
        (format!("{V1}/resourceclaims"), claim("c", true)),
        (format!("{V1}/resourceclaimtemplates"), template("t")),
        ("/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims".to_owned(), old),
        ("/apis/resource.k8s.io/v1beta2/namespaces/default/resourceclaims".to_owned(), claim("newer", true)),
    ];
    for (path, object) in &cases {
        let status = rejects(client.post(path, object).await, 422, "Invalid").unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("spec.devices.requests[0].adminAccess: Forbidden: {REFUSED}")),
            "{message}"
        );
    }
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("plain", false)).await).unwrap();
    // A label with another value is none.
    label(&client, json!({"resource.kubernetes.io/admin-access": "false"})).await;
    rejects(client.post(&cases[0].0, &cases[0].1).await, 422, "Invalid").unwrap();
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    for (path, object) in &cases {
        let answer = client.post(path, object).await.unwrap();
        assert!(!answer.header("warning").contains("admin access"), "{path}");
        accepts(Ok(answer)).unwrap();
    }
    let stored = accepts(client.get(&format!("{V1}/resourceclaims/old")).await).unwrap();
    assert_eq!(stored["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"], true);
    // The label goes, and the next request meets that; the KEP's own label does it, too, with a word about it.
    label(&client, json!({"resource.kubernetes.io/admin-access": null})).await;
    rejects(client.post(&cases[0].0, &claim("late", true)).await, 422, "Invalid").unwrap();
    label(&client, json!({"kubernetes.io/dra-admin-access": "true"})).await;
    let answer = client.post(&cases[0].0, &claim("late", true)).await.unwrap();
    assert!(answer.header("warning").contains("use resource.kubernetes.io/admin-access instead"));
    accepts(Ok(answer)).unwrap();
    let metrics = client.get("/metrics").await.unwrap().text();
    assert!(
        metrics.contains("apiserver_device_admin_access_total{allowed=\"true\",kind=\"ResourceClaim\"} 4"),
        "{metrics}"
    );
}

fn allocated(admin: bool) -> Value {
    let mut result = json!({"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"});
    if admin {
        result["adminAccess"] = json!(true);
    }
    json!({"devices": {"results": [result]}})
}

/// Lets a user do something.
async fn grant(admin: &Client, user: &str, name: &str, rules: Value) {
    accepts(
        admin
            .post(&format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules}))
            .await,
    )
    .unwrap();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
}

fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs})
}

#[tokio::test]
async fn each_part_of_a_status_needs_its_own_right() {
    let server = Server::serve(&["--authorization-mode=RBAC"]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.post(&format!("{V1}/resourceclaims"), &claim("c", false)).await).unwrap();
    let alice = admin.as_token(Some("alicetoken"));
    grant(&admin, "alice", "status", json!([rule("resourceclaims/status", &["update", "get"])])).await;
    let path = format!("{V1}/resourceclaims/c/status");
    let with = async |change: &dyn Fn(&mut Value)| {
        let mut now = accepts(admin.get(&path).await).unwrap();
        change(&mut now);
        alice.json(Method::PUT, &path, &now).await
    };
    let allocate = |claim: &mut Value| claim["status"] = json!({"allocation": allocated(false)});
    let status = rejects(with(&allocate).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \"alice\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
    );
    grant(&admin, "alice", "bind", json!([rule("resourceclaims/binding", &["update"])])).await;
    accepts(with(&allocate).await).unwrap();

    // What is said about a device is its driver's.
    let describe = |claim: &mut Value| {
        claim["status"]["devices"] =
            json!([{"driver": "gpu.example.com", "pool": "p", "device": "d", "conditions": []}]);
    };
    let status = rejects(with(&describe).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:update]\" permission: resourceclaims.resource.k8s.io \"gpu.example.com\" is forbidden: User \"alice\" cannot arbitrary-node:update resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\""
    );
    let mut driver = rule("resourceclaims/driver", &["arbitrary-node:update"]);
    driver["resourceNames"] = json!(["gpu.example.com"]);
    grant(&admin, "alice", "driver", json!([driver])).await;
    accepts(with(&describe).await).unwrap();
    // An update that touches neither needs neither.
    accepts(with(&|_| ()).await).unwrap();
    // The first result with admin access needs the label, whoever writes it.
    let mut now = accepts(admin.get(&path).await).unwrap();
    now["status"] = json!({});
    accepts(admin.json(Method::PUT, &path, &now).await).unwrap();
    let mut now = accepts(admin.get(&path).await).unwrap();
    now["status"] = json!({"allocation": allocated(true)});
    let status = rejects(admin.json(Method::PUT, &path, &now).await, 422, "Invalid").unwrap();
    let words = format!("status.allocation.devices.results[0].adminAccess: Forbidden: {REFUSED}");
    assert!(status["message"].as_str().unwrap().contains(&words), "{status}");
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node with one device.
async fn node(client: &Client, name: &str) {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    let node =
        json!({"metadata": {"name": name}, "status": {"allocatable": resources, "capacity": resources}});
    accepts(client.post("/api/v1/nodes", &node).await).unwrap();
    // A new node is not ready; nobody else takes that mark off here.
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&json!({"spec": {"taints": null}})).unwrap();
    accepts(client.send(Method::PATCH, &format!("/api/v1/nodes/{name}"), &headers, body.into()).await)
        .unwrap();
    let slice = json!({"metadata": {"name": name}, "spec": {
        "driver": "gpu.example.com", "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}]}});
    accepts(client.post("/apis/resource.k8s.io/v1/resourceslices", &slice).await).unwrap();
}

fn pod(name: &str, source: &Value) -> Value {
    let mut claim = source.clone();
    claim["name"] = json!("gpu");
    json!({"metadata": {"name": name}, "spec": {"resourceClaims": [claim],
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]}})
}

/// Waits until a pod has a node, or says why it has none.
async fn placed(client: &Client, name: &str) -> Result<String, String> {
    let outcome = eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/{name}")).await)?;
        if let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str) {
            return Ok(Ok(node.to_owned()));
        }
        let conditions =
            pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let said = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
        let message = said.and_then(|one| one["message"].as_str()).unwrap_or_default().to_owned();
        if message.contains("nodes are available") {
            Ok(Err(message))
        } else {
            Err(Problem::new(pod.to_string()))
        }
    });
    outcome.await.unwrap()
}

async fn allocation(client: &Client, pod: &str) -> Value {
    let pod = accepts(client.get(&format!("{PODS}/{pod}")).await).unwrap();
    let made =
        pod.pointer("/status/resourceClaimStatuses/0/resourceClaimName").and_then(Value::as_str).unwrap();
    accepts(client.get(&format!("{V1}/resourceclaims/{made}")).await).unwrap()
}

#[tokio::test]
async fn pods_get_claims_devices_and_nodes_and_admin_access_shares_what_is_in_use() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    node(&client, "one").await;
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"spec": request(false)}});
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &plain).await).unwrap();
    let from = |template: &str| json!({"resourceClaimTemplateName": template});

    accepts(client.post(PODS, &pod("first", &from("plain"))).await).unwrap();
    assert_eq!(placed(&client, "first").await, Ok("one".to_owned()));
    let claim = allocation(&client, "first").await;
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/device"), Some(&json!("gpu-0")));
    assert_eq!(claim.pointer("/status/reservedFor/0/name"), Some(&json!("first")));
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "first");
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");

    // The only device is taken; the second pod waits and says so.
    accepts(client.post(PODS, &pod("second", &from("plain"))).await).unwrap();
    assert_eq!(
        placed(&client, "second").await,
        Err("0/1 nodes are available: 1 cannot allocate all claims.".to_owned())
    );
    // Somebody with admin access gets it all the same, and is marked.
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &template("admin")).await).unwrap();
    accepts(client.post(PODS, &pod("monitor", &from("admin"))).await).unwrap();
    assert_eq!(placed(&client, "monitor").await, Ok("one".to_owned()));
    let claim = allocation(&client, "monitor").await;
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/device"), Some(&json!("gpu-0")));
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/adminAccess"), Some(&json!(true)));
    // Another node, and the second pod goes there.
    node(&client, "two").await;
    eventually(SOON, async || match placed(&client, "second").await {
        Ok(node) if node == "two" => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    // A pod that ends gives its device back, and its claim goes.
    let claim = allocation(&client, "first").await["metadata"]["name"].as_str().unwrap().to_owned();
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&json!({"status": {"phase": "Succeeded"}})).unwrap();
    accepts(client.send(Method::PATCH, &format!("{PODS}/first/status"), &headers, body.into()).await)
        .unwrap();
    eventually(SOON, async || {
        rejects(client.get(&format!("{V1}/resourceclaims/{claim}")).await, 404, "NotFound")
    })
    .await
    .unwrap();
    accepts(client.post(PODS, &pod("third", &from("plain"))).await).unwrap();
    assert_eq!(placed(&client, "third").await, Ok("one".to_owned()));

    // The label is gone when a template is to become a claim: it is checked again.
    label(&client, json!({"resource.kubernetes.io/admin-access": null})).await;
    accepts(client.post(PODS, &pod("late", &from("admin"))).await).unwrap();
    let said = eventually(SOON, async || {
        let events = accepts(client.get("/api/v1/namespaces/default/events").await)?;
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|event| event["reason"] == "FailedResourceClaimCreation");
        found.cloned().ok_or_else(|| Problem::new(events.to_string()))
    })
    .await
    .unwrap();
    assert!(said["message"].as_str().unwrap().contains(REFUSED), "{said}");
}

#[tokio::test]
async fn a_shared_claim_is_reserved_for_each_of_its_pods_and_kept_while_one_runs() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    accepts(
        client
            .post("/apis/resource.k8s.io/v1/deviceclasses", &json!({"metadata": {"name": "gpu"}, "spec": {}}))
            .await,
    )
    .unwrap();
    node(&client, "one").await;
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("shared", false)).await).unwrap();
    for name in ["a", "b"] {
        accepts(client.post(PODS, &pod(name, &json!({"resourceClaimName": "shared"}))).await).unwrap();
        assert_eq!(placed(&client, name).await, Ok("one".to_owned()));
    }
    let path = format!("{V1}/resourceclaims/shared");
    let reserved = async || -> Result<Vec<String>, Problem> {
        let claim = accepts(client.get(&path).await)?;
        let all = claim.pointer("/status/reservedFor").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect())
    };
    assert_eq!(reserved().await.unwrap(), ["a", "b"]);
    let gone = async |pod: &str, left: &[&str]| {
        let path = format!("{PODS}/{pod}?gracePeriodSeconds=0");
        accepts(client.delete(&path).await).unwrap();
        eventually(SOON, async || {
            let now = reserved().await?;
            if now == left { Ok(()) } else { Err(Problem::new(format!("{now:?}"))) }
        })
        .await
        .unwrap();
    };
    gone("a", &["b"]).await;
    assert!(accepts(client.get(&path).await).unwrap().pointer("/status/allocation").is_some());
    gone("b", &[]).await;
    // Nobody uses it: the devices are free again, the claim stays.
    eventually(SOON, async || {
        let claim = accepts(client.get(&path).await)?;
        let held =
            claim.pointer("/status/allocation").is_some() || claim.pointer("/metadata/finalizers").is_some();
        if held { Err(Problem::new(claim.to_string())) } else { Ok(()) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_the_gate_the_field_is_dropped_kept_where_it_is_stored_and_never_allocated() {
    let folder = TempDir::new().unwrap();
    let emulated = "--emulated-version=1.35";
    let off = [emulated, "--feature-gates=DRAAdminAccess=false", "--enable-scheduler"];
    let on = ["--enable-scheduler"];
    let claims = format!("{V1}/resourceclaims");
    let access = |claim: &Value| claim.pointer("/spec/devices/requests/0/exactly/adminAccess").cloned();
    // On: what is stored has the field. The pods of it wait, because there is no node.
    let mut server = Server::serve_at(folder.path(), &on).await.unwrap();
    let client = server.client().unwrap();
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    accepts(client.post(&claims, &claim("kept", true)).await).unwrap();
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &template("kept")).await).unwrap();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    server.terminate().unwrap();
    server.wait(SOON).await.unwrap();

    // Off: new objects lose it, in any namespace; what has it keeps it; nobody allocates it.
    let mut server = Server::serve_at(folder.path(), &off).await.unwrap();
    let client = server.client().unwrap();
    let version = accepts(client.get("/version").await).unwrap();
    assert_eq!((&version["minor"], &version["emulationMinor"]), (&json!("37"), &json!("35")));
    let dropped = accepts(client.post(&claims, &claim("dropped", true)).await).unwrap();
    assert_eq!(access(&dropped), None);
    let mut kept = accepts(client.get(&format!("{claims}/kept")).await).unwrap();
    kept["metadata"]["labels"] = json!({"a": "b"});
    let kept = accepts(client.json(Method::PUT, &format!("{claims}/kept"), &kept).await).unwrap();
    assert_eq!(access(&kept), Some(json!(true)));
    node(&client, "one").await;
    accepts(client.post(PODS, &pod("direct", &json!({"resourceClaimName": "kept"}))).await).unwrap();
    accepts(client.post(PODS, &pod("made", &json!({"resourceClaimTemplateName": "kept"}))).await).unwrap();
    let why = eventually(SOON, async || {
        let pod = accepts(client.get(&format!("{PODS}/direct")).await)?;
        let said = pod.pointer("/status/conditions/0/message").and_then(Value::as_str).map(str::to_owned);
        said.ok_or_else(|| Problem::new(pod.to_string()))
    })
    .await
    .unwrap();
    assert_eq!(why, "claim default/kept, request r: admin access is requested, but the feature is disabled");
    let event = eventually(SOON, async || {
        let events = accepts(client.get("/api/v1/namespaces/default/events").await)?;
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|event| event["reason"] == "FailedResourceClaimCreation");
        found.cloned().ok_or_else(|| Problem::new(events.to_string()))
    })
    .await
    .unwrap();
    assert_eq!(
        event["message"],
        "PodResourceClaim gpu: admin access is requested, but the feature is disabled"
    );
    server.terminate().unwrap();
    server.wait(SOON).await.unwrap();

    // On again: both go on.
    let server = Server::serve_at(folder.path(), &on).await.unwrap();
    let client = server.client().unwrap();
    for name in ["direct", "made"] {
        assert_eq!(placed(&client, name).await, Ok("one".to_owned()));
    }
}
