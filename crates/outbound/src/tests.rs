//! Tests of the outbound client against real TLS servers.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{
    BearerToken, ClientIdentity, Endpoint, EndpointError, FailureKind, OutboundCredential, OutboundRequest,
    OutboundTarget, ServerTrust, from_kubeconfig,
};

/// A generated certificate with its key.
struct TestCertificate {
    pem: String,
    key: KeyPair,
    params: CertificateParams,
}

fn authority(name: &str) -> TestCertificate {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    TestCertificate { pem, key, params }
}

fn leaf_params(names: &[&str], addresses: &[&str]) -> CertificateParams {
    let mut params =
        CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap();
    for address in addresses {
        params.subject_alt_names.push(SanType::IpAddress(address.parse::<IpAddr>().unwrap()));
    }
    params
}

fn signed(authority: &TestCertificate, params: CertificateParams) -> TestCertificate {
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&authority.params, &authority.key);
    let pem = params.signed_by(&key, &issuer).unwrap().pem();
    TestCertificate { pem, key, params }
}

/// Behavior of a test server.
#[derive(Clone, Copy)]
enum Habit {
    /// Responds with a description of the request.
    Echo,
    /// Never sends a response.
    Hang,
    /// Responds with this many bytes.
    Long(usize),
    /// Closes the connection without a response.
    Close,
    /// Sends bytes that are not HTTP.
    Garbage,
}

struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

/// Starts a TLS server; with `clients` it requests client certificates of that CA.
async fn server(
    served: &TestCertificate,
    habit: Habit,
    alpn: &[&str],
    clients: Option<&TestCertificate>,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let chain = transport::tls::certificates(served.pem.as_bytes()).unwrap();
    let key = transport::tls::private_key(served.key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(transport::tls::certificates(authority.pem.as_bytes()).unwrap().remove(0)).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else { return };
                match habit {
                    Habit::Close => {
                        use tokio::io::AsyncReadExt as _;
                        let _ = tls.read(&mut [0; 16]).await;
                        return;
                    }
                    Habit::Garbage => {
                        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                        let _ = tls.read(&mut [0; 4096]).await;
                        let _ = tls.write_all(b"SSH-2.0-nothing here\r\n\r\n").await;
                        let _ = tls.shutdown().await;
                        return;
                    }
                    _ => {}
                }
                let service = service_fn(move |request: http::Request<Incoming>| answer(habit, request));
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    Server { address, connections }
}

/// Responds with `VERSION METHOD PATH AUTHORIZATION BODY`.
async fn answer(habit: Habit, request: http::Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let authorization =
        parts.headers.get("authorization").map_or("-", |value| value.to_str().unwrap()).to_owned();
    Ok(match habit {
        Habit::Hang => std::future::pending().await,
        Habit::Long(size) => Response::new(Full::new(vec![b'x'; size].into())),
        _ => {
            let text = format!(
                "{:?} {} {} {authorization} {}",
                parts.version,
                parts.method,
                parts.uri.path_and_query().unwrap(),
                String::from_utf8_lossy(&body)
            );
            Response::new(Full::new(text.into()))
        }
    })
}

fn endpoint(server: &Server, trusted: &TestCertificate) -> Endpoint {
    Endpoint {
        trust: ServerTrust::Authorities(trusted.pem.clone().into_bytes()),
        ..Endpoint::new(format!("https://{}/hook", server.address).parse().unwrap())
    }
}

fn post(body: &'static str) -> OutboundRequest {
    OutboundRequest::post_json(body, Duration::from_secs(10))
}

async fn said(target: &OutboundTarget, request: OutboundRequest) -> String {
    let answer = target.send(request).await.unwrap();
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// The failure's kind, and its message after the URL.
async fn failure(target: &OutboundTarget, request: OutboundRequest) -> (FailureKind, String) {
    let failure = target.send(request).await.unwrap_err();
    let words = failure.message.split_once("/hook\": ").map_or(failure.message.as_str(), |(_, w)| w);
    (failure.kind, words.to_owned())
}

const BOTH: &[&str] = &["h2", "http/1.1"];

#[tokio::test]
async fn a_call_over_http_1_keeps_its_connection_and_sends_the_token() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&[], &["127.0.0.1"]));
    let server = server(&served, Habit::Echo, &["http/1.1"], None).await;
    let target = OutboundTarget::new(Endpoint {
        credential: OutboundCredential::Bearer("secret".to_owned()),
        ..endpoint(&server, &authority)
    })
    .unwrap();
    for _ in 0..3 {
        assert_eq!(said(&target, post("{}")).await, "HTTP/1.1 POST /hook Bearer secret {}");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let elsewhere = OutboundRequest { path: Some("/other?timeout=3s".parse().unwrap()), ..post("x") };
    assert_eq!(said(&target, elsewhere).await, "HTTP/1.1 POST /other?timeout=3s Bearer secret x");
    let own = OutboundRequest { bearer: BearerToken::new("mine"), ..post("x") };
    assert_eq!(said(&target, own).await, "HTTP/1.1 POST /hook Bearer mine x");
    assert!(!format!("{target:?}").contains("secret"));
}

#[tokio::test]
async fn calls_share_an_http_2_connection_if_both_sides_support_it() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&["hook.example"], &[]));
    let server = server(&served, Habit::Echo, BOTH, None).await;
    let named = Endpoint {
        server_name: Some("hook.example".to_owned()),
        credential: OutboundCredential::Basic("me".to_owned(), "pw".to_owned()),
        ..endpoint(&server, &authority)
    };
    let target = OutboundTarget::new(named.clone()).unwrap();
    assert_eq!(said(&target, post("{}")).await, "HTTP/2.0 POST /hook Basic bWU6cHc= {}");
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let target = target.clone();
            tokio::spawn(async move { said(&target, post("{}")).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let target = OutboundTarget::new(Endpoint { http1_only: true, ..named }).unwrap();
    assert!(said(&target, post("{}")).await.starts_with("HTTP/1.1 "));
}

#[tokio::test]
async fn the_certificate_must_match_the_urls_name_when_another_address_is_dialled() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&["svc.ns.svc"], &[]));
    let server = server(&served, Habit::Echo, BOTH, None).await;
    let of = |url: &str| Endpoint {
        url: url.parse().unwrap(),
        dial: Some(server.address.to_string()),
        ..endpoint(&server, &authority)
    };
    let target = OutboundTarget::new(of("https://svc.ns.svc:443/hook")).unwrap();
    assert!(said(&target, post("")).await.contains("POST /hook"));
    let target = OutboundTarget::new(of("https://other.ns.svc:443/hook")).unwrap();
    assert_eq!(
        failure(&target, post("")).await,
        (
            FailureKind::Connect,
            "tls: failed to verify certificate: x509: certificate is valid for svc.ns.svc, not other.ns.svc"
                .to_owned()
        )
    );
}

#[tokio::test]
async fn server_certificates_are_verified_as_by_go_with_the_same_messages() {
    // A self-signed certificate that is marked as a CA and is part of the bundle.
    let mut params = leaf_params(&[], &["127.0.0.1"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let own = TestCertificate { pem: params.self_signed(&key).unwrap().pem(), key, params };
    let own_server = server(&own, Habit::Echo, BOTH, None).await;
    let target = OutboundTarget::new(endpoint(&own_server, &own)).unwrap();
    assert!(said(&target, post("")).await.contains("POST /hook"));

    let check = async |server: &Server, trusted: &TestCertificate, words: &str| {
        let target = OutboundTarget::new(Endpoint {
            credential: OutboundCredential::Bearer("never".to_owned()),
            ..endpoint(server, trusted)
        })
        .unwrap();
        let (kind, said) = failure(&target, post("")).await;
        assert_eq!(kind, FailureKind::Connect);
        assert!(said.starts_with("tls: failed to verify certificate: x509: "), "{said}");
        assert!(said.contains(words), "{said}");
    };
    let (one, two) = (authority("one"), authority("two"));
    check(&own_server, &one, "certificate signed by unknown authority").await;

    let nameless = server(&signed(&one, leaf_params(&["a.example"], &[])), Habit::Echo, BOTH, None).await;
    check(
        &nameless,
        &one,
        "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
    )
    .await;
    let other = server(&signed(&one, leaf_params(&[], &["10.0.0.1"])), Habit::Echo, BOTH, None).await;
    check(&other, &one, "certificate is valid for 10.0.0.1, not 127.0.0.1").await;

    let mut old = leaf_params(&[], &["127.0.0.1"]);
    old.not_after = rcgen::date_time_ymd(2020, 1, 2);
    old.not_before = rcgen::date_time_ymd(2020, 1, 1);
    let old = server(&signed(&one, old), Habit::Echo, BOTH, None).await;
    check(&old, &one, "certificate has expired or is not yet valid: current time ").await;
    check(&old, &one, "is after 2020-01-02T00:00:00Z").await;

    let good = server(&signed(&one, leaf_params(&[], &["127.0.0.1"])), Habit::Echo, BOTH, None).await;
    check(&good, &two, "certificate signed by unknown authority").await;
    // A CA with the same name but another key.
    let namesake = authority("one");
    check(
        &good,
        &namesake,
        r#"(possibly because of "x509: ECDSA verification failure" while trying to verify candidate authority certificate "one")"#,
    )
    .await;
}

#[tokio::test]
async fn a_client_certificate_is_presented_when_the_server_requests_it() {
    let (authority, clients) = (authority("ca"), authority("clients"));
    let served = signed(&authority, leaf_params(&[], &["127.0.0.1"]));
    let server = server(&served, Habit::Echo, BOTH, Some(&clients)).await;
    let client = signed(&clients, leaf_params(&["client"], &[]));
    let identity = ClientIdentity {
        certificate: client.pem.clone().into_bytes(),
        key: client.key.serialize_pem().into_bytes(),
    };
    let with = Endpoint { identity: Some(identity.clone()), ..endpoint(&server, &authority) };
    assert!(said(&OutboundTarget::new(with).unwrap(), post("")).await.contains("POST /hook"));
    let target = OutboundTarget::new(endpoint(&server, &authority)).unwrap();
    assert!(target.send(post("")).await.is_err());
    // A key that does not belong to the certificate.
    let key = KeyPair::generate().unwrap().serialize_pem().into_bytes();
    let wrong =
        Endpoint { identity: Some(ClientIdentity { key, ..identity }), ..endpoint(&server, &authority) };
    assert!(matches!(OutboundTarget::new(wrong), Err(EndpointError::Identity(_))));
}

#[tokio::test]
async fn credentials_are_not_sent_to_unverified_servers() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&[], &["127.0.0.1"]));
    let server = server(&served, Habit::Echo, BOTH, None).await;
    let target = OutboundTarget::new(Endpoint {
        trust: ServerTrust::AnyServer,
        credential: OutboundCredential::Bearer("secret".to_owned()),
        ..endpoint(&server, &authority)
    })
    .unwrap();
    assert!(target.withholds_credentials());
    assert_eq!(said(&target, post("{}")).await, "HTTP/2.0 POST /hook - {}");
    let own = OutboundRequest { bearer: BearerToken::new("mine"), ..post("") };
    assert_eq!(failure(&target, own).await.0, FailureKind::Unsent);
}

#[tokio::test]
async fn unresponsive_closing_malformed_and_oversized_responses_are_failures() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&[], &["127.0.0.1"]));
    let of = async |habit: Habit| {
        OutboundTarget::new(endpoint(&server(&served, habit, &["http/1.1"], None).await, &authority)).unwrap()
    };
    let soon = OutboundRequest { timeout: Duration::from_millis(100), ..post("") };
    assert_eq!(
        failure(&of(Habit::Hang).await, soon).await,
        (FailureKind::Timeout, "context deadline exceeded".to_owned())
    );
    assert_eq!(failure(&of(Habit::Close).await, post("")).await, (FailureKind::Broken, "EOF".to_owned()));
    let (kind, words) = failure(&of(Habit::Garbage).await, post("")).await;
    assert_eq!(kind, FailureKind::Broken);
    assert!(words.contains("malformed HTTP response"), "{words}");
    let few = OutboundRequest { max_answer: 1000, ..post("") };
    assert!(of(Habit::Long(1000)).await.send(few.clone()).await.is_ok());
    let (kind, words) = failure(&of(Habit::Long(1001)).await, few).await;
    assert_eq!((kind, words.as_str()), (FailureKind::TooLarge, "the response is longer than 1000 bytes"));
    // No server listens on this address any more.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = OutboundTarget::new(Endpoint::new(format!("https://{gone}/hook").parse().unwrap())).unwrap();
    let failed = target.send(post("")).await.unwrap_err();
    assert_eq!(
        failed.message,
        format!("Post \"https://{gone}/hook\": dial tcp {gone}: connect: connection refused")
    );
    assert_eq!(failed.kind, FailureKind::Connect);
}

#[test]
fn invalid_endpoints_are_refused_before_connecting() {
    let of = |url: &str| OutboundTarget::new(Endpoint::new(url.parse().unwrap()));
    assert!(of("https://a.example/x").is_ok());
    assert!(matches!(of("ftp://a.example/x"), Err(EndpointError::Url(..))));
    assert!(matches!(of("/x"), Err(EndpointError::Url(..))));
    let trust = |pem: &str| {
        let endpoint = Endpoint {
            trust: ServerTrust::Authorities(pem.as_bytes().to_vec()),
            ..Endpoint::new("https://a.example/".parse().unwrap())
        };
        OutboundTarget::new(endpoint).unwrap_err().to_string()
    };
    assert_eq!(trust("nothing"), "unable to load root certificates: unable to parse bytes as PEM block");
    assert!(
        trust("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")
            .contains("failed to parse certificate")
    );
}

#[tokio::test]
async fn a_kubeconfig_is_read_with_its_files_and_its_token_file_is_followed() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&[], &["127.0.0.1"]));
    let server = server(&served, Habit::Echo, &["http/1.1"], None).await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("ca.pem", &authority.pem);
    write("token", " first\n");
    let kubeconfig = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters:\n- name: c\n  cluster: {{certificate-authority: ca.pem, server: 'https://{}/hook/'}}\nusers:\n- name: u\n  user: {user}\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\n",
            server.address
        )
    };
    let path = directory.path().join("config");
    write("config", &kubeconfig("{tokenFile: token}"));
    let mut files = Vec::new();
    let endpoint = from_kubeconfig(&path, &mut files).unwrap();
    assert_eq!(files, [path.clone(), directory.path().join("ca.pem")]);
    let target = OutboundTarget::new(endpoint).unwrap();
    assert_eq!(said(&target, post("{}")).await, "HTTP/1.1 POST /hook Bearer first {}");
    write("token", "second");
    *target.inner.token.lock().unwrap() = None;
    assert_eq!(said(&target, post("{}")).await, "HTTP/1.1 POST /hook Bearer second {}");

    let refused = |user: &str| {
        write("config", &kubeconfig(user));
        let mut files = Vec::new();
        let why = from_kubeconfig(&path, &mut files).unwrap_err();
        (why, files)
    };
    let (why, _) = refused("{exec: {command: sh, apiVersion: v1, interactiveMode: Never}}");
    assert!(why.contains("exec is not supported"), "{why}");
    // The error lists missing files too, so that they can be watched.
    let (why, files) = refused("{tokenFile: nope}");
    assert!(why.contains("no such file or directory"), "{why}");
    assert!(files.contains(&directory.path().join("nope")), "{files:?}");
    let (why, files) = refused("{client-certificate: nope, client-key: nokey}");
    assert!(why.contains("unable to read client-cert "), "{why}");
    assert!(
        files.contains(&directory.path().join("nope")) && files.contains(&directory.path().join("nokey")),
        "{files:?}"
    );
}

#[tokio::test]
async fn a_token_file_that_is_too_long_is_no_token() {
    let authority = authority("ca");
    let served = signed(&authority, leaf_params(&[], &["127.0.0.1"]));
    let server = server(&served, Habit::Echo, &["http/1.1"], None).await;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    let credential = OutboundCredential::TokenFile(token.clone());
    let target = OutboundTarget::new(Endpoint { credential, ..endpoint(&server, &authority) }).unwrap();
    // A token file without any earlier good content: the request is not sent.
    std::fs::write(&token, "t".repeat(65 << 10)).unwrap();
    let (kind, message) = failure(&target, post("{}")).await;
    assert_eq!(kind, FailureKind::Unsent);
    assert!(message.contains("it is too long to be a token") && !message.contains("ttt"), "{message}");
    // The longest token that is accepted.
    let longest = "t".repeat(16 << 10);
    std::fs::write(&token, &longest).unwrap();
    assert!(said(&target, post("{}")).await.contains(&longest));
    // A file that became too long: the last good token stays in use.
    std::fs::write(&token, "u".repeat(65 << 10)).unwrap();
    if let Some((read, _)) = target.inner.token.lock().unwrap().as_mut() {
        *read -= super::TOKEN_FILE_LIFE;
    }
    assert!(said(&target, post("{}")).await.contains(&longest));
}

#[test]
fn an_address_with_a_password_is_refused_without_showing_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let of = |server: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters:\n- name: c\n  cluster: {{server: '{server}'}}\ncontexts:\n- name: x\n  context: {{cluster: c}}\n"
        );
        std::fs::write(&path, text).unwrap();
        from_kubeconfig(&path, &mut Vec::new())
    };
    for server in [
        "https://me:secret@127.0.0.1:1/hook",
        "me:secret@127.0.0.1:1",
        // Credentials stay hidden even if the URL is invalid.
        "https://me:secret@127.0.0.1:port/hook",
        "https://me:secret@a b/hook",
    ] {
        let why = of(server).unwrap_err();
        assert!(
            why.contains("must not carry a user or password") && !why.contains("secret"),
            "{server}: {why}"
        );
    }
    assert!(of("https://127.0.0.1:1/hook@home").is_ok());
}

#[test]
fn debug_output_of_requests_and_credentials_hides_secrets() {
    let request =
        OutboundRequest { bearer: BearerToken::new("secret"), headers: HeaderMap::new(), ..post("body") };
    assert!(!format!("{request:?}").contains("secret"));
    assert!(
        !format!("{:?}", OutboundCredential::Basic("me".to_owned(), "secret".to_owned())).contains("secret")
    );
}
