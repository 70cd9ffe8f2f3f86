//! A validating webhook that accepts AdmissionReviews from API servers only.
//!
//! In a cluster it reads the keys from the API server with the pod's service account. Outside of a cluster, set the API server's
//! address, its CA and a token file:
//!
//! ```sh
//! cargo run -p webhook-auth --example webhook -- --cert tls.crt --key tls.key \
//!     --server https://192.0.2.1:6443 --ca apiserver-ca.crt --token-file guard.token
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use webhook_auth::extract::Review;
use webhook_auth::https::{self, Https};
use webhook_auth::keys::{Discovery, KeyCache};
use webhook_auth::layer::WebhookAuthLayer;
use webhook_auth::verify::JWKS_PATH;
use webhook_auth::{ConfigurationKind, Counts, Expected};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Debug)]
pub(crate) struct WebhookFlags(HashMap<String, String>);

const DEFAULTS: [(&str, &str); 6] = [
    ("listen", "0.0.0.0:8443"),
    ("cert", "tls.crt"),
    ("key", "tls.key"),
    // The value of the API server's flag `--service-account-issuer`.
    ("issuer", "https://kubernetes.default.svc"),
    // The webhook's address as in its configuration: the URL, or `https://NAME.NAMESPACE.svc:PORT/PATH`.
    ("audience", "https://guard.default.svc:443/validate"),
    ("mode", "require"),
];

impl WebhookFlags {
    /// Parses `--name value` pairs.
    pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut flags: HashMap<_, _> =
            DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("`{word}` is no flag"))?;
            let value = words.next().ok_or_else(|| format!("`{word}` has no value"))?;
            flags.insert(name.to_owned(), value);
        }
        Ok(WebhookFlags(flags))
    }

    pub(crate) fn get(&self, name: &str) -> Result<&str> {
        Ok(self.0.get(name).ok_or_else(|| format!("`--{name}` is needed"))?)
    }

    /// The issuer's keys: from within the cluster, or from the API server that the flags name.
    fn keys(&self) -> Result<KeyCache> {
        let issuer = self.get("issuer")?;
        let Ok(server) = self.get("server") else { return Ok(https::in_cluster(issuer)?) };
        let https = Https::new(&fs::read(self.get("ca")?)?)?;
        let https = https.with_token_file(server, self.get("token-file")?)?;
        let discovery = Discovery::new(issuer, https).at(server);
        Ok(KeyCache::new(discovery.keys_at(format!("{server}{JWKS_PATH}"))))
    }
}

/// Denies objects with the label `forbidden`. Only callers whose token is valid for the request's API group
/// reach this handler.
async fn validate(review: Review<Value>) -> ([(&'static str, &'static str); 1], String) {
    if let Some(verified) = &review.verified {
        println!("{} asks about {}", verified.identity().subject(), review.request.resource.resource);
    }
    let forbidden = review.review.pointer("/request/object/metadata/labels/forbidden").is_some();
    let mut response = json!({"uid": review.request.uid, "allowed": !forbidden});
    if forbidden && let Some(response) = response.as_object_mut() {
        let status = json!({"message": "the label forbidden is set", "code": 403});
        response.insert("status".to_owned(), status);
    }
    let answer =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    ([("content-type", "application/json")], answer.to_string())
}

/// Serves the webhook until the task ends.
pub(crate) async fn serve(flags: &WebhookFlags, listener: TcpListener) -> Result<()> {
    let counts = Arc::<Counts>::default();
    let expected = Expected::new(flags.get("issuer")?, flags.get("audience")?, ConfigurationKind::Validating);
    let layer = WebhookAuthLayer::new(expected, flags.keys()?)?;
    let layer = layer.mode(flags.get("mode")?.parse()?).counts(Arc::clone(&counts));
    let router = Router::new()
        .route("/validate", post(validate))
        .route_layer(layer)
        // Routes added after the layer are not protected by it.
        .route("/metrics", get(async move || counts.to_prometheus()));

    let certificates =
        CertificateDer::pem_file_iter(flags.get("cert")?)?.collect::<std::result::Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(flags.get("key")?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        let (tcp, _) = listener.accept().await?;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = TowerToHyperService::new(router);
            let served =
                Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await;
            if let Err(error) = served {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = WebhookFlags::read(std::env::args().skip(1))?;
    let listener = TcpListener::bind(flags.get("listen")?).await?;
    println!("serving on {}", listener.local_addr()?);
    serve(&flags, listener).await
}
