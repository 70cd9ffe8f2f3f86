//! Watches that need a conversion: metadata, tables, other versions.

use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::json;

use crate::callers::{MAPS, SOON, alice_and_bob, metric};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const WATCHES: usize = 20;

async fn converted_event_count(admin: &Client) -> f64 {
    metric(admin, "portcullis_watch_events_converted_total", "").await.unwrap_or(0.0)
}

#[tokio::test]
async fn a_large_event_is_converted_once_for_all_watches_with_the_same_media_type() {
    let server = Server::serve(&["--authorization-mode=RBAC"]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, _) = alice_and_bob(&admin).await;
    for (name, form, kind) in [("m", METADATA, "PartialObjectMetadata"), ("t", TABLE, "Table")] {
        let now = accepts(alice.get(MAPS).await).unwrap();
        let from = now["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{MAPS}?watch=1&resourceVersion={from}");
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            watches.push(alice.events(&path, &[("accept", form)]).await.unwrap());
        }
        let before = converted_event_count(&admin).await;
        let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(300_000)}});
        accepts(alice.post(MAPS, &map).await).unwrap();
        for watch in &mut watches {
            let event = watch.within(SOON).await.unwrap().unwrap();
            assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!(kind)));
        }
        // No watch stays on the lane after its event was converted.
        eventually(SOON, async || match metric(&admin, "portcullis_large_requests_running", "").await {
            Some(running) if running < 1.0 => Ok(()),
            running => Err(Problem::new(format!("{running:?} are still in the lane"))),
        })
        .await
        .unwrap();
        // Two requests of one user may be on the lane at a time: both may find the event unconverted.
        let more = converted_event_count(&admin).await - before;
        assert!((1.0..=2.0).contains(&more), "{form}: converted {more} times");
        // Later events arrive too.
        let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
        let headers = [("content-type", "application/merge-patch+json")];
        accepts(alice.send(Method::PATCH, &format!("{MAPS}/{name}"), &headers, patch.into()).await).unwrap();
        for watch in &mut watches {
            assert_eq!(watch.within(SOON).await.unwrap().unwrap()["type"], "MODIFIED");
        }
    }
}
