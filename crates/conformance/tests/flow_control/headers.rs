//! The headers that name the FlowSchema and the priority level of a request, on answers that are no single object of this server.

use conformance::aggregated_server::{AggregatedReply, AggregatedServer};
use conformance::{Client, Server, accepts};
use http::HeaderMap;
use serde_json::json;

use crate::{MAPS, allow_maps, create, level, schema, uids};

const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";

/// All values of the two headers.
fn all(headers: &HeaderMap) -> (Vec<&str>, Vec<&str>) {
    let of = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
    (of(SCHEMA_UID), of(LEVEL_UID))
}

/// Creates a level for the requests of alice. Returns the uids of its schema and of itself.
async fn level_of_alice(client: &Client) -> (String, String) {
    let level = level("mine", 20, &json!({"type": "Reject"}));
    let level = create(client, "prioritylevelconfigurations", &level).await;
    let schema = create(client, "flowschemas", &schema("mine", "mine", 100, &["alice"])).await;
    (schema, level)
}

#[tokio::test]
async fn watches_have_the_classification_headers() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let (schema, level) = level_of_alice(&client).await;
    let alice = client.as_token(Some("alicetoken"));
    for query in [
        "watch=1",
        "watch=1&resourceVersion=1",
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ] {
        let watch = alice.events(&format!("{MAPS}?{query}"), &[]).await.unwrap();
        assert_eq!(all(&watch.headers), (vec![schema.as_str()], vec![level.as_str()]), "{query}");
    }
    // A watch of a path that alice may not read is classified, too.
    let forbidden = alice.get("/api/v1/secrets?watch=1").await.unwrap();
    assert_eq!((forbidden.code, uids(&forbidden)), (403, (schema, level)));
}

#[tokio::test]
async fn the_headers_of_an_aggregated_server_come_after_those_of_this_server() {
    const ITEMS: &str = "/apis/wardle.example.com/v1/fischers";
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let (schema, level) = level_of_alice(&client).await;
    let extension = AggregatedServer::start("wardle.default.svc", None, |received| {
        let theirs = if received.path() == ITEMS {
            vec![(SCHEMA_UID, "their-schema"), (LEVEL_UID, "their-level")]
        } else {
            Vec::new()
        };
        AggregatedReply::Raw(200, "application/json", theirs, "{}".to_owned())
    })
    .await
    .unwrap();
    extension.register(&client, "wardle", "wardle.example.com").await.unwrap();
    let rules = json!([{"apiGroups": ["wardle.example.com"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"metadata": {"name": "fischers"}, "rules": rules});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await).unwrap();
    let binding = json!({"metadata": {"name": "fischers"}, "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "fischers", "apiGroup": "rbac.authorization.k8s.io"}});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await).unwrap();
    let alice = client.as_token(Some("alicetoken"));
    let answer = alice.get(ITEMS).await.unwrap();
    assert_eq!(answer.code, 200, "{}", answer.text());
    let expected = (vec![schema.as_str(), "their-schema"], vec![level.as_str(), "their-level"]);
    assert_eq!(all(&answer.headers), expected);
    // Without headers of the other server there is one value.
    let answer = alice.get(&format!("{ITEMS}/a")).await.unwrap();
    assert_eq!(all(&answer.headers), (vec![schema.as_str()], vec![level.as_str()]));
}
