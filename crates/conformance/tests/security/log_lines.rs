//! Control characters in texts of clients cannot forge log lines, clients cannot fill the log, and a log that cannot be written or that is
//! not read stops nothing.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use conformance::{Problem, Server, accepts, eventually};
use http::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::callers::{SOON, metric};
use crate::early_answers::{
    ACK, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, connect, frame, header, next,
};

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

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    for format in ["text", "json"] {
        let flag = format!("--logging-format={format}");
        let mut server = Server::serve_after("exec 2>/dev/full", &["-v=6", &flag]).await.unwrap();
        let admin = server.client().unwrap();
        let namespace = json!({"metadata": {"name": "gone"}});
        accepts(admin.post("/api/v1/namespaces", &namespace).await).unwrap();
        accepts(admin.delete("/api/v1/namespaces/gone").await).unwrap();
        // Controllers, which log, go on.
        eventually(SOON, async || match admin.get("/api/v1/namespaces/gone").await?.code {
            404 => Ok(()),
            code => Err(Problem::new(format!("the namespace is still there: {code}"))),
        })
        .await
        .unwrap();
        server.terminate().unwrap();
        assert_eq!(server.wait(SOON).await.unwrap().code(), Some(0), "{format}");
    }
}

/// Creates a pipe, and opens both ends so that no other process waits for one of them.
fn pipe(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Collects what is written to a pipe from now on.
fn read_in_background(mut pipe: File) -> Arc<Mutex<Vec<u8>>> {
    let collected = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&collected);
    std::thread::spawn(move || {
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(length) = pipe.read(&mut chunk) {
            read.lock().unwrap().extend_from_slice(&chunk[..length]);
        }
    });
    collected
}

#[tokio::test]
async fn a_log_that_is_not_read_stops_nothing() {
    const DROPPED: &str = "portcullis_log_lines_dropped_total";
    let folder = TempDir::new().unwrap();
    let log = pipe(&folder.path().join("log"));
    let first = format!("exec 2>{}", folder.path().join("log").display());
    // At this verbosity, the start alone fills the pipe.
    let mut server = Server::serve_after(&first, &["-v=6"]).await.unwrap();
    let admin = server.client().unwrap();
    // Then an unauthenticated client fills what the server queues: each frame is logged.
    let mut stream = connect(&admin, b"h2").await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let pings = frame(PING, 0, 0, &[1; 8]).repeat(500);
    eventually(SOON, async || {
        stream.write_all(&pings).await.unwrap();
        stream.flush().await.unwrap();
        let mut answered = 0;
        while answered < 500 {
            let (kind, flags, _) = next(&mut stream).await;
            answered += usize::from(kind == PING && flags & ACK != 0);
        }
        let dropped = metric(&admin, DROPPED, "").await.unwrap_or_default();
        if dropped > 0.0 { Ok(()) } else { Err(Problem::new("no line was dropped")) }
    })
    .await
    .unwrap();
    drop(stream);
    let map = json!({"metadata": {"name": "written"}});
    accepts(admin.post("/api/v1/namespaces/default/configmaps", &map).await).unwrap();
    // Once the log is read, it says how many lines are missing.
    let read = read_in_background(log);
    eventually(SOON, async || {
        let said = String::from_utf8_lossy(&read.lock().unwrap()).contains("log lines were dropped");
        said.then_some(()).ok_or_else(|| Problem::new("the log does not say that lines are missing"))
    })
    .await
    .unwrap();
    server.terminate().unwrap();
    assert_eq!(server.wait(SOON).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn reset_http2_streams_are_logged_rarely() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let headers = [
        header(":method", "GET"),
        header(":path", "/livez"),
        header(":scheme", "https"),
        header(":authority", "x"),
    ];
    let no_error = [0; 4];
    for _ in 0..5 {
        let mut stream = connect(&admin, b"h2").await;
        let mut sent = PREFACE.to_vec();
        sent.extend(frame(SETTINGS, 0, 0, &[]));
        for number in (1..400).step_by(2) {
            sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, number, &headers.concat()));
            sent.extend(frame(RST_STREAM, 0, number, &no_error));
        }
        // The server closes the connection, maybe before it has read everything.
        let _ = stream.write_all(&sent).await;
        let _ = stream.flush().await;
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the connection stays open");
    }
    let lines = |log: &str| log.matches("pending-accept streams reached limit").count();
    eventually(SOON, async || match lines(&server.log()) {
        0 => Err(Problem::new("nothing is logged")),
        _ => Ok(()),
    })
    .await
    .unwrap();
    assert_eq!(lines(&server.log()), 1, "{}", server.log());
}
