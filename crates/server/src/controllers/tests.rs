use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use controllers::Options;
use value::{Value, json};

use super::{aggregate, start_with};
use crate::Ephemeral;
use crate::client::Client;

const PATIENCE: Duration = Duration::from_secs(30);

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_pod_of_a_node_that_is_gone_fails_and_goes_and_one_of_a_node_that_is_there_stays() {
    let server = Ephemeral::start_with(|config| config.controllers = false).await.unwrap();
    let admin = Client::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
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

    let options = Options { node_quarantine: Duration::from_millis(20), ..Options::new(None, aggregate) };
    let controllers = start_with(server.running.state(), options);
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
    let kept = admin.get("/api/v1/namespaces/default/pods/kept").await.unwrap();
    assert!(!api::meta::is_deleting(&kept));
    server.running.stop().await;
    tokio::time::timeout(PATIENCE, controllers).await.expect("they stop with the server").unwrap();
}
