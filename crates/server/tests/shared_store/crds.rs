//! Custom resources with two servers.

use std::time::Instant;

use crate::servers::{PATIENCE, Servers, code};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_resource_is_served_by_both_servers_at_once() {
    let servers = Servers::start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    servers
        .create(
            crds,
            r#"{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#,
        )
        .await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let begin = Instant::now();
    while servers.one.get(things).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "the resource is not served");
        tokio::task::yield_now().await;
    }
    servers.two.get(things).await.unwrap();
    assert_eq!(code(servers.two.get("/apis/nowhere.example.com/v1/things").await), 404);
}
