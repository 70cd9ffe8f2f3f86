//! Addresses of the servers to connect to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GrpcEndpointError {
    #[error("`{url}` is not a valid endpoint: {why}")]
    Url { url: String, why: &'static str },
    #[error("cannot read `{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{}` contains no {what} in PEM format", path.display())]
    Pem { path: PathBuf, what: &'static str },
    #[error("a client certificate needs both a certificate file and a key file")]
    HalfIdentity,
    #[error("the system's certificate authorities cannot be loaded: {0}; name a certificate authority file")]
    SystemRoots(String),
    #[error("cannot use the TLS files together: {0}; check that the key belongs to the certificate")]
    Tls(#[from] rustls::Error),
}

/// A server to connect to.
#[derive(Clone, Debug)]
pub struct GrpcEndpoint {
    /// The text that it was parsed from, for messages.
    url: String,
    pub(crate) address: Address,
}

#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16, tls: Option<(Arc<ClientConfig>, ServerName<'static>)> },
    Unix(PathBuf),
}

impl GrpcEndpoint {
    /// Parses `http://HOST:PORT`, `https://HOST:PORT` (which needs `tls`) or `unix:///PATH`.
    pub fn parse(url: &str, tls: Option<&Arc<ClientConfig>>) -> Result<GrpcEndpoint, GrpcEndpointError> {
        let wrong = |why| GrpcEndpointError::Url { url: url.to_owned(), why };
        if let Some(path) = url.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(wrong("the path of a Unix socket must be absolute"));
            }
            return Ok(GrpcEndpoint { url: url.to_owned(), address: Address::Unix(path.into()) });
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
        Ok(GrpcEndpoint { url: url.to_owned(), address: Address::Tcp { host, port, tls } })
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
