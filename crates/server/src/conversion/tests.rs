use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use authn::InternalIdentity;
use value::json;

use super::ListConversion;
use crate::Ephemeral;
use crate::client::LoopbackClient;

const CRD: &str = r#"{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Cluster",
    "names":{"plural":"things","kind":"Thing"},"versions":[
    {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
    {"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;

#[tokio::test]
async fn a_failed_batch_conversion_is_retried_per_object_until_the_deadline() {
    let server = Ephemeral::start().await.unwrap();
    let state = Arc::clone(server.running.state());
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
    client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &parse(CRD)).await.unwrap();
    let thing = parse(r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}"#);
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(status) = client.create("/apis/example.com/v1/things", &thing).await {
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kind = state.apis.catalog.find(&"example.com".into(), &"v2".into(), &"things".into()).unwrap();
    let custom = kind.as_custom().unwrap();
    let entries: Vec<_> = state.storage.store.snapshot(&kind.scope("")).entries.iter().cloned().collect();
    let together = Status::internal("all at once they cannot be converted");

    let converter = state.converter(&kind);
    let mut list = ListConversion::new(&entries);
    let shown = converter.retry_one_by_one(custom, &entries, &mut list, together.clone()).await.unwrap();
    assert_eq!(shown.first().and_then(|thing| thing.str_at(&["apiVersion"])), Some("example.com/v2"));

    list.retry_until = Instant::now();
    let refused =
        converter.retry_one_by_one(custom, &entries, &mut list, together.clone()).await.unwrap_err();
    assert_eq!(refused.message(), together.message());
    server.running.stop().await;
}
