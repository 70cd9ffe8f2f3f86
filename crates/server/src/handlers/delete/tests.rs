use std::future::poll_fn;
use std::sync::Arc;

use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use heavy_lane::Effort;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use value::json;

use crate::Ephemeral;
use crate::call::RequestBody;
use crate::client::LoopbackClient;
use crate::pipeline::{self, InternalRequest};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const COUNT: usize = 20;

/// Deletes all ConfigMaps and returns how often the request was polled.
async fn polls_of_deletion(server: &Ephemeral, query: &str) -> usize {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let target = format!("{MAPS}?{query}");
    let request = InternalRequest {
        caller: Caller::internal(InternalIdentity::ApiServer),
        method: Method::DELETE,
        target: &target,
        headers,
        body: RequestBody::Here(Bytes::new()),
        effort: Effort::default(),
    };
    let mut work = std::pin::pin!(pipeline::internal(server.running.state(), request));
    let mut polls = 0;
    let response = poll_fn(|context| {
        polls += 1;
        work.as_mut().poll(context)
    })
    .await;
    assert_eq!(response.status().as_u16(), 200);
    polls
}

#[tokio::test]
async fn the_deletion_of_a_collection_yields_after_each_object_even_if_it_writes_nothing() {
    let server = Ephemeral::start().await.unwrap();
    let client = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    for i in 0..COUNT {
        let map = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m{i}","labels":{{"l":"m"}},"finalizers":["example.com/f"]}}}}"#
        );
        client.create(MAPS, &json::parse(map.as_bytes()).unwrap()).await.unwrap();
    }
    assert!(polls_of_deletion(&server, "labelSelector=l%3Dm&dryRun=All").await > COUNT);
    polls_of_deletion(&server, "labelSelector=l%3Dm").await;
    let polls = polls_of_deletion(&server, "labelSelector=l%3Dm").await;
    assert!(polls > COUNT, "{polls} polls for objects that are being deleted");
    let polls = polls_of_deletion(&server, "labelSelector=l%3Dnone&dryRun=All").await;
    assert!(polls < COUNT, "{polls} polls for no object");
}
