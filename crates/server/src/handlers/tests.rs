//! Lists and watches that compare large selectors with large objects let other tasks run in between.
//!
//! The tests run on one thread, on which another task counts how often it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use heavy_lane::Effort;
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use value::{Map, Value, write};

use crate::Ephemeral;
use crate::body::Body;
use crate::call::RequestBody;
use crate::pipeline::{InternalRequest, internal};
use crate::state::State;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request on the task of the test, whatever its work is.
async fn send(state: &Arc<State>, method: Method, target: &str, body: Bytes) -> Response<Body> {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let request = InternalRequest {
        caller: Caller::internal(InternalIdentity::ApiServer),
        method,
        target,
        headers,
        body: RequestBody::Here(body),
        effort: Effort::default(),
    };
    internal(state, request).await
}

/// Creates a config map with this number of labels of 50 bytes, and returns its revision.
async fn create(state: &Arc<State>, name: &str, labels: usize) -> String {
    let labels: Map = (0..labels)
        .map(|number| (format!("label-{number:020}").into(), Value::from(format!("value-{number:017}"))))
        .collect();
    let mut object = Value::map([("kind", "ConfigMap"), ("apiVersion", "v1")]);
    object.set_at(&["metadata", "name"], name);
    object.set_at(&["metadata", "labels"], Value::Map(labels));
    let response = send(state, Method::POST, MAPS, write::to_vec(&object).into()).await;
    assert_eq!(response.status(), 201);
    let body = response.into_body().into_bytes().unwrap();
    let created = value::json::parse(&body).unwrap();
    created.str_at(&["metadata", "resourceVersion"]).unwrap().to_owned()
}

/// A selector of this number of requirements that matches only objects without labels.
fn selector(requirements: usize) -> String {
    let absent: Vec<String> = (1..requirements).map(|number| format!("!absent-{number}")).collect();
    format!("{},!label-{:020}", absent.join(","), 0).replace('!', "%21")
}

/// Runs `work`, and returns how often another task ran meanwhile.
async fn count_turns<T>(work: impl Future<Output = T>) -> (T, usize) {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    tokio::task::yield_now().await;
    let before = turns.load(Ordering::Relaxed);
    let done = work.await;
    let counted = turns.load(Ordering::Relaxed) - before;
    other.abort();
    (done, counted)
}

/// Reads a watch until the event of the object `last`.
async fn read_until(response: Response<Body>, last: &str) {
    let (mut body, mut events) = (response.into_body(), String::new());
    while !events.contains(&format!("\"name\":\"{last}\"")) {
        let frame = body.frame().await.expect("the watch has ended").unwrap();
        events.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap()));
    }
}

#[tokio::test]
async fn lists_with_large_selectors_and_labels_yield_between_objects() {
    const OBJECTS: usize = 8;
    let server = Ephemeral::start_with(|config| config.controllers.enabled = false).await.unwrap();
    let state = Arc::clone(server.running.state());
    for number in 0..OBJECTS {
        create(&state, &format!("m{number}"), 20_000).await;
    }
    let target = format!("{MAPS}?resourceVersion=0&labelSelector={}", selector(100));
    let (response, turns) = count_turns(send(&state, Method::GET, &target, Bytes::new())).await;
    assert_eq!(response.status(), 200);
    let listed = response.into_body().into_bytes().unwrap();
    assert!(!String::from_utf8_lossy(&listed).contains("\"name\":\"m0\""));
    assert!(turns >= OBJECTS / 2, "the list of {OBJECTS} objects yielded {turns} times");
    server.running.stop().await;
}

/// Each object is two thirds of the work after which a watch yields; it would also yield after more than a hundred small objects.
#[tokio::test]
async fn watches_with_large_selectors_and_labels_yield_between_events() {
    const OBJECTS: usize = 16;
    let server = Ephemeral::start_with(|config| config.controllers.enabled = false).await.unwrap();
    let state = Arc::clone(server.running.state());
    let first = create(&state, "first", 0).await;
    for number in 0..OBJECTS {
        create(&state, &format!("m{number}"), 13_000).await;
    }
    create(&state, "z", 0).await;
    let selector = selector(100);
    for start in [format!("&resourceVersion={first}"), String::new()] {
        let target = format!("{MAPS}?watch=1&labelSelector={selector}{start}");
        let ((), turns) = count_turns(async {
            let response = send(&state, Method::GET, &target, Bytes::new()).await;
            assert_eq!(response.status(), 200);
            read_until(response, "z").await;
        })
        .await;
        assert!(turns >= OBJECTS / 2, "{turns} turns, {start:?}");
    }
    server.running.stop().await;
}

#[tokio::test]
async fn watches_of_many_small_events_that_do_not_match_yield() {
    const OBJECTS: usize = 2000;
    let server = Ephemeral::start_with(|config| config.controllers.enabled = false).await.unwrap();
    let state = Arc::clone(server.running.state());
    let first = create(&state, "first", 0).await;
    for number in 0..OBJECTS {
        create(&state, &format!("m{number}"), 1).await;
    }
    create(&state, "z", 0).await;
    let target = format!("{MAPS}?watch=1&labelSelector={}&resourceVersion={first}", selector(2));
    let ((), turns) = count_turns(async {
        let response = send(&state, Method::GET, &target, Bytes::new()).await;
        read_until(response, "z").await;
    })
    .await;
    assert!(turns >= OBJECTS / 200, "{turns} turns");
    server.running.stop().await;
}
