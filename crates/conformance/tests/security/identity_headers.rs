//! Users are sent to aggregated API servers in headers. No header of a client that a server could read as one of them is
//! forwarded: CGI-style servers do not distinguish `X-Remote-User` from `X_Remote_User` or `X.Remote.User`.

use bytes::Bytes;
use conformance::aggregated_server::{AggregatedReply, AggregatedServer, Received};
use conformance::{Client, Server, accepts};
use http::{HeaderMap, HeaderValue, Method};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const THINGS: &str = "/apis/headers.example.com/v1/things";

/// The number of headers per request; servers accept a hundred.
const AT_ONCE: usize = 40;

/// Identity headers: the standard ones, those of impersonation, and those that the flags of the test name.
const IDENTITY: &[&str] = &[
    "x-remote-user",
    "x-remote-uid",
    "x-remote-group",
    "x-remote-extra-scopes",
    "x-remote-extra-example.org%2fscopes",
    "impersonate-uid",
    "impersonate-extra-scopes",
    "x-proxied-user",
    "x-proxied-uid",
    "x-proxied-group",
    "x-proxied-extra-scopes",
    "authorization",
];

/// Characters that a CGI-style server maps to the same one as a hyphen.
const SEPARATORS: &[char] = &['_', '.', '~', '!', '+', '|', '^', '*'];

/// The header name as a CGI-style server reads it.
fn as_variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// Every name with every separator: at all positions, and only at the last.
fn spellings() -> Vec<String> {
    let mut spellings = Vec::new();
    for name in IDENTITY.iter().filter(|name| name.contains('-')) {
        for separator in SEPARATORS {
            let separator = separator.to_string();
            spellings.push(name.replace('-', &separator));
            let (start, end) = name.rsplit_once('-').unwrap();
            spellings.push(format!("{start}{separator}{end}"));
        }
    }
    spellings
}

fn things(received: &Received) -> AggregatedReply {
    match received.path() {
        path if path.ends_with("/exec") => AggregatedReply::Echo("SPDY/3.1"),
        "/apis/headers.example.com/v1" => AggregatedReply::Json(
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "headers.example.com/v1", "resources": []}),
        ),
        _ => AggregatedReply::Json(200, json!({"kind": "Thing", "apiVersion": "headers.example.com/v1"})),
    }
}

/// A server with custom names for front proxy headers, and an aggregated API server that records requests.
async fn start_with_extension() -> (TempDir, Server, Client, AggregatedServer) {
    let folder = TempDir::new().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let path = folder.path().join("proxy-ca.crt");
    std::fs::write(&path, authority.pem()).unwrap();
    let server = Server::serve(&[
        &format!("--requestheader-client-ca-file={}", path.display()),
        "--requestheader-username-headers=X-Remote-User,X-Proxied-User",
        "--requestheader-uid-headers=X-Remote-Uid,X-Proxied-Uid",
        "--requestheader-group-headers=X-Remote-Group,X-Proxied-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-,X-Proxied-Extra-",
    ])
    .await
    .unwrap();
    let client = server.client().unwrap();
    let extension = AggregatedServer::start("headers.default.svc", None, things).await.unwrap();
    extension.register(&client, "headers", "headers.example.com").await.unwrap();
    (folder, server, client, extension)
}

/// The identity headers of a request, as a CGI-style server reads them.
fn identity_headers_of(headers: &HeaderMap) -> Vec<(String, String)> {
    let names: Vec<String> = IDENTITY.iter().map(|name| as_variable(name)).collect();
    let mut found: Vec<(String, String)> = headers
        .iter()
        .map(|(name, value)| {
            (as_variable(name.as_str()), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .filter(|(name, _)| {
            names.contains(name)
                || name.starts_with("impersonate-")
                || name.starts_with("x-remote-")
                || name.starts_with("x-proxied-")
        })
        .collect();
    found.sort();
    found
}

/// The identity headers of the administrator at an aggregated API server.
fn administrator() -> Vec<(String, String)> {
    let headers = [
        ("x-remote-group", "system:authenticated"),
        ("x-remote-group", "system:masters"),
        ("x-remote-uid", "admin"),
        ("x-remote-user", "admin"),
    ];
    headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

#[tokio::test]
async fn aggregated_servers_get_no_identity_header_of_a_client_in_any_spelling() {
    let (_folder, _server, client, extension) = start_with_extension().await;
    let claimed = spellings();
    assert!(claimed.len() > 150, "{claimed:?}");
    // Headers with only similar names are forwarded.
    let passing = ["x-address", "x_remote", "xremoteuser", "x-forwarded-port", "x-own_header"];
    for (number, claimed) in claimed.chunks(AT_ONCE).enumerate() {
        let mut sent: Vec<(&str, &str)> =
            claimed.iter().map(|name| (name.as_str(), "somebody-else")).collect();
        sent.extend([("x-remote-user", "somebody-else"), ("x-proxied-user", "somebody-else")]);
        sent.extend(passing.map(|name| (name, "mine")));
        let path = format!("{THINGS}/{number}");
        accepts(client.send(Method::GET, &path, &sent, Bytes::new()).await).unwrap();
        let received = extension.received_for_others();
        let received = received.iter().find(|received| received.path() == path).unwrap();
        for name in passing {
            assert_eq!(received.all(name), ["mine"], "{name}");
        }
        assert_eq!(identity_headers_of(&received.headers), administrator());
        assert!(!format!("{:?}", received.headers).contains("somebody-else"), "{:?}", received.headers);
    }
}

#[tokio::test]
async fn aggregated_servers_get_no_header_by_which_other_proxies_identify_clients() {
    let (_folder, _server, client, extension) = start_with_extension().await;
    let claimed = [
        "remote-user",
        "Remote_Groups",
        "x-remote-name",
        "x.remote.groups",
        "x-forwarded-user",
        "x_forwarded_groups",
        "x-forwarded-email",
        "x-forwarded-client-cert",
        "x-auth-request-user",
        "x-webauth-user",
        "ssl-client-subject-dn",
        "client-cert",
        "x_forwarded_host",
    ];
    let passing = [
        ("x-forwarded-port", "8443"),
        ("forwarded", "for=192.0.2.43"),
        ("x-real-ip", "192.0.2.43"),
        ("x-request-id", "7"),
        ("cookie", "a=b"),
    ];
    let mut sent = claimed.map(|name| (name, "somebody-else")).to_vec();
    sent.extend(passing);
    sent.push(("x-forwarded-for", "192.0.2.43"));
    let path = format!("{THINGS}/other-proxies");
    accepts(client.send(Method::GET, &path, &sent, Bytes::new()).await).unwrap();
    let received = extension.received_for_others();
    let received = received.iter().find(|received| received.path() == path).unwrap();
    assert!(!format!("{:?}", received.headers).contains("somebody-else"), "{:?}", received.headers);
    assert_eq!(identity_headers_of(&received.headers), administrator());
    for (name, value) in passing {
        assert_eq!(received.all(name), [value], "{name}");
    }
    assert_eq!(received.header("x-forwarded-for"), "192.0.2.43, 127.0.0.1");
}

/// Sends a request as bytes and reads the head of its answer.
async fn send_raw(client: &Client, head: &str, body: &str) -> String {
    let mut stream = client.tls_stream().await.unwrap();
    let token = client.token().unwrap();
    let head = format!("{head}Host: x\r\nAuthorization: Bearer {token}\r\n");
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn upgrades_and_trailers_carry_no_identity_of_a_client() {
    let (_folder, _server, client, extension) = start_with_extension().await;
    for (number, claimed) in spellings().chunks(AT_ONCE).enumerate() {
        let claimed: Vec<String> = claimed.iter().map(|name| format!("{name}: somebody-else\r\n")).collect();
        let claimed = claimed.concat();
        let path = format!("{THINGS}/{number}/exec");
        let head = format!(
            "POST {path} HTTP/1.1\r\nConnection: Upgrade, X-Remote-User\r\nUpgrade: SPDY/3.1\r\n{claimed}Content-Length: 0\r\n"
        );
        let answer = send_raw(&client, &head, "").await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        let received = extension.received_for_others();
        let received = received.iter().find(|received| received.path() == path).unwrap();
        assert_eq!(identity_headers_of(&received.headers), administrator());
        assert!(!format!("{:?}", received.headers).contains("somebody-else"), "{:?}", received.headers);

        let path = format!("{THINGS}/{number}");
        let head = format!(
            "POST {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: digest\r\nContent-Type: application/json\r\n"
        );
        let body =
            format!("2\r\n{{}}\r\n0\r\nx-remote-user: somebody-else\r\nDigest: sha-256=x\r\n{claimed}\r\n");
        let answer = send_raw(&client, &head, &body).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let received = extension.received_for_others();
        let received = received.iter().find(|received| received.path() == path).unwrap();
        assert_eq!(identity_headers_of(&received.headers), administrator());
        assert_eq!(identity_headers_of(&received.trailers), []);
        assert_eq!(received.trailers.get("digest").map(HeaderValue::as_bytes), Some(&b"sha-256=x"[..]));
    }
}

#[tokio::test]
async fn paths_that_an_aggregated_server_could_normalize_are_not_forwarded() {
    let (_folder, _server, client, extension) = start_with_extension().await;
    accepts(client.get(&format!("{THINGS}/one")).await).unwrap();
    accepts(client.get(&format!("{THINGS}/")).await).unwrap();
    let before = extension.received_for_others().len();
    for path in [
        "/apis/headers.example.com/v1//things",
        "/apis/headers.example.com/v1/namespaces/public//things",
        "/apis/headers.example.com/v1/namespaces/public/../secret/things",
        "/apis/headers.example.com/v1/namespaces/public/%2e%2e/secret/things",
        "/apis/headers.example.com/v1/namespaces/public%2F..%2Fsecret/things",
        "/apis/headers.example.com/v1/./things",
        "/apis/headers.example.com/v1/things/..",
        "/apis/headers.example.com/v1/things//",
        "/apis/headers.example.com/v1/namespaces/public/..;/secret/things",
        "/apis/headers.example.com/v1/namespaces/public/..;a=b/secret/things",
        "/apis/headers.example.com/v1/namespaces/public/..%5csecret/things",
        "/apis/headers.example.com/v1/namespaces/public/..%00/secret/things",
    ] {
        let answer = client.get(path).await.unwrap();
        assert_eq!(answer.code, 404, "{path}: {}", answer.text());
    }
    assert_eq!(extension.received_for_others().len(), before, "a request was passed on");
}

#[tokio::test]
async fn upgrades_to_http_2_are_not_forwarded() {
    let (_folder, _server, client, extension) = start_with_extension().await;
    for (number, (protocol, passes)) in [
        ("h2c", false),
        ("h2c, websocket", false),
        ("TLS/1.3", false),
        ("websocket", true),
        ("SPDY/3.1", true),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("{THINGS}/upgrade-{number}");
        let sent = [
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", protocol),
            ("http2-settings", "AAMAAABkAAQAAP__"),
        ];
        let answer = client.send(Method::GET, &path, &sent, Bytes::new()).await.unwrap();
        let received = extension.received_for_others();
        let received = received.iter().find(|received| received.path() == path).unwrap();
        assert_eq!(received.headers.contains_key("upgrade"), passes, "{protocol}");
        assert!(!received.headers.contains_key("http2-settings"), "{protocol}");
        // The aggregated server does not switch protocols, which is an error for the client.
        assert_eq!(answer.code, if passes { 503 } else { 200 }, "{protocol}");
    }
}
