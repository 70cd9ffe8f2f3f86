//! Texts of clients do not become metric labels, which would stay in memory.

use std::time::Duration;

use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::json;

use crate::callers::MAPS;

const PATIENCE: Duration = Duration::from_secs(30);

/// The number of series whose labels contain a word.
async fn series(admin: &Client, word: &str) -> usize {
    let page = admin.get("/metrics").await.unwrap().text();
    page.lines().filter(|line| line.contains(word)).count()
}

#[tokio::test]
async fn strings_sent_by_clients_do_not_become_metric_labels() {
    // The test stalls every request before routing, so that some of them time out.
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .unwrap();
    let server = Server::serve(&[
        "--anonymous-auth=true",
        "--audit-log-mode=blocking-strict",
        &format!("--audit-policy-file={}", policy.display()),
        &format!("--audit-log-path={}", folder.path().join("audit.log").display()),
    ])
    .await
    .unwrap();
    let admin = server.client().unwrap();
    let agent = [("user-agent", "madeup/1")];
    for client in [admin.as_token(None), admin.as_token(Some("alicetoken")), admin.clone()] {
        for query in ["timeout=1ns", "dryRun=madeup", "fieldManager=madeup", "watch=1&timeoutSeconds=1"] {
            for path in [
                "/api/v1/madeupresources",
                "/api/v1/namespaces/madeupnamespace/madeupresources/madeupname/madeupsubresource",
                "/apis/madeupgroup/madeupversion/madeupresources",
                "/apis/apps/madeupversion/deployments",
                "/apis/apps/v1/namespaces/default/deployments/d/madeupsubresource",
                "/madeuppath",
                "/openapi/v3/apis/madeupgroup/v1",
            ] {
                for method in
                    [Method::GET, Method::POST, Method::DELETE, Method::from_bytes(b"MADEUP").unwrap()]
                {
                    let path = format!("{path}?{query}");
                    let answer = client.send(method, &path, &agent, "{}".into()).await.unwrap();
                    assert!(answer.code >= 400, "{path}: {}", answer.code);
                }
            }
        }
    }
    // A fast server may have answered all of them in time.
    eventually(PATIENCE, async || {
        let answer = admin.get("/api/v1/madeupresources?timeout=1ns").await?;
        if answer.code == 504 { Ok(()) } else { Err(Problem::new("no request took too long")) }
    })
    .await
    .unwrap();
    let page = admin.get("/metrics").await.unwrap().text();
    assert!(page.lines().any(|line| line.starts_with("apiserver_request_total{code=\"504\"")));
    for word in ["madeup", "MADEUP"] {
        assert_eq!(series(&admin, word).await, 0, "{word}");
    }
    // Known resources are counted by name, including a timed-out request.
    accepts(admin.post(MAPS, &json!({"metadata": {"name": "m"}})).await).unwrap();
    assert!(series(&admin, "resource=\"configmaps\"").await > 0);
}
