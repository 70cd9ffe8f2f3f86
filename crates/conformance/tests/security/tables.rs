//! Printer columns of CRDs, which are computed for each object, have bounded work and output.

use bytes::Bytes;
use conformance::{Client, HttpResponse, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::callers::{SOON, metric};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Creates a CRD with this many columns of one path.
async fn define(admin: &Client, columns: usize, path: &str) {
    let columns: Vec<Value> = (0..columns)
        .map(|number| json!({"name": format!("C{number}"), "type": "string", "jsonPath": path}))
        .collect();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open}}},
            }],
        },
    });
    accepts(admin.post(CRDS, &crd).await).unwrap();
    eventually(SOON, async || accepts(admin.get(THINGS).await)).await.unwrap();
}

async fn create(admin: &Client, name: &str, spec: Value) {
    let thing =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec});
    accepts(admin.post(THINGS, &thing).await).unwrap();
}

async fn table(admin: &Client, path: &str) -> HttpResponse {
    admin.send(Method::GET, path, &[("accept", TABLE)], Bytes::new()).await.unwrap()
}

/// The cells of the first row, without the name, that are not empty.
fn filled_cells(table: &Value) -> usize {
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    cells.iter().skip(1).filter(|cell| !cell.is_null()).count()
}

async fn heavy_lane_requests(admin: &Client) -> f64 {
    metric(admin, "portcullis_large_requests_total", "").await.unwrap()
}

#[tokio::test]
async fn the_number_of_computed_columns_is_limited() {
    for (columns, shown) in [(100, 100), (1000, 200)] {
        let server = Server::serve(&[]).await.unwrap();
        let admin = server.client().unwrap();
        define(&admin, columns, ".spec.l[?(@.k=='b')].v").await;
        create(&admin, "one", json!({"l": [{"k": "a", "v": "no"}, {"k": "b", "v": "yes"}]})).await;
        for path in [THINGS, &format!("{THINGS}/one")] {
            let answer = table(&admin, path).await;
            assert!(answer.headers.get("warning").is_none(), "{path}");
            let table = accepts(Ok(answer)).unwrap();
            assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 1 + shown, "{path}");
            assert_eq!(filled_cells(&table), shown, "{path}");
        }
    }
}

#[tokio::test]
async fn cells_with_long_texts_are_bounded() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    define(&admin, 200, ".spec.s").await;
    create(&admin, "one", json!({"s": "x".repeat(60_000)})).await;
    for path in [THINGS, &format!("{THINGS}/one")] {
        let answer = table(&admin, path).await;
        assert!(answer.body.len() < 5_000_000, "{path}: {} bytes", answer.body.len());
        let warning = answer.headers.get("warning").unwrap().to_str().unwrap().to_owned();
        assert!(warning.contains("some cells of the table are empty"), "{warning}");
        let table = accepts(Ok(answer)).unwrap();
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 201);
        assert_eq!(filled_cells(&table), 4 * 1024 * 1024 / 60_000 + 1, "{path}");
    }
    let mut watch = admin.events(&format!("{THINGS}?watch=1"), &[("accept", TABLE)]).await.unwrap();
    let event = watch.within(SOON).await.unwrap().unwrap();
    assert!(filled_cells(&event["object"]) < 100, "a watch");
}

#[tokio::test]
async fn many_columns_of_a_small_object_are_computed_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    define(&admin, 100, ".spec.l[?(@.v==2)]").await;
    create(&admin, "one", json!({"l": vec![json!({"v": 1}); 1000]})).await;
    for path in [THINGS, &format!("{THINGS}/one")] {
        let before = heavy_lane_requests(&admin).await;
        accepts(Ok(table(&admin, path).await)).unwrap();
        assert!(heavy_lane_requests(&admin).await > before, "{path}");
        // The object itself is small.
        let before = heavy_lane_requests(&admin).await;
        accepts(admin.get(path).await).unwrap();
        assert!(heavy_lane_requests(&admin).await <= before, "{path}");
    }
    let before = heavy_lane_requests(&admin).await;
    let mut watch = admin.events(&format!("{THINGS}?watch=1"), &[("accept", TABLE)]).await.unwrap();
    watch.within(SOON).await.unwrap().unwrap();
    assert!(heavy_lane_requests(&admin).await > before, "a watch");
}
