//! The Node authorizer and NodeRestriction when objects they depend on cannot be decoded.

use std::path::Path;

use authz::config::Flags;
use server::{Authorization, Ephemeral};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::admin_connection::connect;
use super::{Server, break_offline, private_directory};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn start(directory: &Path) -> Server {
    Server::start_with(directory, |config| {
        let modes = vec!["Node".to_owned(), "RBAC".to_owned()];
        config.authorization = Authorization::Flags(Flags { modes, ..Flags::default() });
        config.admission.enable = vec!["NodeRestriction".to_owned()];
    })
    .await
}

/// The status code and the whole response to a request of node `n1`, whom the administrator impersonates.
async fn as_node(server: &Ephemeral, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut tls = connect(server, "http/1.1").await;
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nimpersonate-user: system:node:n1\r\n\
        impersonate-group: system:nodes\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = tls.read_to_string(&mut answer).await;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or_default(), answer)
}

/// Fills a directory with two nodes, and a pod on `n1` that uses a Secret.
async fn filled(directory: &Path) {
    let server = start(directory).await;
    for name in ["n1", "n2"] {
        server.create(NODES, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).await;
    }
    server.create("/api/v1/namespaces/default/secrets", r#"{"metadata":{"name":"s"}}"#).await;
    server.create(PODS, &pod("p", "n1", r#""volumes":[{"name":"v","secret":{"secretName":"s"}}],"#)).await;
    server.stop().await;
}

fn pod(name: &str, node: &str, volumes: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}",{volumes}"containers":[{{"name":"c","image":"i"}}]}}}}"#
    )
}

/// A mirror pod, which only a kubelet may create, of the node `n1` with this uid.
fn mirror(uid: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"m-n1","annotations":{{"kubernetes.io/config.mirror":"x","kubernetes.io/config.source":"file"}},
        "ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"n1","uid":"{uid}","controller":true}}]}},
        "spec":{{"nodeName":"n1","automountServiceAccountToken":false,"containers":[{{"name":"c","image":"i"}}]}}}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_object_is_unreadable_cannot_write() {
    let directory = private_directory();
    filled(directory.path()).await;
    let server = start(directory.path()).await;
    let uid = server.admin.get(&format!("{NODES}/n1")).await.unwrap();
    let uid = uid.str_at(&["metadata", "uid"]).unwrap().to_owned();
    let mirrors = format!("{PODS}?dryRun=All");
    let (status, ready) = (format!("{NODES}/n1/status"), r#"{"status":{"phase":"Running"}}"#);
    for (method, path, body) in
        [("POST", mirrors.as_str(), mirror(&uid)), ("PATCH", &status, ready.to_owned())]
    {
        let (code, answer) = as_node(&server.ephemeral, method, path, &body).await;
        assert!((200..300).contains(&code), "{answer}");
    }
    server.stop().await;

    let key = break_offline(directory.path(), &["minions", "n1"]).await;
    let server = start(directory.path()).await;
    let (code, answer) = as_node(&server.ephemeral, "GET", &format!("{NODES}/n1"), "").await;
    assert!(code == 500 && answer.contains(&key), "{answer}");
    // The access that the Node authorizer derives from pods remains.
    let secret = "/api/v1/namespaces/default/secrets/s";
    assert_eq!(as_node(&server.ephemeral, "GET", secret, "").await.0, 200);
    assert_eq!(server.tries(PODS, &pod("new", "n2", "")).await, (200, String::new()));
    for (method, path, body) in
        [("POST", mirrors.as_str(), mirror(&uid)), ("PATCH", &status, ready.to_owned())]
    {
        let (code, answer) = as_node(&server.ephemeral, method, path, &body).await;
        assert!(code == 500 && answer.contains(&key), "{method} {path}: {answer}");
    }
    // No pod can be created on the node, because the topology labels to copy from it are unknown.
    let (code, message) = server.tries(PODS, &pod("new", "n1", "")).await;
    assert!(code == 500 && message.contains(&key), "{message}");
    let (code, page) = server.health("/readyz");
    assert!(code == 500 && page.contains(&key), "{page}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_pod_grants_its_node_no_access() {
    let directory = private_directory();
    filled(directory.path()).await;
    let key = break_offline(directory.path(), &["pods", "default", "p"]).await;
    let server = start(directory.path()).await;
    let (code, answer) = as_node(&server.ephemeral, "GET", "/api/v1/namespaces/default/secrets/s", "").await;
    assert_eq!(code, 403, "{answer}");
    let (code, answer) = as_node(&server.ephemeral, "GET", &format!("{PODS}/p"), "").await;
    assert!(matches!(code, 403 | 500), "{answer}");
    let deletion = as_node(&server.ephemeral, "DELETE", &format!("{PODS}/p"), "").await;
    assert!(matches!(deletion.0, 403 | 500), "{}", deletion.1);
    let (code, page) = server.health("/readyz");
    assert!(code == 500 && page.contains(&key), "{page}");
    server.stop().await;
}
