//! `portcullis snapshot` and the path that it saves from: consistency, permissions, limits, interruptions.
//!
//! `PORTCULLIS_ROUNDS` sets the number of kills, `PORTCULLIS_SEED` their times.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod access;
mod consistency;
mod formats;
mod kills;
mod limits;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use conformance::server::run_to_end;
use conformance::{Client, HttpResponse, Problem, accepts};
use http::Method;
use serde_json::{Value, json};

const PATH: &str = "/portcullis/snapshot";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs `portcullis snapshot` and returns its exit code and output.
async fn snapshot(args: &[&str]) -> (Option<i32>, String) {
    let mut all = vec!["snapshot"];
    all.extend(args);
    run_to_end(&all, PATIENCE).await.unwrap()
}

/// Like [`snapshot`], and expects success.
async fn snapshot_succeeds(args: &[&str]) -> String {
    let (code, said) = snapshot(args).await;
    assert_eq!(code, Some(0), "{said}");
    said
}

/// The verified status of a snapshot file.
async fn status(file: &Path) -> Value {
    let said = snapshot_succeeds(&["status", text(file), "-o", "json"]).await;
    serde_json::from_str(&said).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asks the server for a snapshot.
async fn post(client: &Client) -> Result<HttpResponse, Problem> {
    client.send(Method::POST, PATH, &[], Bytes::new()).await
}

/// Creates ConfigMaps of some megabytes.
async fn fill(client: &Client, megabytes: usize) {
    for number in 0..megabytes {
        let map =
            json!({"metadata": {"name": format!("large-{number}")}, "data": {"x": "x".repeat(1_000_000)}});
        accepts(client.post(MAPS, &map).await).unwrap();
    }
}
