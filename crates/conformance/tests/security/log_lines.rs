//! Control characters in texts of clients cannot forge log lines.

use conformance::{Problem, Server, accepts, eventually};
use http::Method;
use serde_json::json;

use crate::callers::SOON;

#[tokio::test]
async fn control_characters_of_clients_are_escaped_in_the_log() {
    let server = Server::serve(&["-v=6"]).await.unwrap();
    let admin = server.client().unwrap();
    let forged = "x\n2026-01-01T00:00:00.000000Z  INFO forged\r\u{1b}[2Kline";
    // The garbage collector logs the invalid owner.
    let role = json!({"metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": forged, "uid": "u-1"}]}, "rules": []});
    accepts(admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await).unwrap();
    // Paths and headers may contain any character, escaped or not.
    let path =
        "/api/v1/namespaces/a%0A2026-01-01T00:00:00.000000Z%20%20INFO%20forged%0A/configmaps/b%0Dc%1Bd";
    let agent = [("user-agent", "a\tb"), ("authorization", "Bearer x\ty")];
    admin.send(Method::GET, path, &agent, bytes::Bytes::new()).await.unwrap();
    admin.get(&format!("{path}?timeout=1%0Aforged")).await.unwrap();
    eventually(SOON, async || {
        let said = server.log().contains("must not reference a namespaced owner");
        said.then_some(()).ok_or_else(|| Problem::new("the garbage collector has not said anything"))
    })
    .await
    .unwrap();
    let log = server.log();
    assert!(log.contains("INFO forged"), "what clients say is shown, in the lines that are about it");
    for line in log.lines() {
        assert!(!line.starts_with("2026-01-01T00:00:00"), "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}
