//! Large work that a small request causes runs on the heavy lane: deletions of large objects, requests and reads of controllers, and
//! comparisons of large roles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conformance::webhook::{ReviewCall, ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::callers::metric;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
/// More reads of a CRD than those of the garbage collector, which are five.
const MANY_READS: f64 = 7.0;
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of requests that ran on the lane.
pub(crate) async fn lane_requests(client: &Client) -> u64 {
    let metrics = client.get("/metrics").await.unwrap().text();
    let line = metrics.lines().find(|line| line.starts_with("portcullis_large_requests_total ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn deletions_of_large_objects_run_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    for (name, size, is_large) in [("large", 200_000, true), ("small", 10, false)] {
        accepts(
            client.post(maps, &json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}})).await,
        )
        .unwrap();
        let before = lane_requests(&client).await;
        accepts(client.delete(&format!("{maps}/{name}")).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, is_large, "{name}");
    }
}

#[tokio::test]
async fn requests_of_the_server_itself_run_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let crd = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": text}}],
        },
    });
    accepts(client.post(CRDS, &crd).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(THINGS).await)).await.unwrap();
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "large"},
        "text": "x".repeat(200_000)});
    accepts(client.post(THINGS, &thing).await).unwrap();
    let before = lane_requests(&client).await;
    // The server itself deletes the custom resources.
    let path = format!("{CRDS}/things.example.com");
    accepts(client.delete(&path).await).unwrap();
    let is_gone = async || match client.get(&path).await?.code {
        404 => Ok(()),
        code => Err(Problem::new(format!("the CRD is still there: {code}"))),
    };
    eventually(PATIENCE, is_gone).await.unwrap();
    assert!(lane_requests(&client).await > before);
}

#[tokio::test]
async fn controllers_read_large_objects_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let default = "/api/v1/namespaces/default";
    eventually(PATIENCE, async || accepts(client.get(&format!("{default}/serviceaccounts/default")).await))
        .await
        .unwrap();
    let large = json!({"a": "x".repeat(200_000)});
    let map = json!({"metadata": {"name": "large", "annotations": {}}, "data": large});
    let mut env = large_pod();
    env["metadata"] = json!({"name": "large"});
    let reads = async || metric(&client, "portcullis_large_background_tasks_total", "").await.unwrap();
    // The garbage collector reads every object, and further controllers read pods.
    for (path, object, readers) in [("configmaps", map, 1.0), ("pods", env, 2.0)] {
        let before = reads().await;
        accepts(client.post(&format!("{default}/{path}"), &object).await).unwrap();
        eventually(PATIENCE, async || match reads().await - before {
            more if more >= readers => Ok(()),
            more => Err(Problem::new(format!("{path}: {more} reads used the lane"))),
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn large_answers_of_admission_webhooks_are_read_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |call: &ReviewCall| {
        let is_large = call.review["request"]["name"] == "large";
        let padding = "x".repeat(if is_large { 200_000 } else { 1_000 });
        ReviewReply::Response(json!({"allowed": true, "auditAnnotations": {"padding": padding}}))
    });
    let webhook = webhook.await.unwrap();
    let configuration = json!({"metadata": {"name": "padding"}, "webhooks": [{
        "name": "padding.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle}}]});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(client.post(webhooks, &configuration).await).unwrap();
    for (name, is_large) in [("small", false), ("large", true)] {
        let before = lane_requests(&client).await;
        let map = json!({"metadata": {"name": name}});
        accepts(client.post("/api/v1/namespaces/default/configmaps", &map).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, is_large, "{name}");
    }
    assert_eq!(webhook.take_calls().len(), 2);
}

#[tokio::test]
async fn large_crds_are_read_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let reads = async || metric(&client, "portcullis_large_background_tasks_total", "").await.unwrap();
    for (plural, description, is_large) in [("smalls", 10, false), ("larges", 200_000, true)] {
        let crd = json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": plural, "kind": plural, "listKind": format!("{plural}list"), "singular": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "description": "x".repeat(description)}}}],
            },
        });
        let before = reads().await;
        accepts(client.post(CRDS, &crd).await).unwrap();
        let path = format!("/apis/example.com/v1/namespaces/default/{plural}");
        eventually(PATIENCE, async || accepts(client.get(&path).await)).await.unwrap();
        // The garbage collector reads each change, and so do the informer of CRDs and the task that writes their status.
        let many = async || match reads().await - before {
            more if more >= MANY_READS => Ok(()),
            more => Err(Problem::new(format!("{plural}: {more} reads used the lane"))),
        };
        if is_large {
            eventually(PATIENCE, many).await.unwrap();
        } else {
            many().await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn deletions_of_many_small_objects_run_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    for i in 0..110 {
        let labels = if i < 3 { json!({"few": "f"}) } else { json!({}) };
        let map = json!({"metadata": {"name": format!("m{i}"), "labels": labels}});
        accepts(client.post(maps, &map).await).unwrap();
    }
    for (selector, is_large) in [("labelSelector=few", false), ("labelSelector=%21other", true)] {
        let before = lane_requests(&client).await;
        accepts(client.delete(&format!("{maps}?dryRun=All&{selector}")).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, is_large, "{selector}");
    }
}

#[tokio::test]
async fn pods_that_a_service_account_enlarges_are_admitted_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let secrets = |count: usize, length: usize| -> Value {
        (0..count).map(|_| json!({"name": "s".repeat(length)})).collect()
    };
    // The account `half` is not large, but with its content the pod is.
    for (name, count, pod_size, is_large) in
        [("small", 1, 40_000, false), ("large", 1_500, 0, true), ("half", 800, 40_000, true)]
    {
        let account = json!({"metadata": {"name": name}, "imagePullSecrets": secrets(count, 40)});
        accepts(client.post("/api/v1/namespaces/default/serviceaccounts", &account).await).unwrap();
        let pod = json!({"metadata": {"name": name, "annotations": {"a": "x".repeat(pod_size)}},
            "spec": {"serviceAccountName": name, "containers": [{"name": "c", "image": "i"}]}});
        let before = lane_requests(&client).await;
        accepts(client.post("/api/v1/namespaces/default/pods", &pod).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, is_large, "{name}");
    }
}

#[tokio::test]
async fn large_selectors_over_many_objects_are_evaluated_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    for i in 0..300 {
        accepts(client.post(maps, &json!({"metadata": {"name": format!("m{i}")}})).await).unwrap();
    }
    for (requirements, is_large) in [(1000, true), (1, false)] {
        let selector = vec!["%21k"; requirements].join("%2C");
        let before = lane_requests(&client).await;
        accepts(client.get(&format!("{maps}?labelSelector={selector}")).await).unwrap();
        assert_eq!(lane_requests(&client).await > before, is_large, "{requirements} requirements");
    }
}

/// RBAC rules for `count` resources.
fn rules(count: usize) -> Value {
    (0..count)
        .map(|i| json!({"apiGroups": ["example.com"], "resources": [format!("r{i}")], "verbs": ["get"]}))
        .collect()
}

#[tokio::test]
async fn rules_of_large_roles_are_compared_only_with_overlapping_rules() {
    const MANY: usize = 12_000;
    let server = Server::serve(&["--authorization-mode=RBAC"]).await.unwrap();
    let (client, alice) = (server.client().unwrap(), server.client().unwrap().as_token(Some("alicetoken")));
    let writes = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
        "verbs": ["create"]}]);
    for (name, rules) in [("large", rules(MANY)), ("writes", writes)] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        accepts(client.post(&format!("{RBAC}/clusterroles"), &role).await).unwrap();
        let binding = json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": "alice"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
        accepts(client.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
    }
    let before = lane_requests(&client).await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "large"}});
    accepts(alice.post(&bindings, &binding).await).unwrap();
    assert!(lane_requests(&client).await > before, "a small binding to a large role");

    let roles = format!("{RBAC}/namespaces/default/roles");
    accepts(alice.post(&roles, &json!({"metadata": {"name": "same"}, "rules": rules(MANY)})).await).unwrap();
    let more = json!({"metadata": {"name": "more"}, "rules": rules(MANY + 1)});
    let status = rejects(alice.post(&roles, &more).await, 403, "Forbidden").unwrap();
    let message = status["message"].as_str().unwrap();
    let missing = format!("{{APIGroups:[\"example.com\"], Resources:[\"r{MANY}\"], Verbs:[\"get\"]}}");
    assert!(message.ends_with(&format!("not currently held:\n{missing}")), "{message}");
}

/// A pod of some hundred kilobytes, which takes long to validate.
fn large_pod() -> Value {
    pod_with_variables(4000)
}

fn pod_with_variables(count: usize) -> Value {
    let env: Value =
        (0..count).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": "a value"})).collect();
    json!({"metadata": {"generateName": "large-"}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}})
}

/// Allows all users to create pods.
async fn allow_pods(admin: &Client) {
    let role = json!({"metadata": {"name": "pods"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]});
    accepts(admin.post(&format!("{RBAC}/clusterroles"), &role).await).unwrap();
    let binding = json!({"metadata": {"name": "pods"},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pods"}});
    accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
}

#[tokio::test]
async fn large_requests_of_one_user_do_not_precede_those_of_another() {
    const MANY: usize = 16;
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    allow_pods(&admin).await;
    let (alice, bob) = (admin.as_token(Some("alicetoken")), admin.as_token(Some("bobtoken")));
    let pod = large_pod();
    // The service account of the pod must exist, too.
    eventually(PATIENCE, async || accepts(bob.post(pods, &pod).await)).await.unwrap();

    let answered = Arc::new(AtomicUsize::new(0));
    let mut requests = JoinSet::new();
    for _ in 0..MANY {
        let (alice, pod, answered) = (alice.as_token(alice.token()), pod.clone(), Arc::clone(&answered));
        requests.spawn(async move {
            let answer = accepts(alice.post(pods, &pod).await);
            answered.fetch_add(1, Ordering::SeqCst);
            answer.map(drop)
        });
    }
    // Bodies are charged until their requests end.
    let size = pod.to_string().len();
    eventually(PATIENCE, async || {
        let held = metric(&admin, "apiserver_request_body_bytes", "").await.unwrap_or(0.0);
        let left = MANY - answered.load(Ordering::SeqCst);
        #[expect(clippy::cast_precision_loss, reason = "megabytes")]
        let wanted = (left * size) as f64;
        if held >= wanted {
            Ok(())
        } else {
            Err(Problem::new(format!("{held} bytes of {left} bodies arrived")))
        }
    })
    .await
    .unwrap();
    let before = answered.load(Ordering::SeqCst);
    assert!(MANY - before >= 10, "only {} requests are left to compete with", MANY - before);
    accepts(bob.post(pods, &pod).await).unwrap();
    let meanwhile = answered.load(Ordering::SeqCst) - before;
    // Two were in the lane, and others followed while bob's body arrived.
    assert!(meanwhile <= 6, "{meanwhile} requests of alice were answered before that of bob");
    while let Some(request) = requests.join_next().await {
        request.unwrap().unwrap();
    }
}
