//! Requests that occupy more than one seat: lists of much data, and writes that many watches see.

use conformance::{Client, Server, accepts};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{MAPS, SEATS, allow_maps, create, flood, gate, level, metric, reaches, schema};

const OF_ALICE: [(&str, &str); 1] = [("flow_schema", "wide")];
/// A request of the level may have three of its fifteen seats.
const MOST_SEATS: f64 = 3.0;

/// A server whose level `wide` serves alice. Returns the level's number of seats, too.
async fn start() -> (Server, Client, Client, usize) {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let response = json!({"type": "Queue", "queuing": {"queues": 8, "handSize": 1, "queueLengthLimit": 50}});
    create(&client, "prioritylevelconfigurations", &level("wide", 40, &response)).await;
    create(&client, "flowschemas", &schema("wide", "wide", 100, &["alice"])).await;
    let seats = metric(&client, "nominal_limit_seats", &[("priority_level", "wide")]).await;
    assert!((seats - 15.0).abs() < 0.5, "{seats}");
    let alice = client.as_token(Some("alicetoken"));
    (server, client, alice, 15)
}

/// The number of alice's requests so far, and the sum of their estimated seats.
async fn estimated(client: &Client) -> (f64, f64) {
    let count = metric(client, "work_estimated_seats_count", &OF_ALICE).await;
    (count, metric(client, "work_estimated_seats_sum", &OF_ALICE).await)
}

/// The estimated seats of the one request that alice has sent since `before`.
async fn seats_since(client: &Client, before: (f64, f64)) -> f64 {
    let after = estimated(client).await;
    assert!((after.0 - before.0 - 1.0).abs() < 0.5, "{before:?}, {after:?}");
    after.1 - before.1
}

#[tokio::test]
async fn a_list_of_much_data_occupies_several_seats() {
    let (_server, client, alice, seats) = start().await;
    let before = estimated(&client).await;
    accepts(alice.get(MAPS).await).unwrap();
    let narrow = seats_since(&client, before).await;
    assert!((narrow - 1.0).abs() < 0.5, "an empty list has {narrow} seats");

    // Each 100 kB are a seat.
    for number in 0..60 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(10_000)}});
        accepts(client.post(MAPS, &map).await).unwrap();
    }
    let before = estimated(&client).await;
    accepts(alice.get(&format!("{MAPS}?limit=15")).await).unwrap();
    let page = seats_since(&client, before).await;
    assert!((page - 2.0).abs() < 0.5, "a page of 150 kB has {page} seats");
    let before = estimated(&client).await;
    accepts(alice.get(MAPS).await).unwrap();
    let wide = seats_since(&client, before).await;
    assert!((wide - MOST_SEATS).abs() < 0.5, "a list of 600 kB has {wide} seats");
    let before = estimated(&client).await;
    accepts(alice.get(&format!("{MAPS}/m1")).await).unwrap();
    assert!((seats_since(&client, before).await - 1.0).abs() < 0.5);

    // With two free seats, the list waits for a third one.
    let (_webhook, permits) = gate(&client).await;
    let mut requests = JoinSet::new();
    flood(&alice, &mut requests, seats - 2);
    reaches(&client, "current_executing_seats", &OF_ALICE, seats - 2).await;
    let list = alice.as_token(alice.token());
    let list = tokio::spawn(async move { list.get(MAPS).await });
    reaches(&client, "current_inqueue_seats", &OF_ALICE, 3).await;
    reaches(&client, "current_inqueue_requests", &OF_ALICE, 1).await;
    assert!(!list.is_finished());
    permits.add_permits(1);
    accepts(list.await.unwrap()).unwrap();
    permits.add_permits(seats);
    while let Some(code) = requests.join_next().await {
        assert_eq!(code.unwrap(), 201);
    }
    reaches(&client, "current_executing_seats", &OF_ALICE, 0).await;
}

#[tokio::test]
async fn the_seats_of_a_list_follow_the_average_size_of_all_objects_not_of_the_first_ones() {
    let (_server, client, alice, _) = start().await;
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": "aaa"}})).await).unwrap();
    let first = "/api/v1/namespaces/aaa/configmaps";
    let create = async |path: &str, name: &str, number: usize, bytes: usize| {
        for number in 0..number {
            let metadata = json!({"name": format!("{name}{number}")});
            let map = json!({"metadata": metadata, "data": {"k": "x".repeat(bytes)}});
            accepts(client.post(path, &map).await).unwrap();
        }
    };
    let seats = async || {
        let before = estimated(&client).await;
        accepts(alice.get("/api/v1/configmaps").await).unwrap();
        seats_since(&client, before).await
    };
    // Small objects come first, large ones last: over 300 kB.
    create(first, "small", 40, 10).await;
    create(MAPS, "large", 30, 10_000).await;
    let found = seats().await;
    assert!((found - MOST_SEATS).abs() < 0.5, "300 kB after small objects have {found} seats");
    // Large objects come first: between 144 and 200 kB.
    accepts(client.delete(MAPS).await).unwrap();
    create(first, "large", 16, 9_000).await;
    let found = seats().await;
    assert!((found - 2.0).abs() < 0.5, "144 kB before small objects have {found} seats");
}

#[tokio::test]
async fn a_write_occupies_a_seat_for_every_ten_watches_that_see_it() {
    let (_server, client, alice, _) = start().await;
    let mut watches = Vec::new();
    let write = async |name: &str| {
        let before = estimated(&client).await;
        let seen = metric(&client, "watch_count_samples_sum", &OF_ALICE).await;
        accepts(alice.post(MAPS, &json!({"metadata": {"name": name}})).await).unwrap();
        let seen = metric(&client, "watch_count_samples_sum", &OF_ALICE).await - seen;
        (seen, seats_since(&client, before).await)
    };
    let kinds = ["/api/v1/configmaps?watch=1".to_owned(), format!("{MAPS}?watch=1")];
    for (name, watching, seats) in
        [("none", 0, 1.0), ("nine", 9, 1.0), ("twelve", 12, 2.0), ("many", 55, 3.0)]
    {
        while watches.len() < watching {
            let path = &kinds[watches.len() % 2];
            let watch = client.events(path, &[]).await.unwrap();
            assert_eq!(watch.code, 200);
            watches.push(watch);
        }
        // Watches of other resources and namespaces do not count.
        for path in ["/api/v1/secrets?watch=1", "/api/v1/namespaces/kube-system/configmaps?watch=1"] {
            let other = client.events(path, &[]).await.unwrap();
            assert_eq!(other.code, 200);
            drop(other);
        }
        let (seen, estimated) = write(name).await;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let expected = watching as f64;
        assert!((seen - expected).abs() < 0.5, "{name}: {seen} watches");
        assert!((estimated - seats).abs() < 0.5, "{name}: {estimated} seats");
    }
    // The seats are free again a few milliseconds after the end of the write.
    reaches(&client, "current_executing_seats", &OF_ALICE, 0).await;
}
