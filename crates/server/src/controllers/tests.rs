use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use controllers::{ControllerOptions, ResourceKind, StoredBy};
use documents::discovery::{self, RemoteVersion, of_custom_version};
use value::{Value, json};

use super::{access, aggregate, collection, elsewhere, is_segment, items, path};
use crate::Ephemeral;
use crate::client::LoopbackClient;

const PATIENCE: Duration = Duration::from_secs(30);

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn only_pods_of_deleted_nodes_fail_and_are_deleted() {
    let server = Ephemeral::start_with(|config| config.controllers.enabled = false).await.unwrap();
    let admin = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    admin.create("/api/v1/nodes", &parse(r#"{"metadata":{"name":"here"}}"#)).await.unwrap();
    admin
        .create("/api/v1/namespaces/default/serviceaccounts", &parse(r#"{"metadata":{"name":"default"}}"#))
        .await
        .unwrap();
    for (name, node, held) in [("lost", "gone", false), ("held", "gone", true), ("kept", "here", false)] {
        let mut pod = parse(r#"{"spec":{"containers":[{"name":"c","image":"i"}]}}"#);
        pod.set_at(&["metadata", "name"], name);
        pod.set_at(&["spec", "nodeName"], node);
        if held {
            pod.set_at(&["metadata", "finalizers"], Value::list(["example.com/held"]));
        }
        admin.create("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    }

    let options = ControllerOptions {
        node_quarantine: Duration::from_millis(20),
        ..ControllerOptions::new(None, aggregate)
    };
    let state = server.running.state();
    let controllers = tokio::spawn(controllers::start(access(state), options, state.draining()));
    let deadline = Instant::now() + PATIENCE;
    let held = loop {
        let lost = admin.get("/api/v1/namespaces/default/pods/lost").await;
        let held = admin.get("/api/v1/namespaces/default/pods/held").await.unwrap();
        if lost.is_err_and(|status| status.code() == 404) && api::meta::is_deleting(&held) {
            break held;
        }
        assert!(Instant::now() < deadline, "the pods are still there: {held:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(held.str_at(&["status", "phase"]), Some("Failed"));
    let conditions = held.list_at(&["status", "conditions"]);
    let target = conditions.iter().find(|c| c.str_at(&["type"]) == Some("DisruptionTarget")).unwrap();
    assert_eq!(target.str_at(&["reason"]), Some("DeletionByPodGC"));
    let running_pod = admin.get("/api/v1/namespaces/default/pods/kept").await.unwrap();
    assert!(!api::meta::is_deleting(&running_pod));
    server.running.stop().await;
    tokio::time::timeout(PATIENCE, controllers).await.expect("they stop with the server").unwrap();
}

#[test]
fn only_list_responses_are_read_as_lists_and_an_empty_page_must_be_the_last() {
    for (answer, count) in [
        (r#"{"kind":"FlunderList","items":[]}"#, 0),
        (r#"{"kind":"FlunderList","items":null}"#, 0),
        (r#"{"kind":"FlunderList"}"#, 0),
        (r#"{"items":[{}]}"#, 1),
        (r#"{"kind":"FlunderList","metadata":{"continue":"x"},"items":[{}]}"#, 1),
    ] {
        assert_eq!(items(parse(answer)).map(|items| items.len()), Ok(count), "{answer}");
    }
    for answer in [
        "null",
        "[]",
        r#""FlunderList""#,
        "{}",
        r#"{"items":null}"#,
        r#"{"kind":"Status","status":"Success"}"#,
        r#"{"kind":"FlunderList","items":{}}"#,
        r#"{"kind":"FlunderList","items":"none"}"#,
        r#"{"kind":"FlunderList","metadata":{"continue":"x"},"items":[]}"#,
        r#"{"kind":"FlunderList","metadata":{"continue":"x"},"items":null}"#,
        r#"{"kind":"FlunderList","metadata":{"continue":"x"}}"#,
    ] {
        assert!(items(parse(answer)).is_err(), "{answer}");
    }
}

/// A version of an aggregated API server that serves `flunders` and `resource`, and two resources to ignore.
fn serving(resource: &str) -> RemoteVersion {
    let text = r#"{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[
        {"resource":"flunders","scope":"Namespaced","verbs":["list","delete"]},
        {"resource":"R","scope":"Namespaced","verbs":["list","delete"]},
        {"resource":"cluster/wide","scope":"Cluster","verbs":["list","delete"]},
        {"resource":"only/shown","scope":"Namespaced","verbs":["list"]}]}]}"#;
    let list = parse(&format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{}]}}"#,
        text.replace("\"R\"", resource)
    ));
    let entry = Arc::new(discovery::aggregated_versions(&list, "g", "v1").unwrap());
    RemoteVersion { registration: of_custom_version("g", "v1"), entry }
}

#[test]
fn discovered_resources_with_invalid_path_names_are_rejected() {
    let found = elsewhere(vec![serving("\"fishers\"")]);
    let names: Vec<&str> = found.kinds.iter().map(|kind| kind.plural.as_str()).collect();
    assert_eq!((names.as_slice(), found.unknown.len()), (["flunders", "fishers"].as_slice(), 0));
    for (resource, why) in [
        (r#""a/b/exec""#, r#"invalid resource name "a/b/exec": [may not contain '/']"#),
        (r#""a%2fexec""#, r#"invalid resource name "a%2fexec": [may not contain '%']"#),
        (r#""..""#, r#"invalid resource name "..": [may not be '..']"#),
        (r#""""#, "name is required"),
    ] {
        let found = elsewhere(vec![serving(resource)]);
        let unknown = found.unknown.first().unwrap();
        assert_eq!((unknown.version.as_str(), unknown.why.as_str()), ("g/v1", why));
    }
    let long = is_segment(&"/".repeat(1 << 20)).unwrap_err();
    assert!(long.len() < 1 << 13, "{}", long.len());
}

#[test]
fn names_are_escaped_as_single_path_segments() {
    let kind = Arc::new(ResourceKind {
        group: "g".into(),
        version: "v1".into(),
        kind: "K".into(),
        plural: "ks?watch=1".into(),
        namespaced: true,
        deletable: true,
        deletes_collections: true,
        stored_by: StoredBy::AggregatedServer,
    });
    assert_eq!(collection(&kind, "n"), "/apis/g/v1/namespaces/n/ks%3Fwatch=1");
    assert_eq!(
        path(&kind.object_ref("n", "a?b#c"), "status"),
        "/apis/g/v1/namespaces/n/ks%3Fwatch=1/a%3Fb%23c/status"
    );
}
