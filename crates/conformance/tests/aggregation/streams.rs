//! Forwarded bodies, watches and protocol upgrades.

use bytes::Bytes;
use conformance::aggregated_server::AggregatedReply;
use conformance::{Problem, Server, accepts, eventually};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::both_servers::{
    FISCHERS, GROUP, PATIENCE, start_behind, start_both, without_aggregated_discovery,
};

#[tokio::test]
async fn watches_are_streamed_and_end_with_client_or_server() {
    let (_server, client, extension) = start_both(without_aggregated_discovery).await;
    let target = format!("{FISCHERS}?watch=true");
    let mut events = client.events(&target, &[]).await.unwrap();
    assert_eq!(events.code, 200);
    for number in 1..=3 {
        extension.feed(&format!("{{\"type\":\"ADDED\",\"object\":{{\"number\":{number}}}}}\n"));
        // Each event arrives before the next is sent, so nothing is buffered.
        let event = events.within(PATIENCE).await.unwrap().unwrap();
        assert_eq!(event["object"]["number"], number);
    }
    extension.finish();
    assert!(events.within(PATIENCE).await.unwrap().is_none());

    let events = client.events(&target, &[]).await.unwrap();
    assert_eq!(extension.open_streams(), 1);
    drop(events);
    eventually(PATIENCE, async || match extension.open_streams() {
        0 => Ok(()),
        open => Err(Problem::new(format!("{open} streams are open"))),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn bodies_are_forwarded_without_buffering() {
    let (_server, client, extension) = start_both(|received| match (&received.method, received.path()) {
        (&Method::POST, FISCHERS) => AggregatedReply::Raw(
            201,
            "application/json",
            vec![("warning", "299 - \"theirs\""), ("cache-control", "public"), ("audit-id", "theirs")],
            "x".repeat(8 << 20),
        ),
        (_, "/apis/wardle.example.com/v1alpha1/fischers/broken") => AggregatedReply::StreamOf("1000"),
        (_, "/apis/wardle.example.com/v1alpha1/fischers/moved") => AggregatedReply::Raw(
            307,
            "text/plain",
            vec![("location", "https://evil.example.com/")],
            String::new(),
        ),
        (_, "/apis/wardle.example.com/v1alpha1/fischers/refused") => AggregatedReply::Raw(
            418,
            "text/plain",
            vec![("access-control-allow-origin", "*")],
            "teapot".to_owned(),
        ),
        _ => without_aggregated_discovery(received),
    })
    .await;
    // Longer than the largest object that can be stored here.
    let body = Bytes::from(vec![b'x'; 5 << 20]);
    let answer =
        client.send(Method::POST, FISCHERS, &[("content-type", "application/json")], body).await.unwrap();
    assert_eq!((answer.code, answer.body.len()), (201, 8 << 20));
    assert_eq!(answer.header("warning"), "299 - \"theirs\"");
    // Headers that both servers set appear twice, this server's first.
    let all = |name: &str| -> Vec<&str> {
        answer.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    };
    assert_eq!(all("cache-control"), ["no-cache, private", "public"]);
    assert_eq!((all("audit-id").len(), all("audit-id").last().copied()), (2, Some("theirs")));
    assert_eq!(extension.received_for_others().last().unwrap().length, 5 << 20);

    let refused = client.get(&format!("{FISCHERS}/refused")).await.unwrap();
    assert_eq!((refused.code, refused.text().as_str()), (418, "teapot"));
    assert!(refused.header("access-control-allow-origin").is_empty());

    let moved = client.get(&format!("{FISCHERS}/moved")).await.unwrap();
    assert_eq!(moved.code, 502);
    assert_eq!(moved.text(), "the backend attempted to redirect this request, which is not permitted");
    assert!(moved.header("location").is_empty());

    // An answer that breaks off is not presented as complete.
    let mut broken = client.events(&format!("{FISCHERS}/broken"), &[]).await.unwrap();
    extension.feed("{}\n");
    assert_eq!(broken.within(PATIENCE).await.unwrap(), Some(json!({})));
    extension.finish();
    let end = broken.within(PATIENCE).await;
    assert!(end.is_err(), "{end:?}");
    accepts(client.get(FISCHERS).await).unwrap();
}

#[tokio::test]
async fn upgraded_connections_are_forwarded() {
    let (_server, client, extension) = start_both(|received| match received.path() {
        "/apis/wardle.example.com/v1alpha1/fischers/fritz/exec" => AggregatedReply::Echo("SPDY/3.1"),
        "/apis/wardle.example.com/v1alpha1/fischers/fritz/attach" => {
            AggregatedReply::Json(403, json!({"kind": "Status", "code": 403}))
        }
        "/apis/wardle.example.com/v1alpha1/fischers/fritz/portforward" => {
            AggregatedReply::Json(200, json!({}))
        }
        _ => without_aggregated_discovery(received),
    })
    .await;
    let ask = async |below: &str| {
        let mut stream = client.tls_stream().await.unwrap();
        let request = format!(
            "POST {FISCHERS}/fritz/{below}?command=ls HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Remote-User: somebody\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        (stream, String::from_utf8(head).unwrap().to_lowercase())
    };
    let (mut stream, head) = ask("exec").await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: spdy/3.1\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
    for text in ["hello", "and on"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, text.as_bytes());
    }
    let received = extension.received_for_others();
    let received = received.last().unwrap();
    assert_eq!(received.target, format!("{FISCHERS}/fritz/exec?command=ls"));
    assert_eq!(received.all("x-remote-user"), ["kubernetes-admin"]);
    drop(stream);

    let (_, head) = ask("attach").await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let (_, head) = ask("portforward").await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_request_body() {
    let (_server, client, extension) = start_both(without_aggregated_discovery).await;
    let mut stalled = client.tls_stream().await.unwrap();
    let head = format!(
        "POST {FISCHERS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stalled.write_all(head.as_bytes()).await.unwrap();
    stalled.flush().await.unwrap();
    let mut answer = vec![0; 12];
    tokio::time::timeout(PATIENCE, stalled.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
    // A body that arrives is forwarded.
    accepts(client.post(FISCHERS, &json!({"metadata": {"name": "fritz"}})).await).unwrap();
    let mut posted = extension.received_for_others();
    posted.retain(|received| received.method == Method::POST && received.body["metadata"]["name"] == "fritz");
    assert_eq!(posted.len(), 1);
}

/// Each tunnel holds two file descriptors of the server, one of them towards the aggregated API server. The path is none of those that are
/// long-running without an upgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_of_one_user_do_not_use_up_the_file_descriptors() {
    const TUNNELS: usize = 60;
    let server = Server::serve_after("ulimit -Sn 300 && ulimit -Hn 300", &[]).await.unwrap();
    let admin = server.client().unwrap();
    let _extension = start_behind(&admin, None, |received| match received.path() {
        "/apis/wardle.example.com/v1alpha1/fischers/fritz" => AggregatedReply::Echo("websocket"),
        _ => without_aggregated_discovery(received),
    })
    .await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "fischers"}, "rules": [{"apiGroups": [GROUP], "resources": ["fischers"], "verbs": ["get"]}]});
    accepts(admin.post(&format!("{rbac}/clusterroles"), &role).await).unwrap();
    let binding = json!({"metadata": {"name": "fischers"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fischers"},
        "subjects": [{"kind": "User", "name": "alice"}]});
    accepts(admin.post(&format!("{rbac}/clusterrolebindings"), &binding).await).unwrap();

    let mut tunnels = Vec::new();
    for _ in 0..TUNNELS {
        let mut stream = admin.tls_stream().await.unwrap();
        let request = format!(
            "GET {FISCHERS}/fritz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alicetoken\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 101");
        tunnels.push(stream);
    }
    let other = admin.on_new_connection();
    assert_eq!(accepts(other.get("/livez").await).unwrap(), json!(null));
    // The oldest ones have ended: fewer than an eighth of the descriptors are left to tunnels.
    let (mut ended, deadline) = (0, Instant::now() + PATIENCE);
    for mut tunnel in tunnels.into_iter().take(TUNNELS - 37) {
        let end = tokio::time::timeout_at(deadline, tunnel.read_to_end(&mut Vec::new())).await;
        ended += usize::from(end.is_ok());
    }
    assert_eq!(ended, TUNNELS - 37);
    let metrics = other.get("/metrics").await.unwrap().text();
    assert!(
        metrics.contains("apiserver_long_running_requests_ended_total{reason=\"limit\"} "),
        "they were ended by the server"
    );
}
