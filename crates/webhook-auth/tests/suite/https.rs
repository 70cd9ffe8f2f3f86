//! Fetches keys over real TLS connections.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use webhook_auth::https::Https;
use webhook_auth::keys::{Discovery, FetchError, FetchKeys as _, Get as _};

use crate::issuer::{Key, jwks};

/// Serves these routes over TLS. Returns the server's URL and the PEM of its CA certificate.
async fn serve(routes: impl FnOnce(&str) -> Router) -> (String, String) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let router = routes(&url);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let service = TowerToHyperService::new(router);
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    (url, authority.pem())
}

#[tokio::test]
async fn discovery_sends_the_bearer_token_only_to_the_issuer() {
    let key = Key::ec("k");
    let set = jwks(&[&key]);
    let received: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let hear = {
        let received = Arc::clone(&received);
        move |headers: &HeaderMap| {
            let value = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            received.lock().unwrap().push(value);
        }
    };
    let (keys_url, keys_pem) = serve({
        let hear = hear.clone();
        move |_| {
            Router::new().route(
                "/jwks",
                get(async move |headers: HeaderMap| {
                    hear(&headers);
                    set
                }),
            )
        }
    })
    .await;
    let (issuer, issuer_pem) = serve(move |url| {
        let document = json!({"issuer": url, "jwks_uri": format!("{keys_url}/jwks")}).to_string();
        Router::new().route(
            "/.well-known/openid-configuration",
            get(async move |headers: HeaderMap| {
                hear(&headers);
                document
            }),
        )
    })
    .await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "secret").unwrap();
    let https = Https::new(format!("{issuer_pem}{keys_pem}").as_bytes()).unwrap();
    let https = https.with_token_file(&issuer, file.path()).unwrap();
    let keys = Discovery::new(&issuer, https).fetch().await.unwrap();
    assert_eq!(keys.ids().map(|(id, _)| id).collect::<Vec<_>>(), ["k"]);
    assert_eq!(*received.lock().unwrap(), [Some("Bearer secret".to_owned()), None]);
}

#[tokio::test]
async fn untrusted_servers_and_malformed_answers_are_refused() {
    let (url, pem) = serve(|url| {
        let away = format!("{url}/fine");
        Router::new()
            .route("/fine", get(async || "{}"))
            .route("/long", get(async || "x".repeat(300_000)))
            .route("/away", get(async move || (axum::http::StatusCode::FOUND, [("location", away)])))
    })
    .await;
    let https = Https::new(pem.as_bytes()).unwrap();
    let get = async |https: &Https, path: &str| https.get(&format!("{url}{path}"), "application/json").await;
    assert_eq!(get(&https, "/fine").await, Ok(b"{}".to_vec()));
    assert!(matches!(get(&https, "/long").await, Err(FetchError::Transport(_))));
    assert!(matches!(get(&https, "/away").await, Err(FetchError::Transport(error)) if error.contains("302")));
    assert!(matches!(get(&https, "/none").await, Err(FetchError::Transport(error)) if error.contains("404")));
    let (_, other) = serve(|_| Router::new()).await;
    let stranger = Https::new(other.as_bytes()).unwrap();
    assert!(matches!(get(&stranger, "/fine").await, Err(FetchError::Transport(_))));
    let plain = https.get(&url.replace("https:", "http:"), "*/*").await;
    assert!(matches!(plain, Err(FetchError::Transport(error)) if error.contains("no https URL")));
    assert!(Https::new(b"nothing").is_err());
}
