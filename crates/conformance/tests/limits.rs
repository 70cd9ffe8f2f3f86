//! Limits on bodies, headers, requests in flight, connections, watches and history.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The largest request body.
const LARGEST: usize = 3 * 1024 * 1024;

const SOON: Duration = Duration::from_secs(30);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Grants alice all verbs on config maps.
async fn client_of_alice(client: &Client) -> Client {
    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "User", "name": "alice"}],
    });
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await).unwrap();
    let alice = client.as_token(Some("alicetoken"));
    eventually(SOON, async || accepts(alice.get(MAPS).await)).await.unwrap();
    alice
}

#[tokio::test]
async fn a_body_that_is_too_large_is_rejected() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let status = rejects(
        client.send(Method::POST, MAPS, &JSON, vec![b'a'; LARGEST + 1].into()).await,
        413,
        "RequestEntityTooLarge",
    );
    assert_eq!(status.unwrap()["message"], "Request entity too large: limit is 3145728");
    // A body of the maximum size is read, and rejected because of its content.
    rejects(client.send(Method::POST, MAPS, &JSON, vec![b'a'; LARGEST].into()).await, 400, "BadRequest")
        .unwrap();
    // The size of an object has a limit of its own.
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(1024 * 1024 + 1)}});
    let status = rejects(client.post(MAPS, &large).await, 422, "Invalid").unwrap();
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueTooLong", "{status}");
}

#[tokio::test]
async fn hostile_bodies_and_headers_are_rejected_without_a_crash() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let deep = |open: &str, close: &str, times: usize| Bytes::from(open.repeat(times) + &close.repeat(times));
    for body in [
        deep("[", "]", 500_000),
        deep("{\"a\":", "}", 200_000),
        Bytes::from("[".repeat(1_000_000)),
        Bytes::from_static(b"\xff\xfe"),
    ] {
        rejects(client.send(Method::POST, MAPS, &JSON, body).await, 400, "BadRequest").unwrap();
    }
    let yaml = [("content-type", "application/yaml")];
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (before, own) in "abcdefghi".chars().zip("bcdefghij".chars()) {
        let nine = vec![format!("*{before}"); 9].join(",");
        writeln!(bomb, "{own}: &{own} [{nine}]").unwrap();
    }
    rejects(client.send(Method::POST, MAPS, &yaml, bomb.into()).await, 400, "BadRequest").unwrap();
    // A megabyte of headers is rejected in any way, and the next connection works.
    let long = "x".repeat(1_000_000);
    if let Ok(answer) = client.send(Method::GET, "/healthz", &[("x-long", &long)], Bytes::new()).await {
        assert_eq!(answer.code, 431);
    }
    let client = server.client().unwrap();
    if let Ok(answer) = client.get(&format!("/api/v1/namespaces/{long}")).await {
        assert!((400..500).contains(&answer.code), "{}", answer.code);
    }
    accepts(server.client().unwrap().get("/readyz").await).unwrap();
}

#[tokio::test]
async fn requests_above_the_in_flight_limit_get_429_with_retry_after() {
    let server = Server::serve(&[
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=1",
        "--max-mutating-requests-inflight=1",
    ])
    .await
    .unwrap();
    let client = server.client().unwrap();
    let alice = client_of_alice(&client).await;
    // A creation whose webhook does not answer occupies the only seat.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = json!({"metadata": {"name": "silent"}, "webhooks": [{
        "name": "silent.example.com",
        "clientConfig": {"url": format!("https://{}/", silent.local_addr().unwrap())},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {"stalls": "true"}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
    }]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(client.post(hooks, &hook).await).unwrap();
    let stalled = tokio::spawn({
        let alice = alice.as_token(alice.token());
        let map = json!({"metadata": {"generateName": "m-", "labels": {"stalls": "true"}}});
        async move { accepts(alice.post(MAPS, &map).await).map(drop) }
    });
    let map = json!({"metadata": {"generateName": "m-"}});
    eventually(SOON, async || {
        let metrics = client.get("/metrics").await?.text();
        let taken = metrics.lines().any(|line| {
            line.starts_with("apiserver_current_inflight_requests{")
                && line.contains("request_kind=\"mutating\"")
                && line.ends_with(" 1")
        });
        if taken { Ok(()) } else { Err(Problem::new("the seat is still free")) }
    })
    .await
    .unwrap();
    let refused = alice.post(MAPS, &map).await.unwrap();
    assert_eq!(refused.code, 429, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), "1");
    // Kubernetes answers this error in plain text.
    assert_eq!(refused.text(), "Too many requests, please try again later.\n");
    assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
    // Reads, watches and the administrator have other limits.
    accepts(alice.get(MAPS).await).unwrap();
    assert_eq!(alice.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap().code, 200);
    accepts(client.post(MAPS, &map).await).unwrap();
    // The request continues when its webhook is gone, and releases the seat.
    drop(silent);
    stalled.await.unwrap().unwrap();
    eventually(SOON, async || accepts(alice.post(MAPS, &map).await)).await.unwrap();
}

#[tokio::test]
async fn stalled_handshakes_and_silent_connections_do_not_block_other_clients() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut connection = TcpStream::connect(client.authority()).await.unwrap();
        if number % 2 == 0 {
            // The beginning of a TLS record without the rest.
            connection.write_all(&[0x16, 0x03, 0x01, 0x02]).await.unwrap();
        }
        silent.push(connection);
    }
    let mut talking = client.tls_stream().await.unwrap();
    talking.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    for _ in 0..20 {
        accepts(server.client().unwrap().get("/api/v1/namespaces").await).unwrap();
    }
    drop(silent);
}

#[tokio::test]
async fn a_watch_that_is_not_read_ends_and_uses_bounded_memory() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let mut slow = client.tls_stream().await.unwrap();
    slow.write_all(
        format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer admintoken\r\n\r\n")
            .as_bytes(),
    )
    .await
    .unwrap();
    slow.flush().await.unwrap();
    let mut first = [0; 1];
    slow.read_exact(&mut first).await.unwrap();
    let mut fast = client.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap();

    // 150 MB of events, each replacing the previous one. The history holds 64 MiB, encoded once more for the watch; a server that
    // buffered unread events would need all of it.
    let before = server.resident_kib().unwrap();
    let padding = "x".repeat(500_000);
    let (mut seen, mut most) = (0, before);
    for round in 0..300 {
        let map =
            json!({"metadata": {"name": "churn"}, "data": {"round": round.to_string(), "padding": padding}});
        let path = format!("{MAPS}/churn");
        let answer = match round {
            0 => client.post(MAPS, &map).await,
            _ => client.json(Method::PUT, &path, &map).await,
        };
        accepts(answer).unwrap();
        while seen <= round {
            let event = fast.within(SOON).await.unwrap().unwrap();
            seen += usize::from(event["object"]["metadata"]["name"] == "churn");
        }
        most = most.max(server.resident_kib().unwrap());
    }
    println!("memory grew by {} MiB", (most - before) / 1024);
    assert!(most - before < 150 * 1024, "memory grew by {} MiB", (most - before) / 1024);

    // Data in the pipes can still be read; then the stream ends.
    let read = async {
        let mut chunk = vec![0; 1 << 20];
        let mut length = 0;
        loop {
            match slow.read(&mut chunk).await {
                Ok(0) | Err(_) => break length,
                Ok(more) => length += more,
            }
        }
    };
    let length = tokio::time::timeout(Duration::from_mins(1), read).await;
    assert!(matches!(length, Ok(length) if length < 200_000_000), "the slow watch is still open: {length:?}");
    accepts(client.get("/readyz").await).unwrap();
}

#[tokio::test]
async fn a_compacted_resource_version_is_410_for_lists_and_an_error_event_for_watches() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for number in 0..3 {
        accepts(client.post(MAPS, &json!({"metadata": {"name": format!("m{number}")}})).await).unwrap();
    }
    let page = accepts(client.get(&format!("{MAPS}?limit=1")).await).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let old = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    // History is limited by count and by bytes, so enough writes move its window.
    let padding = "x".repeat(1_000_000);
    let watch = format!("{MAPS}?watch=1&resourceVersion={old}");
    let mut gone = Value::Null;
    for round in 0..2000 {
        let map =
            json!({"metadata": {"name": "m0"}, "data": {"round": round.to_string(), "padding": padding}});
        accepts(client.json(Method::PUT, &format!("{MAPS}/m0"), &map).await).unwrap();
        if round % 20 == 19 {
            let mut events = client.events(&watch, &[]).await.unwrap();
            let event = events.within(SOON).await.unwrap().unwrap();
            if event["type"] == "ERROR" {
                gone = event;
                break;
            }
        }
    }
    assert_eq!(gone["object"]["code"], 410, "{gone}");
    assert_eq!(gone["object"]["reason"], "Expired", "{gone}");
    assert!(gone["object"]["message"].as_str().unwrap().starts_with("too old resource version: "), "{gone}");
    // A list that started before may continue, or gets an error with a token for an inconsistent continuation.
    let next = client.get(&format!("{MAPS}?limit=1&continue={token}")).await.unwrap();
    if next.code != 200 {
        let status = next.json();
        assert_eq!((next.code, status["reason"].as_str()), (410, Some("Expired")), "{status}");
        let fresh = status["metadata"]["continue"].as_str().unwrap();
        let rest = accepts(client.get(&format!("{MAPS}?continue={fresh}")).await).unwrap();
        assert!(!rest["items"].as_array().unwrap().is_empty());
    }
}

#[tokio::test]
async fn events_expire_after_the_configured_ttl() {
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    for (flags, stays) in [(vec!["--event-ttl=1s"], false), (vec!["--event-ttl=0"], true), (vec![], true)] {
        let server = Server::serve(&flags).await.unwrap();
        let client = server.client().unwrap();
        accepts(client.post(events, &event).await).unwrap();
        // Objects that are not events do not expire.
        let map = json!({"metadata": {"name": "m"}});
        accepts(client.post(MAPS, &map).await).unwrap();
        if stays {
            accepts(client.get(&format!("{events}/e")).await).unwrap();
        } else {
            eventually(SOON, async || rejects(client.get(&format!("{events}/e")).await, 404, "NotFound"))
                .await
                .unwrap();
        }
        accepts(client.get(&format!("{MAPS}/m")).await).unwrap();
    }
    let refused = Server::serve(&["--event-ttl=soon"]).await.unwrap_err().to_string();
    let error = r#"invalid argument "soon" for "--event-ttl" flag: time: invalid duration "soon""#;
    assert!(refused.contains(error), "{refused}");
}
