//! Custom resources that are written while the schema of their CRD changes.

use conformance::{Client, Problem, Server, accepts, eventually};
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::{CRDS, PATIENCE, crd, define};

const GROUP: &str = "changing.example.com";
const THINGS: &str = "/apis/changing.example.com/v1/namespaces/default/things";

/// A CRD with the field `extra`, or without it, so that the field is pruned from requests and answers.
fn versions(extra: bool) -> Value {
    let mut spec = json!({"a": {"type": "string", "default": "d"}});
    if extra {
        spec["extra"] = json!({"type": "string"});
    }
    json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}}])
}

async fn change_schema(client: &Client, extra: bool) {
    let body = json!({"spec": {"versions": versions(extra)}});
    let path = format!("{CRDS}/things.{GROUP}");
    let patch = client.send(
        Method::PATCH,
        &path,
        &[("content-type", "application/merge-patch+json")],
        body.to_string().into(),
    );
    accepts(patch.await).unwrap();
}

/// A write that was validated by the old schema may be stored just after the schema changed. It must be shown by the new schema.
#[tokio::test]
async fn objects_written_during_a_schema_change_are_shown_by_the_new_schema() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    define(&client, &crd(GROUP, "things", "Thing", &versions(true))).await;
    for round in 0..6 {
        let write = async |number: usize| {
            let own = client.as_token(client.token());
            for turn in 0..6 {
                let body = json!({"apiVersion": "changing.example.com/v1", "kind": "Thing",
                    "metadata": {"name": format!("t-{round}-{number}-{turn}")}, "spec": {"extra": "x"}});
                accepts(own.post(THINGS, &body).await).unwrap();
            }
        };
        let changing = async {
            for _ in 0..3 {
                change_schema(&client, true).await;
                change_schema(&client, false).await;
            }
        };
        tokio::join!(join_all((0..8).map(write)), changing);
        let shown = eventually(PATIENCE, async || {
            let listed = accepts(client.get(THINGS).await)?;
            let items = listed["items"].as_array().cloned().unwrap_or_default();
            assert_eq!(items.len(), (round + 1) * 48);
            match items.iter().find(|item| item["spec"] != json!({"a": "d"})) {
                Some(wrong) => Err(Problem::new(format!("shown by a former schema: {wrong}"))),
                None => Ok(()),
            }
        });
        shown.await.unwrap();
        let one = accepts(client.get(&format!("{THINGS}/t-{round}-0-5")).await).unwrap();
        assert_eq!(one["spec"], json!({"a": "d"}));
        change_schema(&client, true).await;
    }
}
