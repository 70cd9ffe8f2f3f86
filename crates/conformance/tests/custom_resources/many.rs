//! Hundreds of CRDs, as operators install them.

use std::time::Instant;

use conformance::{Client, Problem, Server, accepts, eventually};
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use serde_json::json;

use super::{CRDS, PATIENCE, crd, is_established};

async fn create_crds(client: &Client, from: usize, to: usize) {
    let one = |number: usize| async move {
        let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}]);
        let group = format!("g{}.many.example.com", number % 20);
        let body = crd(&group, &format!("kinds{number}"), &format!("Kind{number}"), &versions);
        accepts(client.clone().as_token(client.token()).post(CRDS, &body).await).unwrap();
    };
    iter(from..to).map(one).buffer_unordered(8).collect::<Vec<()>>().await;
    eventually(PATIENCE, async || {
        let listed = accepts(client.get(CRDS).await)?;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        let established = items.iter().filter(|crd| is_established(crd)).count();
        if established == to {
            Ok(())
        } else {
            Err(Problem::new(format!("{established} of {to} are established")))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn hundreds_of_crds_are_established_and_served() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let begun = Instant::now();
    create_crds(&client, 0, 100).await;
    let first = begun.elapsed();
    let begun = Instant::now();
    create_crds(&client, 100, 400).await;
    println!("100 definitions: {first:?}; 300 more: {:?}", begun.elapsed());
    for number in [0, 137, 399] {
        let path = format!("/apis/g{}.many.example.com/v1/kinds{number}", number % 20);
        assert_eq!(accepts(client.get(&path).await).unwrap()["items"], json!([]));
    }
}

/// CRDs are created, changed and deleted concurrently; no change may be lost.
#[tokio::test]
async fn concurrently_changed_crds_are_served_as_they_are_stored() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let one = |number: usize| {
        let client = client.as_token(client.token());
        async move {
            let versions = |names: &[&str]| -> serde_json::Value {
                names
                    .iter()
                    .enumerate()
                    .map(|(at, name)| {
                        json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema":
                            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
                    })
                    .collect()
            };
            let plural = format!("races{number}");
            let mut body = crd("race.example.com", &plural, &format!("Race{number}"), &versions(&["v1"]));
            accepts(client.post(CRDS, &body).await).unwrap();
            let path = format!("{CRDS}/{plural}.race.example.com");
            // Concurrently with the controller that writes the status.
            eventually(PATIENCE, async || {
                body["metadata"]["resourceVersion"] =
                    accepts(client.get(&path).await)?["metadata"]["resourceVersion"].clone();
                body["spec"]["versions"] = versions(&["v1", "v2"]);
                accepts(client.json(http::Method::PUT, &path, &body).await)
            })
            .await
            .unwrap();
            if number.is_multiple_of(3) {
                accepts(client.delete(&path).await).unwrap();
                eventually(PATIENCE, async || match client.get(&path).await?.code {
                    404 => Ok(()),
                    code => Err(Problem::new(format!("{plural} is still there: {code}"))),
                })
                .await
                .unwrap();
            }
        }
    };
    iter(0..60).map(one).buffer_unordered(16).collect::<Vec<()>>().await;
    for number in 0..60 {
        let wanted = if number % 3 == 0 { 404 } else { 200 };
        for version in ["v1", "v2"] {
            let path = format!("/apis/race.example.com/{version}/races{number}");
            eventually(PATIENCE, async || match client.get(&path).await?.code {
                code if code == wanted => Ok(()),
                code => Err(Problem::new(format!("{path}: {code}, not {wanted}"))),
            })
            .await
            .unwrap();
        }
    }
}
