//! API Priority and Fairness: classification by stored objects, queues, and fairness between flows.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod borrowing;
mod dangling;
mod exempt;
mod headers;
mod maintained;
mod metrics;
mod waiting_bodies;
mod width;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conformance::webhook::{ReviewReply, ServingCertificate};
use conformance::{Client, HttpResponse, Problem, Server, WebhookServer, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_mins(1);
const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn level(name: &str, shares: u32, response: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": response,
        }},
    })
}

fn queue(length: u32) -> Value {
    json!({"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": length}})
}

fn schema(name: &str, level: &str, precedence: u32, users: &[&str]) -> Value {
    let subjects: Vec<Value> =
        users.iter().map(|user| json!({"kind": "User", "user": {"name": user}})).collect();
    json!({
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": subjects,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    })
}

async fn create(client: &Client, plural: &str, object: &Value) -> String {
    let made = accepts(client.post(&format!("{GROUP}/{plural}"), object).await).unwrap();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates a priority level with about `seats` of 100 seats for these users. Returns its number of seats.
async fn level_for(client: &Client, name: &str, response: &Value, users: &[&str]) -> usize {
    create(client, "prioritylevelconfigurations", &level(name, 4, response)).await;
    create(client, "flowschemas", &schema(name, name, 100, users)).await;
    let seats = metric(client, "nominal_limit_seats", &[("priority_level", name)]).await;
    assert!((1.0..=4.0).contains(&seats), "{seats}");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
    let seats = seats as usize;
    seats
}

/// The sum of the samples of an `apiserver_flowcontrol_` metric with these labels.
async fn metric(client: &Client, name: &str, labels: &[(&str, &str)]) -> f64 {
    let page = client.get("/metrics").await.unwrap().text();
    let name = format!("apiserver_flowcontrol_{name}");
    let samples = page.lines().filter(|line| {
        line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    });
    samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

async fn reaches(client: &Client, name: &str, labels: &[(&str, &str)], wanted: usize) {
    eventually(SOON, async || {
        let found = metric(client, name, labels).await;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let reached = (found - wanted as f64).abs() < 0.5;
        if reached { Ok(()) } else { Err(Problem::new(format!("{name} is {found}, not {wanted}"))) }
    })
    .await
    .unwrap();
}

fn uids(answer: &HttpResponse) -> (String, String) {
    let header = |name: &str| answer.header(name).to_owned();
    (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"))
}

/// Grants all users all verbs on config maps.
async fn allow_maps(client: &Client) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    accepts(client.post(&format!("{rbac}/clusterroles"), &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}],
    });
    accepts(client.post(&format!("{rbac}/clusterrolebindings"), &binding).await).unwrap();
}

/// A webhook that allows one creation of a config map per permit.
async fn gate(client: &Client) -> (WebhookServer, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&permits);
    let webhook =
        WebhookServer::start(ServingCertificate::Signed, move |_| ReviewReply::AllowWith(Arc::clone(&gate)))
            .await
            .unwrap();
    register(client, &webhook).await;
    (webhook, permits)
}

/// Registers the webhook for created config maps.
async fn register(client: &Client, webhook: &WebhookServer) {
    let configuration = json!({"metadata": {"name": "gate"}, "webhooks": [{
        "name": "gate.example.com",
        "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(client.post(path, &configuration).await).unwrap();
}

/// Creates config maps concurrently.
fn flood(client: &Client, requests: &mut JoinSet<u16>, times: usize) {
    for _ in 0..times {
        // On a connection of its own.
        let client = client.as_token(client.token());
        requests.spawn(async move {
            let map = json!({"metadata": {"generateName": "m-"}});
            client.post(MAPS, &map).await.map_or(0, |answer| answer.code)
        });
    }
}

const SEATS: [&str; 2] = ["--max-requests-inflight=60", "--max-mutating-requests-inflight=40"];

#[tokio::test]
async fn requests_are_classified_by_objects_created_at_run_time() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    let level =
        create(&client, "prioritylevelconfigurations", &level("mine", 1, &json!({"type": "Reject"}))).await;
    let schema = create(&client, "flowschemas", &schema("mine", "mine", 1000, &["alice"])).await;
    // Forbidden requests are classified too.
    for path in ["/version", "/api/v1/nodes"] {
        assert_eq!(uids(&alice.get(path).await.unwrap()), (schema.clone(), level.clone()), "{path}");
    }
    let (other_schema, other_level) = uids(&bob.get("/version").await.unwrap());
    assert!(!other_schema.is_empty() && other_schema != schema);
    assert!(!other_level.is_empty() && other_level != level);
    // Unauthenticated and long-running requests have no classification headers.
    let stranger = client.as_token(Some("nobodys-token"));
    assert_eq!(uids(&stranger.get("/version").await.unwrap()), (String::new(), String::new()));
    let log = alice.get("/api/v1/namespaces/default/pods/x/log").await.unwrap();
    assert_eq!(uids(&log), (String::new(), String::new()));
    // Without its level, a flow schema has no effect and a condition that says so.
    accepts(client.delete(&format!("{GROUP}/prioritylevelconfigurations/mine")).await).unwrap();
    assert_eq!(uids(&alice.get("/version").await.unwrap()), (other_schema, other_level));
    eventually(SOON, async || {
        let stored = accepts(client.get(&format!("{GROUP}/flowschemas/mine")).await)?;
        let condition = &stored["status"]["conditions"][0];
        let managers = stored["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let consumer = "api-priority-and-fairness-config-consumer-v1";
        if condition["status"] == "True"
            && condition["reason"] == "NotFound"
            && managers.iter().any(|entry| entry["manager"] == consumer && entry["subresource"] == "status")
        {
            return Ok(());
        }
        Err(Problem::new(stored.to_string()))
    })
    .await
    .unwrap();
}

/// Both flows exceed the level's seats; one has twelve times as many requests in flight as the other.
#[tokio::test]
async fn a_busy_flow_does_not_starve_a_small_one() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    let seats = level_for(&client, "shared", &queue(100), &["alice", "bob"]).await;
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| {
        ReviewReply::AllowAfter(Duration::from_millis(20))
    })
    .await;
    let webhook = webhook.unwrap();
    register(&client, &webhook).await;
    let keep_busy = |client: &Client, requests: usize, each: usize| {
        let mut tasks = JoinSet::new();
        for _ in 0..requests {
            let client = client.as_token(client.token());
            tasks.spawn(async move {
                let map = json!({"metadata": {"generateName": "m-"}});
                for _ in 0..each {
                    assert_eq!(client.post(&format!("{MAPS}?dryRun=All"), &map).await.unwrap().code, 201);
                }
            });
        }
        tasks
    };
    let mut many = keep_busy(&alice, 60, usize::MAX);
    reaches(&client, "current_inqueue_requests", &[("flow_schema", "shared")], 60 - seats).await;
    let few = keep_busy(&bob, 5, 8);
    few.join_all().await;
    many.abort_all();
    let calls = webhook.take_calls();
    let by_bob =
        |call: &conformance::webhook::ReviewCall| call.review["request"]["userInfo"]["username"] == "bob";
    let first = calls.iter().position(by_bob).unwrap();
    let last = calls.iter().rposition(by_bob).unwrap();
    let of_bob = calls.iter().filter(|call| by_bob(call)).count();
    assert_eq!(of_bob, 40);
    // In order of arrival, alice would get twelve of thirteen seats; the fair share is about every other.
    let of_alice = last + 1 - first - of_bob;
    assert!(of_alice <= 3 * of_bob, "{of_alice} turns of alice beside {of_bob} of bob");
    let dispatched = metric(&client, "dispatched_requests_total", &[("flow_schema", "shared")]).await;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let most = (calls.len() + 60) as f64;
    assert!(dispatched <= most, "each request is counted once: {dispatched} of {most}");
}

#[tokio::test]
async fn a_priority_level_without_free_seats_does_not_delay_others() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    let seats = level_for(&client, "flooded", &queue(3), &["alice"]).await;
    let (_webhook, permits) = gate(&client).await;
    let mut requests = JoinSet::new();
    let capacity = seats + 6 * 3;
    flood(&alice, &mut requests, capacity + 10);
    reaches(&client, "rejected_requests_total", &[("flow_schema", "flooded"), ("reason", "queue-full")], 10)
        .await;
    reaches(&client, "current_inqueue_requests", &[("flow_schema", "flooded")], capacity - seats).await;
    reaches(&client, "current_executing_requests", &[("flow_schema", "flooded")], seats).await;
    // Other levels, health checks and the administrator are not delayed.
    accepts(bob.get(MAPS).await).unwrap();
    accepts(bob.get("/readyz").await).unwrap();
    accepts(client.get(MAPS).await).unwrap();
    // Authorized users can see the queues.
    let tables = "/debug/api_priority_and_fairness";
    let page = accepts_text(client.get(&format!("{tables}/dump_requests?includeRequestDetails=1")).await);
    let waits = |line: &&str| {
        line.contains("flooded,") && line.contains("0001-01-01T00:00:00Z") && line.contains("alice,")
    };
    assert_eq!(page.lines().filter(waits).count(), capacity - seats, "{page}");
    let page = accepts_text(client.get(&format!("{tables}/dump_priority_levels")).await);
    assert!(page.starts_with("PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, "), "{page}");
    let page = accepts_text(client.get(&format!("{tables}/dump_queues")).await);
    assert_eq!(page.lines().filter(|line| line.starts_with("flooded,")).count(), 64);
    rejects(bob.get(&format!("{tables}/dump_queues")).await, 403, "Forbidden").unwrap();
    // A rejection is plain text with a Retry-After header.
    let refused = alice.get(MAPS).await.unwrap();
    assert_eq!(
        (refused.code, refused.text().as_str()),
        (429, "Too many requests, please try again later.\n")
    );
    assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert!(!uids(&refused).0.is_empty());
    permits.add_permits(1000);
    let mut codes = Vec::new();
    while let Some(code) = requests.join_next().await {
        codes.push(code.unwrap());
    }
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), capacity);
    assert_eq!(codes.iter().filter(|code| **code == 429).count(), 10);
}

fn accepts_text(answer: conformance::Result<HttpResponse>) -> String {
    let answer = answer.unwrap();
    assert_eq!(answer.code, 200, "{}", answer.text());
    answer.text()
}

#[tokio::test]
async fn a_request_leaves_its_queue_at_its_timeout_or_when_its_client_disconnects() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let alice = client.as_token(Some("alicetoken"));
    let seats = level_for(&client, "busy", &queue(10), &["alice"]).await;
    let (_webhook, permits) = gate(&client).await;
    let waiting = [("flow_schema", "busy")];
    let mut requests = JoinSet::new();
    flood(&alice, &mut requests, seats);
    reaches(&client, "current_executing_requests", &waiting, seats).await;
    // A request waits at most a quarter of its time limit.
    let late = alice.get(&format!("{MAPS}?timeout=2s")).await.unwrap();
    assert_eq!(late.code, 429, "{}", late.text());
    let timed_out = [("flow_schema", "busy"), ("reason", "time-out")];
    reaches(&client, "rejected_requests_total", &timed_out, 1).await;
    let mut leaving = JoinSet::new();
    flood(&alice, &mut leaving, 3);
    reaches(&client, "current_inqueue_requests", &waiting, 3).await;
    leaving.abort_all();
    reaches(&client, "current_inqueue_requests", &waiting, 0).await;
    reaches(&client, "rejected_requests_total", &timed_out, 4).await;
    permits.add_permits(1000);
    while let Some(code) = requests.join_next().await {
        assert_eq!(code.unwrap(), 201);
    }
    accepts(alice.get(MAPS).await).unwrap();
}

#[tokio::test]
async fn watches_occupy_a_seat_only_while_they_start() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let alice = client.as_token(Some("alicetoken"));
    let seats = level_for(&client, "narrow", &json!({"type": "Reject"}), &["alice"]).await;
    let mut watches = Vec::new();
    for _ in 0..seats + 5 {
        let watch = alice.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap();
        assert_eq!(watch.code, 200);
        watches.push(watch);
    }
    reaches(&client, "current_executing_seats", &[("flow_schema", "narrow")], 0).await;
    reaches(
        &client,
        "request_execution_seconds_count",
        &[("flow_schema", "narrow"), ("type", "watch")],
        seats + 5,
    )
    .await;
    accepts(alice.get(MAPS).await).unwrap();
}

#[tokio::test]
async fn levels_with_zero_seats_run_one_request_at_a_time_or_none() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    for (name, response, user) in
        [("rejects", json!({"type": "Reject"}), "alice"), ("queues", queue(5), "bob")]
    {
        create(&client, "prioritylevelconfigurations", &level(name, 0, &response)).await;
        create(&client, "flowschemas", &schema(name, name, 100, &[user])).await;
    }
    accepts(alice.get(MAPS).await).unwrap();
    assert_eq!(bob.get(&format!("{MAPS}?timeout=1s")).await.unwrap().code, 429);
}

#[tokio::test]
async fn bootstrap_objects_are_maintained_unless_the_annotation_disables_it() {
    let folder = TempDir::new().unwrap();
    let path = |plural: &str, name: &str| format!("{GROUP}/{plural}/{name}");
    let merge = [("content-type", "application/merge-patch+json")];
    let patch = async |client: &Client, path: &str, body: Value| {
        accepts(client.send(Method::PATCH, path, &merge, Bytes::from(body.to_string())).await).unwrap();
    };
    let shares = |shares: i64| json!({"limited": {"nominalConcurrencyShares": shares}});
    let annotation = |word: &str| json!({"annotations": {"apf.kubernetes.io/autoupdate-spec": word}});
    let levels = "prioritylevelconfigurations";
    {
        let mut server =
            Server::serve_at(folder.path(), &["--enable-priority-and-fairness=false"]).await.unwrap();
        let client = server.client().unwrap();
        patch(&client, &path(levels, "system"), json!({"spec": shares(1)})).await;
        patch(
            &client,
            &path(levels, "workload-low"),
            json!({"metadata": annotation("false"), "spec": shares(1)}),
        )
        .await;
        accepts(client.delete(&path(levels, "global-default")).await).unwrap();
        let mut own = level("left-over", 1, &json!({"type": "Reject"}));
        own["metadata"]["annotations"] = annotation("true")["annotations"].clone();
        create(&client, levels, &own).await;
        // Mandatory objects cannot be changed, except for their annotation.
        let changed = json!({"spec": shares(1)}).to_string();
        let refused = client.send(Method::PATCH, &path(levels, "catch-all"), &merge, changed.into()).await;
        rejects(refused, 422, "Invalid").unwrap();
        server.kill().unwrap();
    }
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let found = async |name: &str| accepts(client.get(&path(levels, name)).await);
    let share_of = |object: &Value| object["spec"]["limited"]["nominalConcurrencyShares"].clone();
    assert_eq!(share_of(&found("system").await.unwrap()), 30);
    assert_eq!(share_of(&found("workload-low").await.unwrap()), 1, "it was taken over");
    let restored = found("global-default").await.unwrap();
    assert_eq!(
        restored["metadata"]["managedFields"][0]["manager"],
        "api-priority-and-fairness-config-producer-v1"
    );
    eventually(SOON, async || {
        rejects(client.get(&path(levels, "left-over")).await, 404, "NotFound").map(drop)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_priority_and_fairness_its_objects_have_no_effect() {
    let server = Server::serve(&["--enable-priority-and-fairness=false"]).await.unwrap();
    let client = server.client().unwrap();
    let answer = client.get(&format!("{GROUP}/flowschemas")).await.unwrap();
    assert_eq!(uids(&answer), (String::new(), String::new()));
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 11);
    assert_eq!(client.get("/debug/api_priority_and_fairness/dump_queues").await.unwrap().code, 404);
    // With the feature, the number of seats must be positive.
    let none = ["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"];
    let refused = Server::serve(&none).await.err().unwrap().to_string();
    assert!(refused.contains("they must add up to something positive"), "{refused}");
}
