//! The flow control metric families equal those of Kubernetes 1.37.

use std::collections::{BTreeMap, BTreeSet};

use conformance::Server;
use serde_json::json;

use super::{MAPS, SEATS, allow_maps, create, gate, level, level_for, queue, reaches, schema};

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
    drop(webhook);

    let page = client.get("/metrics").await.unwrap().text();
    let expected: Vec<&str> = FAMILIES.lines().collect();
    assert_eq!(families(&page), expected);
}
