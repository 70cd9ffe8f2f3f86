//! Starts HTTPS servers, and creates service accounts with permissions, and webhook configurations.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::client::{Credentials, Trust};
use conformance::server::kubeconfig;
use conformance::{Client, Server, accepts};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use webhook_auth::client::ApiServerKeys;
use webhook_auth::keys::{FetchError, FetchKeys};
use webhook_auth::verify::Dialect;
use webhook_auth::{ConfigurationKind, KeySet, Pending};

pub(crate) const ON: &str = "--feature-gates=APIServerWebhookAuthenticationToken=true";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(crate) const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(crate) const DIALECTS: [Dialect; 2] = [Dialect::Attestations, Dialect::AttestationClaims];
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An HTTPS server, stopped when dropped.
pub(crate) struct Site {
    /// The base URL, `https://127.0.0.1:PORT`.
    pub(crate) url: String,
    pub(crate) port: u16,
    /// The CA of its certificate.
    authority: String,
    serving: JoinHandle<()>,
}

impl Site {
    /// Starts a server named `name` (and 127.0.0.1) from a router that may know its URL. With `proxies`, the handshake requires a
    /// client certificate of these CAs.
    pub(crate) async fn start(
        name: &str,
        proxies: Option<&str>,
        router: impl FnOnce(&str) -> Router,
    ) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        leaf.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let key = KeyPair::generate().unwrap();
        let leaf = leaf.signed_by(&key, &authority).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match proxies {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    roots.add(certificate.unwrap()).unwrap();
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = builder.with_single_cert(vec![leaf.der().clone()], key).unwrap();

        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("https://127.0.0.1:{port}");
        let router = router(&url);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = TowerToHyperService::new(router);
                    // Errors of clients that disconnect are ignored.
                    let _ =
                        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Site { url, port, authority: authority.pem(), serving }
    }

    /// The CA bundle as in webhook configurations.
    pub(crate) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.authority)
    }

    /// A client of this server, with a token or without.
    pub(crate) fn caller(&self, token: Option<&str>) -> Client {
        let credentials = token.map_or(Credentials::None, |token| Credentials::Token(token.to_owned()));
        let trust = Trust::Authorities(self.authority.clone().into_bytes());
        Client::new(&self.url, trust, credentials).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Reads keys from the server that runs at the moment.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Option<ApiServerKeys>>>);

impl Running {
    pub(crate) fn now(&self, keys: ApiServerKeys) {
        *self.0.lock().unwrap() = Some(keys);
    }
}

impl FetchKeys for Running {
    fn fetch(&self) -> Pending<'_, Result<KeySet, FetchError>> {
        let keys = self.0.lock().unwrap().clone();
        Box::pin(async move {
            match keys {
                Some(keys) => keys.fetch().await,
                None => Err(FetchError::Transport("nothing runs".to_owned())),
            }
        })
    }
}

/// The issuer of the server's tokens.
pub(crate) async fn issuer(client: &Client) -> String {
    let document = accepts(client.get("/.well-known/openid-configuration").await).unwrap();
    document["issuer"].as_str().unwrap().to_owned()
}

pub(crate) async fn kube_client(url: &str, token: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig(url, token)).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

pub(crate) async fn kube_admin(server: &Server) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig().unwrap()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

pub(crate) fn accounts(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts")
}

/// Creates a service account, and a token for it.
pub(crate) async fn account(client: &Client, namespace: &str, name: &str) -> String {
    let path = accounts(namespace);
    accepts(client.post(&path, &json!({"metadata": {"name": name}})).await).unwrap();
    let request = json!({"spec": {}});
    let issued = accepts(client.post(&format!("{path}/{name}/token"), &request).await).unwrap();
    issued["status"]["token"].as_str().unwrap().to_owned()
}

/// Grants a permission to an account.
pub(crate) async fn allow(client: &Client, namespace: &str, account: &str, what: &str, rules: &Value) {
    let name = format!("{account}-{what}");
    accepts(client.post(ROLES, &json!({"metadata": {"name": name}, "rules": rules})).await).unwrap();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    });
    accepts(client.post(BINDINGS, &binding).await).unwrap();
}

/// The rules that let an account request tokens for these groups, with both sets of names.
pub(crate) fn attest(groups: &[&str]) -> Value {
    json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["admissionReviewAPIGroups"], "resourceNames": groups, "verbs": ["attest"]},
        {"apiGroups": ["webhook-authentication.k8s.io"], "resources": ["apigroups"], "resourceNames": groups, "verbs": ["attest"]},
    ])
}

pub(crate) fn configurations(kind: ConfigurationKind) -> String {
    let plural = match kind {
        ConfigurationKind::Mutating => "mutating",
        ConfigurationKind::Validating => "validating",
    };
    format!("/apis/admissionregistration.k8s.io/v1/{plural}webhookconfigurations")
}

/// Registers one webhook at a URL for created objects of a group.
pub(crate) async fn register(
    client: &Client,
    kind: ConfigurationKind,
    name: &str,
    (site, path): (&Site, &str),
    (group, resource): (&str, &str),
) -> Value {
    let body = json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": "guard.example.com",
            "clientConfig": {"url": format!("{}{path}", site.url), "caBundle": site.ca_bundle()},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
        }],
    });
    accepts(client.post(&configurations(kind), &body).await).unwrap()
}

/// Registers `guards`, which validates created objects of a group.
pub(crate) async fn register_validating(client: &Client, site: &Site, resource: (&str, &str)) {
    register(client, ConfigurationKind::Validating, "guards", (site, "/validate"), resource).await;
}

pub(crate) async fn unregister(client: &Client, kind: ConfigurationKind, name: &str) {
    accepts(client.delete(&format!("{}/{name}", configurations(kind))).await).unwrap();
}

/// A review as an API server sends it.
pub(crate) fn review(group: &str, resource: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "a-uid", "operation": "CREATE", "name": "one", "namespace": "default",
            "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "userInfo": {"username": "ben"},
        },
    })
}

/// Requests a token for a webhook.
pub(crate) async fn token_for(
    client: &Client,
    (namespace, account): (&str, &str),
    dialect: Dialect,
    (kind, name): (ConfigurationKind, &str),
    audience: &str,
    group: &str,
) -> conformance::Result<String> {
    let body = json!({"spec": {
        "audiences": [audience],
        "boundObjectRef": {"apiVersion": kind.api_version(), "kind": kind.kind(), "name": name},
        dialect.field(): {dialect.group_key(): [group]},
    }});
    let path = format!("{}/{account}/token", accounts(namespace));
    let issued = accepts(client.post(&path, &body).await)?;
    Ok(issued["status"]["token"].as_str().unwrap().to_owned())
}
