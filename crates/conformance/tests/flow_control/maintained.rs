//! The server maintains its FlowSchemas and PriorityLevelConfigurations while it runs: once a minute, as kube-apiserver does.

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::{GROUP, create, level, uids};

/// Longer than the minute between two checks.
const MAINTAINED: Duration = Duration::from_mins(2);
const LEVELS: &str = "prioritylevelconfigurations";
const SCHEMAS: &str = "flowschemas";
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

async fn get(client: &Client, plural: &str, name: &str) -> conformance::Result<Value> {
    accepts(client.get(&format!("{GROUP}/{plural}/{name}")).await)
}

async fn patch(client: &Client, plural: &str, name: &str, patch: Value) {
    let merge = [("content-type", "application/merge-patch+json")];
    let path = format!("{GROUP}/{plural}/{name}");
    accepts(client.send(Method::PATCH, &path, &merge, patch.to_string().into()).await).unwrap();
}

fn annotated(word: &Value) -> Value {
    json!({"annotations": {AUTO_UPDATE: word}})
}

/// Waits until the object exists with this spec and annotation.
async fn becomes(client: &Client, plural: &str, name: &str, spec: &Value, word: &str) -> Value {
    eventually(MAINTAINED, async || {
        let found = get(client, plural, name).await?;
        if found["spec"] == *spec && found["metadata"]["annotations"][AUTO_UPDATE] == word {
            return Ok(found);
        }
        Err(Problem::new(found.to_string()))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn deleted_and_changed_bootstrap_objects_are_restored_while_the_server_runs() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let spec = async |plural: &str, name: &str| get(&client, plural, name).await.unwrap()["spec"].clone();
    let shares = |shares: u32| json!({"limited": {"nominalConcurrencyShares": shares}});

    // Suggested objects whose annotation is false belong to the operator.
    patch(
        &client,
        LEVELS,
        "workload-low",
        json!({"metadata": annotated(&json!("false")), "spec": shares(7)}),
    )
    .await;
    let owned_level = spec(LEVELS, "workload-low").await;
    // The same without the annotation: the changed generation shows that an operator changed the spec.
    patch(&client, LEVELS, "workload-high", json!({"metadata": annotated(&Value::Null), "spec": shares(8)}))
        .await;
    let taken_level = spec(LEVELS, "workload-high").await;
    // Suggested objects with the annotation true are reset.
    let (system, nodes) = (spec(LEVELS, "system").await, spec(SCHEMAS, "system-nodes").await);
    patch(&client, LEVELS, "system", json!({"spec": shares(9)})).await;
    patch(&client, SCHEMAS, "system-nodes", json!({"spec": {"matchingPrecedence": 501}})).await;
    // Mandatory objects are never given to an operator: their specs cannot be changed, and their annotation is reset.
    let merge = [("content-type", "application/merge-patch+json")];
    for (plural, name, change) in
        [(LEVELS, "catch-all", shares(9)), (SCHEMAS, "exempt", json!({"matchingPrecedence": 2}))]
    {
        let change = json!({"spec": change}).to_string();
        let path = format!("{GROUP}/{plural}/{name}");
        rejects(client.send(Method::PATCH, &path, &merge, change.into()).await, 422, "Invalid").unwrap();
    }
    let exempt = spec(SCHEMAS, "exempt").await;
    patch(&client, SCHEMAS, "exempt", json!({"metadata": annotated(&json!("false"))})).await;
    // Deleted objects are created again: mandatory and suggested ones.
    let mut deleted = Vec::new();
    for (plural, name) in [
        (LEVELS, "exempt"),
        (LEVELS, "catch-all"),
        (SCHEMAS, "catch-all"),
        (LEVELS, "global-default"),
        (SCHEMAS, "service-accounts"),
    ] {
        let before = get(&client, plural, name).await.unwrap();
        accepts(client.delete(&format!("{GROUP}/{plural}/{name}")).await).unwrap();
        deleted.push((plural, name, before));
    }
    // Meanwhile requests are still classified: those of administrators are exempt.
    assert_eq!(client.get("/version").await.unwrap().code, 200);
    // An object that only an older server maintained is deleted at the end of a check.
    let mut obsolete = level("left-over", 1, &json!({"type": "Reject"}));
    obsolete["metadata"]["annotations"] = json!({AUTO_UPDATE: "true"});
    create(&client, LEVELS, &obsolete).await;

    for (plural, name, before) in deleted {
        let restored = becomes(&client, plural, name, &before["spec"], "true").await;
        assert_ne!(restored["metadata"]["uid"], before["metadata"]["uid"], "{plural}/{name}");
        let managers = restored["metadata"]["managedFields"].as_array().unwrap();
        let producer = "api-priority-and-fairness-config-producer-v1";
        assert!(managers.iter().any(|entry| entry["manager"] == producer), "{plural}/{name}");
    }
    becomes(&client, LEVELS, "system", &system, "true").await;
    becomes(&client, SCHEMAS, "system-nodes", &nodes, "true").await;
    becomes(&client, SCHEMAS, "exempt", &exempt, "true").await;
    becomes(&client, LEVELS, "workload-high", &taken_level, "false").await;
    eventually(MAINTAINED, async || {
        rejects(client.get(&format!("{GROUP}/{LEVELS}/left-over")).await, 404, "NotFound").map(drop)
    })
    .await
    .unwrap();
    let owned = get(&client, LEVELS, "workload-low").await.unwrap();
    assert_eq!(owned["spec"], owned_level, "the operator's spec stays");
    assert_eq!(owned["metadata"]["annotations"][AUTO_UPDATE], "false");
    // The restored objects are in force.
    let alice = client.as_token(Some("alicetoken"));
    let (schema, level) = uids(&alice.get("/version").await.unwrap());
    assert_eq!(
        schema,
        get(&client, SCHEMAS, "global-default").await.unwrap()["metadata"]["uid"].as_str().unwrap()
    );
    assert_eq!(
        level,
        get(&client, LEVELS, "global-default").await.unwrap()["metadata"]["uid"].as_str().unwrap()
    );
}
