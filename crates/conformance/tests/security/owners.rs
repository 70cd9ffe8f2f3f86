//! Objects with many owner references do not delay the server.

use std::time::Duration;

use conformance::{Problem, Server, accepts, eventually};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(30);

/// Each reference names the object itself with another uid: no owner exists, so the object is garbage. Quadratic work would take
/// minutes.
#[tokio::test]
async fn an_object_with_many_owners_is_collected() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let owner = |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owned", "uid": format!("00000000-0000-0000-0000-{n:012}")});
    let owners: Vec<_> = (0..12_000).map(owner).collect();
    let map = json!({"metadata": {"name": "owned", "ownerReferences": owners}});
    accepts(client.post(MAPS, &map).await).unwrap();
    let is_gone = async || match client.get(&format!("{MAPS}/owned")).await?.code {
        404 => Ok(()),
        code => Err(Problem::new(format!("the object is still there: {code}"))),
    };
    eventually(PATIENCE, is_gone).await.unwrap();
    assert_eq!(client.get("/livez").await.unwrap().code, 200);
}
