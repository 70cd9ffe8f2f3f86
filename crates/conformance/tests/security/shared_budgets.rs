//! Many service accounts, addresses or impersonated users of one client cannot use the memory budgets up: others are served, and health
//! checks are answered.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conformance::client::{Trust, tls};
use conformance::{Client, Problem, Server, accepts, eventually};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::callers::{MAPS, SOON, alice_and_bob, metric};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MIB: usize = 1024 * 1024;
/// The size of each request body.
const LARGE: usize = 3 * MIB;
/// An object of a megabyte, in a form that is encoded for each request.
const OBJECT: &str = "/api/v1/namespaces/default/configmaps/large?pretty=true";
/// Identities of the attacker, and the bodies or answers of each. Together they exceed the budget of 256 MiB.
const IDENTITIES: u8 = 8;
const BODIES_EACH: usize = 12;
const ANSWERS_EACH: usize = 40;

/// An identity of the attacker: the token, if any, the address from which it connects, and the user that it impersonates, if any.
struct AttackerIdentity {
    token: Option<String>,
    address: Ipv4Addr,
    impersonates: Option<String>,
}

/// Allows a group all verbs on config maps.
async fn allow_maps(admin: &Client, group: &str) {
    let binding = json!({
        "metadata": {"generateName": "maps-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
}

/// Creates service accounts with tokens, in one namespace or each in a namespace of its own.
async fn service_accounts(admin: &Client, is_one_namespace: bool) -> Vec<AttackerIdentity> {
    allow_maps(admin, "system:serviceaccounts").await;
    let mut identities = Vec::new();
    for number in 0..IDENTITIES {
        let name = format!("sa{number}");
        let namespace = if is_one_namespace { "default".to_owned() } else { format!("ns{number}") };
        if !is_one_namespace {
            let object = json!({"metadata": {"name": namespace}});
            accepts(admin.post("/api/v1/namespaces", &object).await).unwrap();
        }
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        accepts(admin.post(&accounts, &json!({"metadata": {"name": name}})).await).unwrap();
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = accepts(admin.post(&format!("{accounts}/{name}/token"), &review).await).unwrap();
        let token = token["status"]["token"].as_str().unwrap().to_owned();
        let client = admin.as_token(Some(&token));
        eventually(SOON, async || accepts(client.get(&format!("{MAPS}?limit=1")).await)).await.unwrap();
        identities.push(AttackerIdentity {
            token: Some(token),
            address: Ipv4Addr::LOCALHOST,
            impersonates: None,
        });
    }
    identities
}

/// Users that alice impersonates.
async fn impersonated_users(admin: &Client) -> Vec<AttackerIdentity> {
    allow_maps(admin, "system:authenticated").await;
    let rules = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]);
    let role = json!({"metadata": {"name": "impersonator"}, "rules": rules});
    accepts(admin.post(&format!("{RBAC}/clusterroles"), &role).await).unwrap();
    let binding = json!({
        "metadata": {"name": "impersonator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "impersonator"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    accepts(admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await).unwrap();
    let alice = admin.as_token(Some("alicetoken"));
    let as_user = [("impersonate-user", "user0")];
    let path = format!("{MAPS}?limit=1");
    eventually(SOON, async || accepts(alice.send(http::Method::GET, &path, &as_user, Bytes::new()).await))
        .await
        .unwrap();
    let user = |number| AttackerIdentity {
        token: Some("alicetoken".to_owned()),
        address: Ipv4Addr::LOCALHOST,
        impersonates: Some(format!("user{number}")),
    };
    (0..IDENTITIES).map(user).collect()
}

/// Anonymous clients at different addresses.
async fn addresses(admin: &Client) -> Vec<AttackerIdentity> {
    allow_maps(admin, "system:unauthenticated").await;
    let client = admin.as_token(None);
    eventually(SOON, async || accepts(client.get(&format!("{MAPS}?limit=1")).await)).await.unwrap();
    let at = |number| AttackerIdentity {
        token: None,
        address: Ipv4Addr::new(127, 0, 0, 2 + number),
        impersonates: None,
    };
    (0..IDENTITIES).map(at).collect()
}

/// A TLS connection from the address of the identity.
async fn connect(client: &Client, identity: &AttackerIdentity, protocol: &[u8]) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((identity.address, 0).into()).unwrap();
    let tcp = socket.connect(client.authority().parse().unwrap()).await.unwrap();
    let mut config = tls(Trust::Anything, None).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

/// Sends bodies that never end, each with a byte every two seconds so that it does not pause for too long.
async fn hold_bodies(client: &Client, identities: &[AttackerIdentity]) -> JoinSet<()> {
    let mut held = JoinSet::new();
    for identity in identities.iter().flat_map(|identity| std::iter::repeat_n(identity, BODIES_EACH)) {
        let mut stream = connect(client, identity, b"http/1.1").await;
        let mut head = format!(
            "POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {LARGE}\r\n"
        );
        if let Some(token) = &identity.token {
            head.extend(["authorization: Bearer ", token, "\r\n"]);
        }
        if let Some(user) = &identity.impersonates {
            head.extend(["impersonate-user: ", user, "\r\n"]);
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        held.spawn(async move {
            let mut written = stream.write_all(&vec![b' '; LARGE - 1000]).await;
            while written.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(2)).await;
                written = stream.write_all(b" ").await;
            }
        });
    }
    held
}

/// Requests objects in HTTP/2 streams and does not read them.
async fn hold_answers(client: &Client, identities: &[AttackerIdentity]) -> Vec<http::Response<Incoming>> {
    let mut held = Vec::new();
    for identity in identities {
        let stream = connect(client, identity, b"h2").await;
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(16 * 1024)
            .initial_connection_window_size(1 << 30)
            .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        for _ in 0..ANSWERS_EACH {
            let mut request = http::Request::get(format!("https://{}{OBJECT}", client.authority()));
            if let Some(token) = &identity.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            held.push(sender.send_request(request.body(Full::default()).unwrap()).await.unwrap());
        }
    }
    held
}

/// Waits until a budget has refused this many requests, for whatever reason.
async fn refused(admin: &Client, name: &str, wanted: f64) {
    eventually(SOON, async || {
        let of = async |reason| metric(admin, name, reason).await.unwrap_or(0.0);
        match of("share").await + of("total").await {
            refused if refused >= wanted => Ok(()),
            refused => Err(Problem::new(format!("{refused} requests were refused"))),
        }
    })
    .await
    .unwrap();
}

/// Another user writes a large object and reads one, and health checks are answered.
async fn others_are_served(admin: &Client, bob: &Client) {
    let anonymous = admin.as_token(None);
    for page in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(anonymous.get(page).await.unwrap().code, 200, "{page}");
    }
    let object =
        json!({"metadata": {"generateName": "bob-"}, "data": {"k": "x".repeat(900_000)}}).to_string();
    let padded = " ".repeat(LARGE - object.len()) + &object;
    let json = [("content-type", "application/json")];
    accepts(bob.send(http::Method::POST, MAPS, &json, padded.into()).await).unwrap();
    accepts(bob.get(OBJECT).await).unwrap();
}

async fn start() -> (Server, Client, Client) {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let (_, bob) = alice_and_bob(&admin).await;
    let map = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(1_000_000)}});
    accepts(admin.post(MAPS, &map).await).unwrap();
    (server, admin, bob)
}

const BODIES: &str = "apiserver_request_body_refused_total";
const ANSWERS: &str = "apiserver_unsent_response_refused_total";

#[tokio::test]
async fn request_bodies_of_many_service_accounts_do_not_block_other_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_bodies(&admin, &service_accounts(&admin, true).await).await;
    refused(&admin, BODIES, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}

#[tokio::test]
async fn request_bodies_of_service_accounts_of_many_namespaces_do_not_block_other_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_bodies(&admin, &service_accounts(&admin, false).await).await;
    refused(&admin, BODIES, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}

#[tokio::test]
async fn request_bodies_of_many_impersonated_users_do_not_block_other_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_bodies(&admin, &impersonated_users(&admin).await).await;
    refused(&admin, BODIES, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}

#[tokio::test]
async fn request_bodies_from_many_addresses_do_not_block_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_bodies(&admin, &addresses(&admin).await).await;
    refused(&admin, BODIES, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}

#[tokio::test]
async fn unread_answers_of_many_service_accounts_do_not_block_other_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_answers(&admin, &service_accounts(&admin, true).await).await;
    refused(&admin, ANSWERS, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}

#[tokio::test]
async fn unread_answers_of_service_accounts_of_many_namespaces_do_not_block_other_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_answers(&admin, &service_accounts(&admin, false).await).await;
    refused(&admin, ANSWERS, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}

#[tokio::test]
async fn unread_answers_to_many_addresses_do_not_block_users() {
    let (_server, admin, bob) = start().await;
    let held = hold_answers(&admin, &addresses(&admin).await).await;
    refused(&admin, ANSWERS, 10.0).await;
    others_are_served(&admin, &bob).await;
    drop(held);
}
