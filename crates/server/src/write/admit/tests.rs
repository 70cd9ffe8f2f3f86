use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use heavy_lane::Effort;
use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderMap, HeaderValue, Method};
use value::{Value, json, write};

use crate::Ephemeral;
use crate::call::RequestBody;
use crate::client::LoopbackClient;
use crate::pipeline::{self, InternalRequest};
use crate::state::State;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn crd(old_rule: &str) -> Value {
    let text = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"widgets.example.com"}},
        "spec":{{"group":"example.com","scope":"Namespaced","names":{{"plural":"widgets","kind":"Widget"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
        "spec":{{"type":"object","properties":{{
            "old":{{"type":"integer","x-kubernetes-validations":[{{"rule":"{old_rule}"}}]}},
            "new":{{"type":"integer","x-kubernetes-validations":[{{"rule":"self < 10"}}]}}}}}}}}}}}}}}]}}}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

fn widget(new: i64, finalizers: &str) -> Value {
    let text = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"w","finalizers":[{finalizers}]}},
        "spec":{{"old":1,"new":{new}}}}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

/// Replaces the widget; returns the status code and the warnings.
async fn put(state: &Arc<State>, client: &LoopbackClient, mut widget: Value) -> (u16, Vec<String>) {
    let path = format!("{WIDGETS}/w");
    let stored = client.get(&path).await.unwrap();
    api::meta::set(&mut widget, "resourceVersion", api::meta::resource_version(&stored));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let request = InternalRequest {
        caller: Caller::internal(InternalIdentity::ApiServer),
        method: Method::PUT,
        target: &path,
        headers,
        body: RequestBody::Here(Bytes::from(write::to_vec(&widget))),
        effort: Effort::default(),
    };
    let response = pipeline::internal(state, request).await;
    let warnings = response.headers().get_all(WARNING).iter().map(|text| text.to_str().unwrap().to_owned());
    (response.status().as_u16(), warnings.collect())
}

/// kube-apiserver adds the warnings while it evaluates the rules, and those of finalizers only if the object is valid.
#[tokio::test]
async fn an_update_that_breaks_a_rule_still_warns_of_unchanged_violations() {
    let server = Ephemeral::start().await.unwrap();
    let state = server.running.state();
    let client = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    client.create(CRDS, &crd("true")).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.create(WIDGETS, &widget(1, "")).await.is_err() {
        assert!(Instant::now() < deadline, "the resource is not served");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let path = format!("{CRDS}/widgets.example.com");
    loop {
        let mut stricter = crd("self > 5");
        let stored = client.get(&path).await.unwrap();
        api::meta::set(&mut stricter, "resourceVersion", api::meta::resource_version(&stored));
        match client.update(&path, &stricter).await {
            Ok(_) => break,
            // The status of the CRD was written in between.
            Err(status) => assert_eq!(status.code(), 409),
        }
    }
    let ratcheted = "299 - \"spec.old: Invalid value: 1: failed rule: self > 5\"";
    let finalizer = "299 - \"metadata.finalizers: \\\"f\\\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers\"";
    assert_eq!(put(state, &client, widget(2, "")).await, (200, vec![ratcheted.to_owned()]));
    assert_eq!(put(state, &client, widget(20, r#""f""#)).await, (422, vec![ratcheted.to_owned()]));
    assert_eq!(
        put(state, &client, widget(3, r#""f""#)).await,
        (200, vec![ratcheted.to_owned(), finalizer.to_owned()])
    );
    server.running.stop().await;
}
