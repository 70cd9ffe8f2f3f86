//! Conversion webhooks that return much more than they were sent.

use conformance::{Client, accepts, rejects};
use serde_json::json;

use super::conversion::{ConversionSetup, V1, V2, answer, v1};

/// The number of requests that ran on the threads for large requests.
async fn large_requests(client: &Client) -> u64 {
    let metrics = client.get("/metrics").await.unwrap().text();
    let line = metrics.lines().find(|line| line.starts_with("portcullis_large_requests_total ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Adds a note of this many bytes to every converted object.
fn inflate(world: &ConversionSetup, bytes: usize) {
    let note = json!("x".repeat(bytes));
    world.replies(move |asked, mut objects| {
        for object in &mut objects {
            object["spec"]["note"] = note.clone();
        }
        answer(asked, objects)
    });
}

#[tokio::test]
async fn a_large_answer_for_a_small_object_is_processed_on_the_heavy_lane() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    accepts(client.post(V1, &v1("a", "one.example:80")).await).unwrap();
    for (bytes, is_large) in [(100, false), (200_000, true)] {
        inflate(&world, bytes);
        let before = large_requests(client).await;
        // The response is empty, so that only the answer of the webhook is large.
        let list = accepts(client.get(&format!("{V2}?fieldSelector=spec.port%3D1")).await).unwrap();
        assert_eq!(list["items"], json!([]));
        assert_eq!(large_requests(client).await > before, is_large, "{bytes} bytes");
    }
}

/// A single answer has at most 64 MiB. If all objects together exceed that, they are converted one by one, which must not add up to more.
#[tokio::test]
async fn a_webhook_cannot_inflate_a_list_without_bound() {
    const MANY: usize = 8;
    let world = ConversionSetup::start().await;
    let client = &world.client;
    for number in 0..MANY {
        accepts(client.post(V1, &v1(&format!("h{number}"), "one.example:80")).await).unwrap();
    }
    inflate(&world, 20_000_000);
    accepts(client.get(&format!("{V2}/h0")).await).unwrap();
    rejects(client.get(V2).await, 500, "").unwrap();
    // Smaller ones are listed.
    inflate(&world, 1_000_000);
    let list = accepts(client.get(V2).await).unwrap();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(MANY));
}
