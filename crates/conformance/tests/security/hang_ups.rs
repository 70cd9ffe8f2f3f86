//! Requests of clients that disconnect before the answer are in the audit log.

use std::time::Duration;

use conformance::aggregated_server::{AggregatedReply, AggregatedServer, Received};
use conformance::{Problem, Server, accepts, eventually};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const PATIENCE: Duration = Duration::from_secs(30);

fn answer_only_discovery(received: &Received) -> AggregatedReply {
    match received.path() {
        "/apis/silent.example.com/v1" => AggregatedReply::Json(
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "silent.example.com/v1", "resources": []}),
        ),
        _ => AggregatedReply::Hang,
    }
}

#[tokio::test]
async fn a_request_whose_client_disconnects_is_recorded_until_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .unwrap();
    let server = Server::serve(&[
        &format!("--audit-policy-file={}", policy.display()),
        &format!("--audit-log-path={}", log.display()),
        // A request that ends by its timeout should end soon.
        "--request-timeout=5s",
    ])
    .await
    .unwrap();
    let admin = server.client().unwrap();
    let extension = AggregatedServer::start("silent.default.svc", None, answer_only_discovery).await.unwrap();
    extension.register(&admin, "silent", "silent.example.com").await.unwrap();
    let stages = |id: &str| -> Vec<(String, Value)> {
        let text = std::fs::read_to_string(&log).unwrap();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let own = events.filter(|event| event["auditID"] == id);
        own.map(|event| (event["stage"].as_str().unwrap().to_owned(), event["responseStatus"].clone()))
            .collect()
    };
    let early =
        json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
    let base = "/apis/silent.example.com/v1";
    for (id, method, path, expected) in [
        (
            "list",
            "GET",
            "/api/v1/configmaps?resourceVersion=100000000".to_owned(),
            &["ResponseComplete"] as &[&str],
        ),
        ("read", "GET", format!("{base}/things"), &["ResponseComplete"]),
        ("watch", "GET", format!("{base}/things?watch=1"), &["ResponseStarted", "ResponseComplete"]),
        ("log", "GET", format!("{base}/namespaces/n/things/t/log"), &["ResponseStarted", "ResponseComplete"]),
        (
            "proxied",
            "POST",
            format!("{base}/namespaces/n/things/t/proxy"),
            &["ResponseStarted", "ResponseComplete"],
        ),
        (
            "watched",
            "DELETE",
            format!("{base}/watch/namespaces/n/things/t"),
            &["ResponseStarted", "ResponseComplete"],
        ),
    ] {
        let mut stream = admin.tls_stream().await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer admintoken\r\naudit-id: {id}\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        eventually(PATIENCE, async || match stages(id).len() {
            0 => Err(Problem::new(format!("{id} has not been received"))),
            _ => Ok(()),
        })
        .await
        .unwrap();
        drop(stream);
        eventually(PATIENCE, async || match stages(id).pop() {
            Some((stage, _)) if stage == "ResponseComplete" => Ok(()),
            last => Err(Problem::new(format!("{id}: {last:?} is the last event"))),
        })
        .await
        .unwrap();
        let events = stages(id);
        let after: Vec<&str> = events.iter().skip(1).map(|(stage, _)| stage.as_str()).collect();
        assert_eq!(after, expected, "{id}");
        // A timed-out request is recorded as such, although no client receives the answer.
        let (_, status) = events.last().unwrap();
        assert!(*status == early || status["code"] == 504, "{id}: {status}");
    }
    // An answered request is recorded once.
    accepts(admin.send(http::Method::GET, "/api", &[("audit-id", "whole")], bytes::Bytes::new()).await)
        .unwrap();
    let whole: Vec<String> = stages("whole").into_iter().map(|(stage, _)| stage).collect();
    assert_eq!(whole, ["RequestReceived", "ResponseComplete"]);
}
