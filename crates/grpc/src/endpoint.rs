//! Addresses of servers and the TLS files for them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("`{url}` is no endpoint: {why}")]
    Url { url: String, why: &'static str },
    #[error("cannot read `{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{}` contains no {what} in PEM format", path.display())]
    Pem { path: PathBuf, what: &'static str },
    #[error("a client certificate needs both a certificate file and a key file")]
    HalfIdentity,
    #[error("the system's certificate authorities cannot be loaded: {0}; name a certificate authority file")]
    SystemRoots(String),
    #[error("the TLS files do not fit together: {0}")]
    Tls(#[from] rustls::Error),
}

/// The files for TLS connections.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// Certificate authorities of the servers; the system's if `None`.
    pub ca: Option<PathBuf>,
    /// The client certificate, which needs [`TlsFiles::key`].
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Loads the files. The result is used for the endpoints that begin with `https://`.
    pub fn load(&self) -> Result<Arc<ClientConfig>, EndpointError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.authorities()? {
            roots.add(certificate)?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let no_key = |error| pem_error(key, "private key", error);
                let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(no_key)?;
                builder.with_client_auth_cert(certificates(certificate)?, private)?
            }
            _ => return Err(EndpointError::HalfIdentity),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
        if let Some(path) = &self.ca {
            return certificates(path);
        }
        let loaded = rustls_native_certs::load_native_certs();
        match loaded.errors.first() {
            Some(error) if loaded.certs.is_empty() => Err(EndpointError::SystemRoots(error.to_string())),
            _ => Ok(loaded.certs),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, EndpointError> {
    std::fs::read(path).map_err(|source| EndpointError::File { path: path.to_owned(), source })
}

fn pem_error(path: &Path, what: &'static str, _: pem::Error) -> EndpointError {
    EndpointError::Pem { path: path.to_owned(), what }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| pem_error(path, "certificate", error))?;
    if found.is_empty() {
        return Err(EndpointError::Pem { path: path.to_owned(), what: "certificate" });
    }
    Ok(found)
}

/// A server to connect to.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The text that it was parsed from, for messages.
    url: String,
    pub(crate) address: Address,
}

#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16, tls: Option<(Arc<ClientConfig>, ServerName<'static>)> },
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses `http://HOST:PORT`, `https://HOST:PORT` (which needs `tls`) or `unix:///PATH`.
    pub fn parse(url: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Endpoint, EndpointError> {
        let wrong = |why| EndpointError::Url { url: url.to_owned(), why };
        if let Some(path) = url.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(wrong("the path of a Unix socket must be absolute"));
            }
            return Ok(Endpoint { url: url.to_owned(), address: Address::Unix(path.into()) });
        }
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL such as https://127.0.0.1:2379"))?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || !uri.path().trim_matches('/').is_empty() || uri.query().is_some() {
            return Err(wrong(
                "it must consist of a scheme, a host and a port, such as https://127.0.0.1:2379",
            ));
        }
        let (default_port, tls) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => (80, None),
            Some(scheme) if *scheme == Scheme::HTTPS => {
                let config = tls.ok_or_else(|| wrong("it needs TLS, and no TLS configuration was given"))?;
                let name =
                    ServerName::try_from(host.clone()).map_err(|_| wrong("its host is not a valid name"))?;
                (443, Some((Arc::clone(config), name)))
            }
            _ => return Err(wrong("its scheme must be http, https or unix")),
        };
        let port = uri.port_u16().unwrap_or(default_port);
        Ok(Endpoint { url: url.to_owned(), address: Address::Tcp { host, port, tls } })
    }

    /// The text that the endpoint was parsed from.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The scheme and authority for HTTP/2 requests.
    pub(crate) fn origin(&self) -> String {
        match &self.address {
            Address::Unix(_) => "http://localhost".to_owned(),
            Address::Tcp { host, port, tls } => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                if host.contains(':') {
                    format!("{scheme}://[{host}]:{port}")
                } else {
                    format!("{scheme}://{host}:{port}")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
