//! Large bodies are answered with bounded work, and do not delay other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

const PATIENCE: Duration = Duration::from_mins(1);

fn pod(spec: &Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": "large"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn named_items(count: usize) -> Value {
    (0..count).map(|i| json!({"name": format!("n{i}")})).collect()
}

/// Bodies that took four to fourteen seconds each with pairwise comparison of list items.
fn long_lists() -> Vec<(&'static str, Value)> {
    let env: Value = (0..60_000).map(|i| json!({"name": format!("N{i}")})).collect();
    let gates: Value = (0..60_000).map(|i| json!({"name": format!("example.com/n{i}")})).collect();
    let ports: Value =
        (0..50_000).map(|i| json!({"name": format!("n{i}"), "port": i % 60_000 + 1})).collect();
    vec![
        (PODS, pod(&json!({"volumes": named_items(60_000)}))),
        (PODS, pod(&json!({"containers": [{"name": "c", "image": "i", "env": env}]}))),
        (PODS, pod(&json!({"imagePullSecrets": named_items(60_000)}))),
        (PODS, pod(&json!({"schedulingGates": gates}))),
        (
            "/api/v1/namespaces/default/services?dryRun=All",
            json!({"metadata": {"name": "large"}, "spec": {"ports": ports}}),
        ),
    ]
}

/// Sends all bodies concurrently, each on its own connection; the counter grows with each answer.
fn send_all(server: &Server, answered: &Arc<AtomicUsize>) -> Vec<tokio::task::JoinHandle<u16>> {
    let bodies = long_lists();
    let send = |(path, body): (&'static str, Value)| {
        let (client, answered) = (server.client().unwrap(), Arc::clone(answered));
        tokio::spawn(async move {
            let answer = client.post(path, &body).await.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
            answer.code
        })
    };
    bodies.into_iter().map(send).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_requests_are_answered_during_large_ones() {
    let server = Server::serve(&[]).await.unwrap();
    let small = server.client().unwrap();
    let soon = crate::latency_limit(&small).await;
    let answered = Arc::new(AtomicUsize::new(0));
    let large = send_all(&server, &answered);
    let (mut before_the_first, mut longest) = (0, Duration::ZERO);
    while answered.load(Ordering::Relaxed) < large.len() {
        for path in ["/livez", "/api/v1/namespaces/default"] {
            let begun = Instant::now();
            let answer = tokio::time::timeout(soon, small.get(path)).await;
            let late = |_| Err(Problem::new(format!("{path} was not answered within {soon:?}")));
            assert_eq!(answer.unwrap_or_else(late).unwrap().code, 200);
            longest = longest.max(begun.elapsed());
        }
        before_the_first += usize::from(answered.load(Ordering::Relaxed) == 0);
    }
    for request in large {
        let code = request.await.unwrap();
        assert!(matches!(code, 201 | 413 | 422), "{code}");
    }
    assert!(before_the_first > 0);
    eprintln!("a small request took at most {longest:?} of {soon:?}");
    let metrics = small.get("/metrics").await.unwrap().text();
    assert!(metrics.contains("portcullis_large_requests_total 5\n"), "all of them ran on the heavy lane");
}

/// As many ports as fit into the largest body. Their node ports are chosen before the Service is validated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_ports_of_a_large_service_do_not_delay_other_requests() {
    let server = Server::serve(&[]).await.unwrap();
    let small = server.client().unwrap();
    let soon = crate::latency_limit(&small).await;
    let ports = (0..190_000).map(|_| json!({"port": 123_456}));
    let different = (0..150_000).map(|i| json!({"port": 200_000 + i}));
    let bodies: Vec<Value> = vec![ports.collect(), different.collect()];
    let dry_run = "/api/v1/namespaces/default/services?dryRun=All";
    for (path, ports) in bodies.iter().flat_map(|ports| {
        [dry_run, dry_run.trim_end_matches("?dryRun=All")].map(|path| (path, ports.clone()))
    }) {
        let body = json!({"metadata": {"name": "large"}, "spec": {"type": "NodePort", "ports": ports}});
        let (client, began) = (server.client().unwrap(), Instant::now());
        let large = tokio::spawn(async move { client.post(path, &body).await.unwrap().code });
        while !large.is_finished() {
            let answer = tokio::time::timeout(soon, small.get("/livez")).await;
            let late = |_| Err(Problem::new(format!("/livez was not answered within {soon:?}")));
            let answer = answer.unwrap_or_else(late);
            assert_eq!(answer.unwrap().code, 200);
        }
        let code = large.await.unwrap();
        assert!(matches!(code, 413 | 422 | 500), "{code}");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_strategic_merge_of_a_long_list_is_answered() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.post("/api/v1/namespaces/default/pods", &pod(&json!({}))).await).unwrap();
    let env: Value = (0..60_000).map(|i| json!({"name": format!("N{i}"), "value": "x"})).collect();
    let patch = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
    let headers = [("content-type", "application/strategic-merge-patch+json")];
    let path = "/api/v1/namespaces/default/pods/large?dryRun=All";
    let body = serde_json::to_vec(&patch).unwrap();
    // The environment of a pod cannot change: the request is rejected after the whole merge.
    let status =
        rejects(client.send(Method::PATCH, path, &headers, body.into()).await, 422, "Invalid").unwrap();
    assert!(status["message"].as_str().unwrap().contains("pod updates may not change fields"), "{status}");
    let metrics = client.get("/metrics").await.unwrap().text();
    assert!(metrics.contains("portcullis_large_requests_total 1\n"), "it ran on the heavy lane");
}

#[tokio::test]
async fn validation_errors_for_many_invalid_list_items_use_bounded_memory() {
    let server = Server::serve(&[]).await.unwrap();
    let terms: Value = (0..60_000).map(|_| json!({})).collect();
    let class =
        json!({"metadata": {"name": "large"}, "provisioner": "example.com/p", "allowedTopologies": terms});
    let client = server.client().unwrap();
    rejects(client.post("/apis/storage.k8s.io/v1/storageclasses", &class).await, 422, "Invalid").unwrap();
    assert!(server.resident_kib().unwrap() < 2 * 1024 * 1024, "the errors do not fill the memory");
}

/// A CRD whose items have many alternatives, none of which matches.
async fn define_alternatives(client: &Client) {
    let alternatives: Value = (0..400)
        .map(|i| json!({"properties": {"a": {"enum": [format!("v{i}")]}}, "required": ["a"]}))
        .collect();
    let crd = json!({
        "metadata": {"name": "bombs.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "bombs", "kind": "Bomb", "listKind": "BombList", "singular": "bomb"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"items": {"type": "array", "items": {
                    "type": "object", "properties": {"a": {"type": "string"}}, "oneOf": alternatives,
                }}},
            }}}],
        },
    });
    accepts(client.post(CRDS, &crd).await).unwrap();
    eventually(PATIENCE, async || accepts(client.get(BOMBS).await)).await.unwrap();
}

const BOMBS: &str = "/apis/example.com/v1/namespaces/default/bombs";

/// 1.6 megabytes: 160,000 items of 400 alternatives.
fn bomb() -> Value {
    let items: Value = (0..160_000).map(|_| json!({"a": "x"})).collect();
    json!({"apiVersion": "example.com/v1", "kind": "Bomb", "metadata": {"name": "bomb"}, "items": items})
}

#[tokio::test]
async fn schema_validation_of_alternatives_is_canceled_with_its_request() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    define_alternatives(&client).await;
    // The request times out before the work is done, and is answered.
    let path = format!("{BOMBS}?timeout=1s");
    let answer = tokio::time::timeout(Duration::from_secs(20), client.post(&path, &bomb())).await;
    let answer = answer.unwrap_or_else(|_| Err(Problem::new("the request was not answered")));
    let status = rejects(answer, 504, "Timeout").unwrap();
    assert_eq!(status["message"], "Timeout: request did not complete within the allotted timeout");
    wait_until_idle(&client, 1).await;

    // Work ends when its client disconnects.
    let (leaving, body) = (server.client().unwrap(), bomb());
    let request = tokio::spawn(async move { leaving.post(BOMBS, &body).await });
    eventually(PATIENCE, async || {
        let metrics = client.get("/metrics").await?.text();
        let runs = metrics.contains("portcullis_large_requests_running 1");
        if runs { Ok(()) } else { Err(Problem::new("the request has not begun")) }
    })
    .await
    .unwrap();
    request.abort();
    wait_until_idle(&client, 2).await;
}

/// Waits until no large request is running and `canceled` have been canceled.
async fn wait_until_idle(client: &Client, canceled: usize) {
    eventually(PATIENCE, async || {
        let metrics = client.get("/metrics").await?.text();
        let is_idle = metrics.contains("portcullis_large_requests_running 0\n")
            && metrics.contains(&format!("portcullis_large_requests_cancelled_total {canceled}\n"));
        if is_idle { Ok(()) } else { Err(Problem::new("large requests are still running")) }
    })
    .await
    .unwrap();
}
