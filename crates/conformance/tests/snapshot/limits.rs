//! Saving beside other clients, with a full store, and to files that cannot be written.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::time::Instant;

use conformance::client::{Trust, tls};
use conformance::{Server, accepts, eventually, rejects};
use rustls_pki_types::ServerName;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{MAPS, PATH, PATIENCE, fill, post, snapshot, snapshot_succeeds, status, text};

/// A TLS connection with a small receive buffer.
async fn connect(authority: &str) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let tcp = socket.connect(authority.parse().unwrap()).await.unwrap();
    let mut config = tls(Trust::Anything, None).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_read_its_snapshot_delays_no_other_client() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    fill(&client, 24).await;
    let before = server.resident_kib().unwrap();
    let mut stalled = connect(client.authority()).await;
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer admintoken\r\ncontent-length: 0\r\n\r\n"
    );
    stalled.write_all(head.as_bytes()).await.unwrap();
    stalled.flush().await.unwrap();
    // It reads the beginning of the response, and then no more.
    let mut begin = [0; 15];
    stalled.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    // One at a time.
    let status = rejects(post(&client).await, 429, "TooManyRequests").unwrap();
    assert_eq!(status["details"]["retryAfterSeconds"], 10, "{status}");
    // Others are served meanwhile, and the snapshot is not buffered.
    for number in 0..50 {
        let started = Instant::now();
        accepts(client.post(MAPS, &json!({"metadata": {"name": format!("m{number}")}})).await).unwrap();
        assert!(started.elapsed().as_secs() < 5);
    }
    let grown = server.resident_kib().unwrap().saturating_sub(before);
    assert!(grown < 12 * 1024, "{grown} KiB for a snapshot of 24 MB");
    // When the client disconnects, the next one can save.
    drop(stalled);
    eventually(PATIENCE, async || accepts(post(&client).await)).await.unwrap();
}

#[tokio::test]
async fn a_full_store_can_be_saved() {
    let home = TempDir::new().unwrap();
    let server = Server::up_in_folder(home.path(), &["--quota-backend-bytes=6000000"]).await.unwrap();
    let client = server.client().unwrap();
    let full = async |number: usize| {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"x": "x".repeat(500_000)}});
        client.post(MAPS, &map).await.unwrap().code == 500
    };
    let mut number = 0;
    while !full(number).await {
        number += 1;
        assert!(number < 30, "the quota is not enforced");
    }
    let file = home.path().join("snapshot");
    snapshot_succeeds(&["save", text(&file), "--kubeconfig", text(&server.kubeconfig().unwrap())]).await;
    assert!(status(&file).await["totalSize"].as_u64().unwrap() > 500_000 * number as u64);
}

#[tokio::test]
async fn errors_of_the_command_say_what_is_wrong_and_leave_no_files() {
    let home = TempDir::new().unwrap();
    let mut server = Server::up_at(home.path()).await.unwrap();
    let kubeconfig = server.kubeconfig().unwrap();
    let from_server = format!("--kubeconfig={}", text(&kubeconfig));
    let from_store = format!("--data-dir={}", text(&server.data()));
    let folder = home.path().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("snapshot");
    let names = || {
        let names = std::fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let fails = async |args: &[&str], why: &str| {
        let (code, said) = snapshot(args).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    };
    // The store of a running server cannot be read beside it.
    fails(&["save", text(&file), &from_store], "in use by another process").await;
    fails(&["save", text(&file), &from_store], "if a server is running, save from it with --kubeconfig")
        .await;
    fails(&["save", text(&file), "--data-dir=/nonexistent"], "there is no store in `/nonexistent`").await;
    fails(&["save", text(&file), "--kubeconfig=/nonexistent"], "/nonexistent: no such file").await;
    // Credentials go to no server that is not verified.
    let insecure = home.path().join("insecure");
    std::fs::write(&insecure, conformance::server::kubeconfig(&server.url, "token")).unwrap();
    fails(&["save", text(&file), "--kubeconfig", text(&insecure)], "it does not verify the server").await;
    // Another user.
    let config = std::fs::read_to_string(&kubeconfig).unwrap();
    let authority = config.lines().find(|line| line.contains("certificate-authority-data")).unwrap().trim();
    let token = home.path().join("token");
    std::fs::write(&token, format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{}\", {authority}}}}}]\n\
         users: [{{name: u, user: {{token: wrong}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n", server.url)).unwrap();
    fails(
        &["save", text(&file), "--kubeconfig", text(&token)],
        "the server refused to save a snapshot (401)",
    )
    .await;
    assert_eq!(names(), [""; 0]);
    // Only a regular file is replaced.
    fails(&["save", text(&folder), &from_server], "it exists and is not a regular file").await;
    fails(&["save", "/dev/null", &from_server], "it exists and is not a regular file").await;
    fails(&["save", text(&home.path().join("no/such/directory")), &from_server], "cannot write").await;
    let link = folder.join("link");
    symlink(home.path().join("elsewhere"), &link).unwrap();
    fails(&["save", text(&link), &from_server], "it exists and is not a regular file").await;
    assert!(!home.path().join("elsewhere").exists());
    std::fs::remove_file(&link).unwrap();

    std::fs::write(&file, "an old backup").unwrap();
    let said = snapshot_succeeds(&["save", text(&file), &from_server]).await;
    assert!(said.starts_with(&format!("saved {} (revision ", text(&file))), "{said}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(), ["snapshot"]);
    server.terminate().unwrap();
    server.wait(PATIENCE).await.unwrap();
    let stopped = folder.join("stopped");
    snapshot_succeeds(&["save", text(&stopped), &from_store]).await;
    let table = snapshot_succeeds(&["status", text(&stopped)]).await;
    for part in ["| HASH ", "| REVISION |", "| TOTAL KEYS |", "| TOTAL SIZE |", "| FORMAT |", "| VERSION "] {
        assert!(table.contains(part), "{table}");
    }

    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = folder.join("damaged");
    std::fs::write(&damaged, &bytes).unwrap();
    let target = home.path().join("restored");
    let target = text(&target);
    for args in [vec!["status", text(&damaged)], vec!["restore", text(&damaged), "--data-dir", target]] {
        fails(&args, "damaged` is damaged at byte ").await;
    }
    std::fs::write(&damaged, &bytes[..100]).unwrap();
    fails(&["status", text(&damaged)], "damaged` is truncated: it ends at byte 100").await;
    fails(&["status", text(&kubeconfig)], "is not a Portcullis snapshot").await;
    fails(&["restore", text(&file), "--data-dir", text(&server.data())], "is not empty").await;
    assert!(!std::path::Path::new(target).exists());
    let (code, _) = snapshot(&["save", text(&file), &from_server, &from_store]).await;
    assert_eq!(code, Some(2), "either a server or a store");
}
