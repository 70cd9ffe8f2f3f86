//! A forged Lease stops the controllers only for a short time.

use std::time::Duration;

use conformance::{Problem, Server, accepts, eventually};
use serde_json::json;

/// The longest accepted duration of a Lease is one minute.
const PATIENCE: Duration = Duration::from_secs(100);

#[tokio::test]
async fn a_lease_with_a_long_duration_does_not_stop_the_controllers_for_good() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let lease = json!({"metadata": {"name": "kube-controller-manager"},
        "spec": {"holderIdentity": "evil", "leaseDurationSeconds": 2_000_000_000, "renewTime": "2099-01-01T00:00:00.000000Z"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    accepts(client.post(leases, &lease).await).unwrap();
    let has_stopped = async || {
        if server.log().contains("stopping a group of controllers") {
            Ok(())
        } else {
            Err(Problem::new("the controllers still run"))
        }
    };
    eventually(PATIENCE, has_stopped).await.unwrap();
    assert!(
        server.log().contains("the duration in a Lease of leader election is too long"),
        "{}",
        server.log()
    );
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await).unwrap();
    let account = "/api/v1/namespaces/n/serviceaccounts/default";
    eventually(PATIENCE, async || accepts(client.get(account).await)).await.unwrap();
}
