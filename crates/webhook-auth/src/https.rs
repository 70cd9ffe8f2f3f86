//! [`Https`]: an HTTPS client for [`Discovery`](crate::keys::Discovery). It opens one connection per
//! document, because keys are fetched only every few minutes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Pending;
use crate::keys::{Discovery, FetchError, Get, KeyCache, MAX_BODY};
use crate::verify::JWKS_PATH;

/// The directory of a pod's service account files.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The API server's URL within the cluster.
const API_SERVER: &str = "https://kubernetes.default.svc";

/// An HTTPS client that trusts only the given CAs.
#[derive(Clone)]
pub struct Https {
    tls: Arc<ClientConfig>,
    token: Option<BearerTokenSource>,
}

/// A bearer token that is sent to one server only.
#[derive(Clone)]
struct BearerTokenSource {
    server: Uri,
    file: PathBuf,
}

impl Https {
    /// Trusts these CA certificates, as PEM.
    pub fn new(authorities: &[u8]) -> Result<Self, FetchError> {
        let transport = |error: &dyn fmt::Display| FetchError::Transport(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate.map_err(|e| transport(&e))?).map_err(|e| transport(&e))?;
        }
        if roots.is_empty() {
            return Err(FetchError::Transport("no authority to trust".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| transport(&e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Https { tls: Arc::new(tls), token: None })
    }

    /// Sends the token in this file to this server, and to no other. The file is read for every request,
    /// because the token is rotated.
    pub fn with_token_file(mut self, server: &str, file: impl Into<PathBuf>) -> Result<Self, FetchError> {
        let server = server.parse().map_err(|_| FetchError::Transport(format!("`{server}` is no URL")))?;
        self.token = Some(BearerTokenSource { server, file: file.into() });
        Ok(self)
    }

    async fn fetch(&self, url: &str, accept: &str) -> Result<Vec<u8>, FetchError> {
        let failed = |what: &str, error: &dyn fmt::Display| FetchError::Transport(format!("{what}: {error}"));
        let uri: Uri = url.parse().map_err(|e| failed(url, &e))?;
        let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(FetchError::Transport(format!("`{url}` is no https URL")));
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(443);
        let name = ServerName::try_from(host.to_owned()).map_err(|e| failed(url, &e))?;
        let tcp = TcpStream::connect((host, port)).await.map_err(|e| failed(url, &e))?;
        let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await;
        let tls = TokioIo::new(tls.map_err(|e| failed(url, &e))?);
        let (mut sender, connection) = http1::handshake(tls).await.map_err(|e| failed(url, &e))?;

        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut request = Request::get(target).header(HOST, authority.as_str()).header(ACCEPT, accept);
        if let Some(value) = self.authorization(&uri)? {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|e| failed(url, &e))?;
        // The connection is closed when the sender is dropped, below or with this future.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let response = sender.send_request(request).await.map_err(|e| failed(url, &e))?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Transport(format!("{url}: {}", response.status())));
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        Ok(body.map_err(|e| failed(url, &e))?.to_bytes().to_vec())
    }

    fn authorization(&self, uri: &Uri) -> Result<Option<HeaderValue>, FetchError> {
        let Some(BearerTokenSource { server, file }) = &self.token else { return Ok(None) };
        let port = |uri: &Uri| uri.port_u16().unwrap_or(443);
        if server.host() != uri.host() || port(server) != port(uri) || server.scheme() != uri.scheme() {
            return Ok(None);
        }
        let unreadable = |_| FetchError::Transport(format!("cannot read `{}`", file.display()));
        let token = fs::read_to_string(file).map_err(unreadable)?;
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| FetchError::Transport(format!("`{}` holds no token", file.display())))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl Get for Https {
    fn get<'a>(&'a self, url: &'a str, accept: &'a str) -> Pending<'a, Result<Vec<u8>, FetchError>> {
        Box::pin(self.fetch(url, accept))
    }
}

impl fmt::Debug for Https {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Https")
            .field("token_for", &self.token.as_ref().map(|token| &token.server))
            .finish_non_exhaustive()
    }
}

/// Keys of the cluster in which this pod runs, read from its API server with the pod's service account.
pub fn in_cluster(issuer: impl Into<String>) -> Result<KeyCache, FetchError> {
    let directory = Path::new(IN_CLUSTER);
    let authorities = directory.join("ca.crt");
    let authorities = fs::read(&authorities)
        .map_err(|error| FetchError::Transport(format!("`{}`: {error}", authorities.display())))?;
    let https = Https::new(&authorities)?.with_token_file(API_SERVER, directory.join("token"))?;
    let discovery = Discovery::new(issuer, https).at(API_SERVER).keys_at(format!("{API_SERVER}{JWKS_PATH}"));
    Ok(KeyCache::new(discovery))
}
