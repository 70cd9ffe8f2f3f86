//! A CRD of two megabytes may have 20,000 versions, each of which is in discovery and in OpenAPI.

use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::{Value, json};

use crate::callers::{SOON, metric};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates a CRD with `count` versions and waits until all are served.
async fn define(admin: &Client, plural: &str, versions: usize) {
    let listed: Vec<Value> = (1..=versions)
        .map(|number| {
            json!({"name": format!("v{number}"), "served": true, "storage": number == 1,
                "schema": {"openAPIV3Schema": {"type": "object"}}})
        })
        .collect();
    let crd = json!({
        "metadata": {"name": format!("{plural}.{plural}.example.com")},
        "spec": {
            "group": format!("{plural}.example.com"), "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
            "versions": listed,
        },
    });
    accepts(admin.post(CRDS, &crd).await).unwrap();
    let last = format!("/apis/{plural}.example.com/v{versions}/{plural}");
    eventually(SOON, async || accepts(admin.get(&last).await)).await.unwrap();
}

async fn heavy_lane_requests(admin: &Client) -> f64 {
    metric(admin, "portcullis_large_requests_total", "").await.unwrap()
}

#[tokio::test]
async fn discovery_of_many_versions_runs_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    define(&admin, "few", 2).await;
    let before = heavy_lane_requests(&admin).await;
    accepts(admin.get("/apis").await).unwrap();
    assert!(heavy_lane_requests(&admin).await <= before, "two versions are not many");
    define(&admin, "many", 200).await;
    for path in ["/apis", "/", "/apis/many.example.com", "/apis/many.example.com/v7"] {
        let before = heavy_lane_requests(&admin).await;
        assert_eq!(admin.get(path).await.unwrap().code, 200, "{path}");
        assert!(heavy_lane_requests(&admin).await > before, "{path}");
    }
}

#[tokio::test]
async fn a_crd_with_thousands_of_versions_does_not_make_openapi_large() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    define(&admin, "few", 2).await;
    define(&admin, "many", 9000).await;
    // The document is computed again when CRDs have changed.
    let document = eventually(SOON, async || {
        let document = admin.get("/openapi/v2").await?;
        if document.text().contains("/apis/few.example.com/v2/few") {
            Ok(document)
        } else {
            Err(Problem::new("the small CRD is not there"))
        }
    });
    let document = document.await.unwrap();
    assert!(document.body.len() < 64 * 1024 * 1024, "{} bytes", document.body.len());
    assert!(!document.text().contains("/apis/many.example.com/"));
    // OpenAPI v3 has one document for each version.
    let one = accepts(admin.get("/openapi/v3/apis/many.example.com/v8999").await).unwrap();
    assert!(one["paths"]["/apis/many.example.com/v8999/many"].is_object());
}
