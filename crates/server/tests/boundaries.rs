//! Requests that must be denied, tested on a server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use heavy_lane::Effort;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use server::Ephemeral;
use server::call::RequestBody;
use server::client::LoopbackClient;
use server::pipeline::{self, InternalRequest};
use server::state::State;
use value::{Value, json};

const ROBOT: InternalIdentity<'static> =
    InternalIdentity::ServiceAccount { namespace: "mine", name: "robot" };

/// A server on which the service account `robot` may do everything in the namespace `mine`, and nothing elsewhere.
async fn server() -> (Ephemeral, LoopbackClient, LoopbackClient) {
    let server = Ephemeral::start().await.unwrap();
    let state = server.running.state();
    let admin = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    let robot = LoopbackClient::new(Arc::clone(state), ROBOT);
    for namespace in ["mine", "other"] {
        create(&admin, "/api/v1/namespaces", &format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#)).await;
        for name in ["a", "b"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            create(
                &admin,
                &path,
                &format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{namespace}"}}}}"#),
            )
            .await;
        }
    }
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine";
    let role = r#"{"metadata":{"name":"all"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#;
    create(&admin, &format!("{rbac}/roles"), role).await;
    let binding = r#"{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"all"},
        "subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"mine"}]}"#;
    create(&admin, &format!("{rbac}/rolebindings"), binding).await;
    (server, admin, robot)
}

async fn create(client: &LoopbackClient, path: &str, object: &str) -> Value {
    client.create(path, &json::parse(object.as_bytes()).unwrap()).await.unwrap()
}

async fn code(client: &LoopbackClient, method: Method, path: &str, body: Option<&str>) -> u16 {
    let body = body.map(|b| json::parse(b.as_bytes()).unwrap());
    match client.request(method, path, "application/json", body.as_ref()).await {
        Ok(_) => 200,
        Err(status) => status.code(),
    }
}

/// The first bytes of a watch response.
async fn watch(state: &Arc<State>, path: &str) -> String {
    let caller = Caller::internal(InternalIdentity::ApiServer);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let request = InternalRequest {
        caller,
        method: Method::GET,
        target: path,
        headers,
        body: RequestBody::Here(Bytes::new()),
        effort: Effort::default(),
    };
    let response = pipeline::internal(state, request).await;
    let mut stream = response.into_body().into_stream().unwrap();
    String::from_utf8(stream.recv().await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn rights_in_one_namespace_do_not_reach_another() {
    let (server, admin, robot) = server().await;
    assert_eq!(code(&robot, Method::GET, "/api/v1/namespaces/mine/configmaps/a", None).await, 200);
    assert_eq!(code(&robot, Method::GET, "/api/v1/namespaces/mine", None).await, 200);
    for path in [
        "/api/v1/namespaces/mine/namespaces/other",
        "/api/v1/namespaces/mine/namespaces/mine",
        "/api/v1/namespaces/mine/namespaces",
        "/api/v1/namespaces/mine/nodes/n",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/clusterroles/view",
    ] {
        for method in [Method::GET, Method::DELETE, Method::PATCH] {
            let found = code(&robot, method.clone(), path, Some("{}")).await;
            assert!(found == 404 || found == 405, "{method} {path}: {found}");
        }
    }
    for path in ["/api/v1/namespaces/other/configmaps/a", "/api/v1/namespaces/other", "/api/v1/configmaps"] {
        assert_eq!(code(&robot, Method::GET, path, None).await, 403, "{path}");
    }
    assert_eq!(code(&admin, Method::GET, "/api/v1/namespaces/other", None).await, 200);
    server.running.stop().await;
}

#[tokio::test]
async fn an_object_cannot_be_smuggled_into_another_namespace_or_under_another_name() {
    let (server, _, robot) = server().await;
    let elsewhere = r#"{"metadata":{"name":"x","namespace":"other"}}"#;
    assert_eq!(code(&robot, Method::POST, "/api/v1/namespaces/mine/configmaps", Some(elsewhere)).await, 400);
    let renamed = r#"{"metadata":{"name":"b"}}"#;
    assert_eq!(code(&robot, Method::PUT, "/api/v1/namespaces/mine/configmaps/a", Some(renamed)).await, 400);
    assert_eq!(code(&robot, Method::POST, "/api/v1/namespaces/mine/configmaps/a", Some(renamed)).await, 405);
    server.running.stop().await;
}

#[tokio::test]
async fn writes_with_an_unacceptable_accept_header_are_refused_without_effect() {
    let (server, admin, _) = server().await;
    let maps = "/api/v1/namespaces/mine/configmaps";
    let cases = [
        (Method::POST, maps.to_owned(), "text/plain", 406),
        (Method::PUT, format!("{maps}/a"), "application/pdf", 406),
        (Method::DELETE, format!("{maps}/a"), "text/plain", 406),
        (Method::DELETE, maps.to_owned(), "text/plain", 406),
        (
            Method::DELETE,
            maps.to_owned(),
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            406,
        ),
        (
            Method::POST,
            maps.to_owned(),
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            406,
        ),
        (
            Method::POST,
            format!("{maps}?includeObject=x"),
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            400,
        ),
    ];
    let before = admin.get(maps).await.unwrap();
    for (method, path, accept, wanted) in cases {
        let caller = Caller::internal(InternalIdentity::ApiServer);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let name = if method == Method::PUT { "a" } else { "new" };
        let body = Bytes::from(format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"other":"x"}}}}"#));
        let body = if method == Method::DELETE { Bytes::new() } else { body };
        let state = server.running.state();
        let request = InternalRequest {
            caller,
            method: method.clone(),
            target: &path,
            headers,
            body: RequestBody::Here(body),
            effort: Effort::default(),
        };
        let answer = pipeline::internal(state, request).await;
        assert_eq!(answer.status().as_u16(), wanted, "{method} {path} {accept}");
    }
    let after = admin.get(maps).await.unwrap();
    assert_eq!(after.list_at(&["items"]), before.list_at(&["items"]));
    server.running.stop().await;
}

#[tokio::test]
async fn a_deleted_role_binding_takes_effect_on_the_next_request() {
    let (server, admin, robot) = server().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings";
    let read = "/api/v1/namespaces/mine/configmaps/a";
    let binding = admin.get(&format!("{bindings}/all")).await.unwrap();
    for round in 0..40 {
        assert_eq!(code(&robot, Method::GET, read, None).await, 200, "round {round}");
        let gone = if round % 2 == 0 { format!("{bindings}/all") } else { bindings.to_owned() };
        admin.request(Method::DELETE, &gone, "application/json", None).await.unwrap();
        assert_eq!(code(&robot, Method::GET, read, None).await, 403, "round {round}");
        let mut again = binding.clone();
        again.remove_at(&["metadata", "resourceVersion"]);
        admin.create(bindings, &again).await.unwrap();
    }
    server.running.stop().await;
}

#[tokio::test]
async fn a_watch_of_a_single_object_delivers_only_that_object() {
    let (server, admin, _) = server().await;
    let state = server.running.state();
    let shown = watch(state, "/api/v1/watch/namespaces/mine/configmaps/a").await;
    assert!(shown.contains(r#""name":"a""#) && !shown.contains(r#""name":"b""#), "{shown}");
    let all = watch(state, "/api/v1/namespaces/mine/configmaps?watch=1").await;
    assert!(all.contains(r#""name":"a""#) && all.contains(r#""name":"b""#), "{all}");
    assert_eq!(
        code(&admin, Method::POST, "/api/v1/watch/namespaces/mine/configmaps/a", Some("{}")).await,
        405
    );
    server.running.stop().await;
}

#[tokio::test]
async fn a_collection_is_deleted_in_one_namespace_only() {
    let (server, admin, robot) = server().await;
    assert_eq!(code(&admin, Method::DELETE, "/api/v1/configmaps", None).await, 405);
    assert_eq!(code(&robot, Method::DELETE, "/api/v1/namespaces/other/configmaps", None).await, 403);
    assert_eq!(code(&robot, Method::DELETE, "/api/v1/namespaces/mine/configmaps", None).await, 200);
    assert_eq!(code(&admin, Method::GET, "/api/v1/namespaces/mine/configmaps/a", None).await, 404);
    assert_eq!(code(&admin, Method::GET, "/api/v1/namespaces/other/configmaps/a", None).await, 200);
    server.running.stop().await;
}

#[tokio::test]
async fn a_caller_cannot_grant_rights_that_it_lacks() {
    let (server, _, robot) = server().await;
    let binding = |role: &str| {
        format!(
            r#"{{"metadata":{{"name":"more"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"{role}"}},
            "subjects":[{{"kind":"ServiceAccount","name":"robot","namespace":"mine"}}]}}"#
        )
    };
    let cluster = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(code(&robot, Method::POST, cluster, Some(&binding("view"))).await, 403);
    let own = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings";
    assert_eq!(code(&robot, Method::POST, own, Some(&binding("view"))).await, 200);
    server.running.stop().await;
}

#[tokio::test]
async fn many_owner_references_are_validated_quickly() {
    let (server, _, robot) = server().await;
    let owners: Vec<String> = (0..40_000)
        .map(|i| format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"p","uid":"{i}","controller":true}}"#))
        .collect();
    let object = format!(r#"{{"metadata":{{"name":"x","ownerReferences":[{}]}}}}"#, owners.join(","));
    assert_eq!(code(&robot, Method::POST, "/api/v1/namespaces/mine/configmaps", Some(&object)).await, 422);
    server.running.stop().await;
}
