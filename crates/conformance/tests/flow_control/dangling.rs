//! The `Dangling` condition of flow schemas whose priority level does not exist.

use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::{Value, json};

use crate::{GROUP, SOON, create, level, schema, uids};

/// Waits until the only condition of a flow schema is `Dangling` with this status, and returns it.
async fn dangling(client: &Client, name: &str, status: &str) -> Value {
    eventually(SOON, async || {
        let stored = accepts(client.get(&format!("{GROUP}/flowschemas/{name}")).await)?;
        match stored["status"]["conditions"].as_array().map(Vec::as_slice) {
            Some([condition]) if condition["type"] == "Dangling" && condition["status"] == status => {
                Ok(condition.clone())
            }
            _ => Err(Problem::new(stored["status"].to_string())),
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_flow_schema_is_dangling_until_its_level_is_created() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let alice = client.as_token(Some("alicetoken"));
    let other = uids(&alice.get("/version").await.unwrap());
    let schema = create(&client, "flowschemas", &schema("early", "late", 1000, &["alice"])).await;
    let condition = dangling(&client, "early", "True").await;
    assert_eq!(condition["reason"], "NotFound");
    assert_eq!(
        condition["message"],
        "This FlowSchema references the PriorityLevelConfiguration object named \"late\" but there is no such object"
    );
    assert_eq!(uids(&alice.get("/version").await.unwrap()), other, "a dangling flow schema matches nothing");

    let late = level("late", 1, &json!({"type": "Reject"}));
    let level = create(&client, "prioritylevelconfigurations", &late).await;
    let condition = dangling(&client, "early", "False").await;
    assert_eq!(condition["reason"], "Found");
    assert_eq!(
        condition["message"],
        "This FlowSchema references the PriorityLevelConfiguration object named \"late\" and it exists"
    );
    assert_eq!(uids(&alice.get("/version").await.unwrap()), (schema.clone(), level));

    // The condition follows the spec of the flow schema, too.
    let path = format!("{GROUP}/flowschemas/early");
    let patch = json!({"spec": {"priorityLevelConfiguration": {"name": "never"}}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    accepts(client.send(http::Method::PATCH, &path, &merge, patch.into()).await).unwrap();
    assert_eq!(dangling(&client, "early", "True").await["reason"], "NotFound");
    assert_eq!(uids(&alice.get("/version").await.unwrap()), other);
}
