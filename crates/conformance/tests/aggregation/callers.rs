//! Identity of users at aggregated API servers: authenticated here, sent in headers of the front proxy.

use bytes::Bytes;
use conformance::aggregated_server::{AggregatedReply, AggregatedServer};
use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::json;

use crate::both_servers::{
    FISCHERS, GROUP, NAME, SERVICES, create_service, fischers, service, start_both, wait_for_condition,
    without_aggregated_discovery,
};

#[tokio::test]
async fn users_are_sent_in_front_proxy_headers_and_client_headers_are_dropped() {
    let (_server, client, extension) = start_both(without_aggregated_discovery).await;
    let claimed = [
        ("x-remote-user", "somebody"),
        ("x-remote-group", "somebodies"),
        ("X-Remote-Extra-Scopes", "everything"),
        ("x-forwarded-for", "198.51.100.1"),
        ("x-own", "kept"),
        ("audit-id", "an-audit-id"),
    ];
    let target = format!("{FISCHERS}?labelSelector=b%3D2&limit=5&allowWatchBookmarks=true");
    let answer = client.send(Method::GET, &target, &claimed, Bytes::new()).await.unwrap();
    assert_eq!((answer.code, answer.json()), (200, fischers()));
    assert_eq!(answer.header("audit-id"), "an-audit-id");
    assert_eq!(answer.header("cache-control"), "no-cache, private");
    for object in ["flowschemas", "prioritylevelconfigurations"] {
        let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{object}/exempt");
        let exempt = accepts(client.get(&path).await).unwrap();
        let header = format!(
            "x-kubernetes-pf-{}-uid",
            object.trim_end_matches("configurations").trim_end_matches('s')
        );
        assert_eq!(answer.header(&header), exempt["metadata"]["uid"], "{header}");
    }
    let received = extension.received_for_others();
    let [received] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!(received.target, format!("{FISCHERS}?allowWatchBookmarks=true&labelSelector=b%3D2&limit=5"));
    assert_eq!(received.all("x-remote-user"), ["kubernetes-admin"]);
    assert_eq!(received.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert!(received.all("x-remote-extra-scopes").is_empty());
    assert_eq!(received.header("x-forwarded-for"), "198.51.100.1, 127.0.0.1");
    assert_eq!(received.header("x-forwarded-uri"), FISCHERS);
    assert_eq!(received.header("x-own"), "kept");
    assert_eq!(received.header("audit-id"), "an-audit-id");
    assert!(received.header("authorization").is_empty());
}

#[tokio::test]
async fn requests_are_authorized_by_the_path_that_is_forwarded() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let extension =
        AggregatedServer::start("wardle.default.svc", None, without_aggregated_discovery).await.unwrap();
    create_service(&client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    wait_for_condition(&client, NAME, "True", "Passed").await;

    let as_alice =
        [("impersonate-user", "alice"), ("impersonate-group", "devs"), ("impersonate-extra-scopes", "a b")];
    let ask = async |path: &str| client.send(Method::GET, path, &as_alice, Bytes::new()).await;
    let status = rejects(ask(FISCHERS).await, 403, "Forbidden").unwrap();
    let words = "fischers.wardle.example.com is forbidden: User \"alice\" cannot list resource \"fischers\" in API group \"wardle.example.com\" at the cluster scope";
    assert_eq!(status["message"], words);
    assert!(extension.received_for_others().is_empty(), "a request that was not authorized went on");

    let rules = json!([{"apiGroups": [GROUP], "resources": ["fischers"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "fischers"}, "rules": rules});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await).unwrap();
    let binding = json!({"metadata": {"name": "fischers"}, "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "fischers", "apiGroup": "rbac.authorization.k8s.io"}});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await).unwrap();
    accepts(ask(FISCHERS).await).unwrap();
    let received = extension.received_for_others();
    let received = received.last().unwrap();
    assert_eq!(received.all("x-remote-user"), ["alice"]);
    assert_eq!(received.all("x-remote-group"), ["devs", "system:authenticated"]);
    assert_eq!(received.all("x-remote-extra-scopes"), ["a b"]);
    assert!(received.headers.keys().all(|name| !name.as_str().starts_with("impersonate-")));
    assert!(received.header("authorization").is_empty());
    // A path that the other server would normalize to another one is not forwarded.
    rejects(ask("/apis/wardle.example.com/v1alpha1/namespaces%2Fdefault%2Fsecrets").await, 403, "Forbidden")
        .unwrap();
    // A path with an empty first segment belongs to no server.
    let doubled = client.get(&format!("/{FISCHERS}")).await.unwrap();
    assert_eq!((doubled.code, doubled.text().as_str()), (404, "404 page not found\n"));
    assert_eq!(client.get("//api/v1/namespaces").await.unwrap().code, 404);
    // Anonymous requests are not forwarded.
    rejects(client.as_token(Some("wrong")).get(FISCHERS).await, 401, "Unauthorized").unwrap();
}

#[tokio::test]
async fn webhooks_served_by_aggregated_servers_are_called_through_the_aggregator() {
    let gate = "--feature-gates=APIServerWebhookAuthenticationToken=true";
    let server = Server::serve(&[gate]).await.unwrap();
    let client = server.client().unwrap();
    let reviews = "/apis/wardle.example.com/v1alpha1/reviews";
    let extension = AggregatedServer::start("wardle.default.svc", None, move |received| {
        if received.path() != reviews {
            return without_aggregated_discovery(received);
        }
        let uid = &received.body["request"]["uid"];
        let refused = received.body["request"]["name"] == "bad";
        AggregatedReply::Json(
            200,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
                "uid": uid, "allowed": !refused, "status": {"message": "wardle says no", "code": 403}}}),
        )
    })
    .await
    .unwrap();
    create_service(&client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    wait_for_condition(&client, NAME, "True", "Passed").await;
    let own = json!({"service": {"namespace": "default", "name": "kubernetes", "path": reviews}});
    let hook = json!({"name": "wardle.example.com", "clientConfig": own, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = json!({"metadata": {"name": "wardle"}, "webhooks": [hook]});
    accepts(client.post(configurations, &configuration).await).unwrap();

    let maps = "/api/v1/namespaces/default/configmaps";
    accepts(client.post(maps, &json!({"metadata": {"name": "good"}})).await).unwrap();
    let status = rejects(client.post(maps, &json!({"metadata": {"name": "bad"}})).await, 403, "").unwrap();
    assert_eq!(
        status["message"],
        "admission webhook \"wardle.example.com\" denied the request: wardle says no"
    );
    let received = extension.received_for_others();
    let received = received.iter().find(|received| received.path() == reviews).unwrap();
    // The front proxy authenticates with its certificate, so no webhook token is needed.
    assert_eq!(received.all("x-remote-user"), ["system:apiserver"]);
    assert!(received.header("authorization").is_empty());
    assert!(received.target.ends_with("?timeout=10s"), "{}", received.target);

    // Without an endpoint, the failure policy decides.
    accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
    let refused = client.post(maps, &json!({"metadata": {"name": "more"}})).await;
    let status = rejects(refused, 500, "InternalError").unwrap();
    assert!(status["message"].as_str().unwrap().contains("failed calling webhook"), "{status}");
}
