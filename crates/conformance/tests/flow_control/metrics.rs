//! The flow control metric families equal those of Kubernetes 1.37.

use std::collections::{BTreeMap, BTreeSet};

use conformance::{Client, Server};
use http::Method;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{MAPS, SEATS, allow_maps, create, gate, level, level_for, metric, queue, reaches, schema};

/// One line per family: name, type, labels and bucket bounds, as kube-apiserver 1.37 shows them after the same requests.
const FAMILIES: &str = include_str!("families.txt");
const PREFIX: &str = "apiserver_flowcontrol_";

#[derive(Default)]
struct MetricFamily {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<String>,
}

/// The families of a metrics page, one line each, sorted.
fn families(page: &str) -> Vec<String> {
    let mut families: BTreeMap<&str, MetricFamily> = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
            && let Some(name) = name.strip_prefix(PREFIX)
        {
            kind.clone_into(&mut families.entry(name).or_default().kind);
        }
        let Some((name, labels)) = line.strip_prefix(PREFIX).and_then(|rest| rest.split_once(['{', ' ']))
        else {
            continue;
        };
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let name = part.filter(|name| families.contains_key(name)).unwrap_or(name);
        let family = families.get_mut(name).unwrap();
        let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
        for (label, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
            let value = value.trim_matches('"').to_owned();
            if label != "le" {
                family.labels.insert(label.to_owned());
            } else if !family.bounds.contains(&value) {
                family.bounds.push(value);
            }
        }
    }
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let line = |(name, family): (&&str, &MetricFamily)| {
        let labels = or_none(family.labels.iter().cloned().collect::<Vec<_>>().join(","));
        format!("{name} {} {labels} {}", family.kind, or_none(family.bounds.join(",")))
    };
    families.iter().map(line).collect()
}

/// Lists much data as the user `carol` while her level has one free seat, so that the list finds no accommodation.
async fn a_wide_request_waits(client: &Client, permits: &Semaphore) {
    const SEATS: usize = 15;
    let of_carol = [("flow_schema", "wide")];
    create(client, "prioritylevelconfigurations", &level("wide", 42, &queue(50))).await;
    reaches(client, "nominal_limit_seats", &[("priority_level", "wide")], SEATS).await;
    create(client, "flowschemas", &schema("wide", "wide", 50, &["carol"])).await;
    permits.add_permits(3);
    for name in ["a", "b", "c"] {
        let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(100_000)}});
        assert_eq!(client.post(MAPS, &map).await.unwrap().code, 201);
    }
    let send = |method: Method, body: String| {
        let client = client.as_token(client.token());
        async move {
            let headers = [("impersonate-user", "carol"), ("content-type", "application/json")];
            client.send(method, MAPS, &headers, body.into()).await.unwrap().code
        }
    };
    let mut creations = JoinSet::new();
    for _ in 0..SEATS - 1 {
        creations.spawn(send(Method::POST, json!({"metadata": {"generateName": "m-"}}).to_string()));
    }
    reaches(client, "current_executing_seats", &of_carol, SEATS - 1).await;
    let list = tokio::spawn(send(Method::GET, String::new()));
    reaches(client, "current_inqueue_requests", &of_carol, 1).await;
    assert!(metric(client, "request_dispatch_no_accommodation_total", &of_carol).await > 0.5);
    permits.add_permits(SEATS);
    assert_eq!(list.await.unwrap(), 200);
    while let Some(code) = creations.join_next().await {
        assert_eq!(code.unwrap(), 201);
    }
}

#[tokio::test]
async fn metric_families_have_the_types_labels_and_buckets_of_kubernetes() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    level_for(&client, "queueing", &queue(10), &["alice"]).await;
    // A level with zero seats runs one request at a time.
    create(&client, "prioritylevelconfigurations", &level("rejecting", 0, &json!({"type": "Reject"}))).await;
    create(&client, "flowschemas", &schema("rejecting", "rejecting", 100, &["bob"])).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));
    let map = json!({"metadata": {"name": "m"}});
    assert_eq!(alice.post(MAPS, &map).await.unwrap().code, 201);
    assert_eq!(alice.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap().code, 200);
    let (webhook, permits) = gate(&client).await;
    let waiting = tokio::spawn({
        let bob = bob.as_token(bob.token());
        async move { bob.post(&format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": "n"}})).await }
    });
    reaches(&client, "current_executing_requests", &[("flow_schema", "rejecting")], 1).await;
    assert_eq!(bob.get(MAPS).await.unwrap().code, 429);
    permits.add_permits(1);
    assert_eq!(waiting.await.unwrap().unwrap().code, 201);
    a_wide_request_waits(&client, &permits).await;
    drop(webhook);

    let page = client.get("/metrics").await.unwrap().text();
    let expected: Vec<&str> = FAMILIES.lines().collect();
    assert_eq!(families(&page), expected);
}
