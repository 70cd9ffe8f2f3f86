//! The address of another server, and how it is trusted.

use api::field::quote;
use http::uri::{Scheme, Uri};

use super::{ClientIdentity, OutboundCredential, Reach};

/// Address, trust and credentials of a server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The URL to call: `https`, or `http` without protection.
    pub url: Uri,
    /// `host:port` to connect to instead of the URL's; the certificate must still match the URL's host.
    pub dial: Option<String>,
    /// Source of the address, which determines the IP addresses that may be dialed.
    pub reach: Reach,
    /// Name that the certificate must match instead of the URL's host.
    pub server_name: Option<String>,
    /// CAs that may sign the server's certificate.
    pub trust: ServerTrust,
    /// The client certificate and its key.
    pub identity: Option<ClientIdentity>,
    /// Source of the `Authorization` header.
    pub credential: OutboundCredential,
    /// Offers only HTTP/1.1, so that calls spread over the servers behind one address.
    pub http1_only: bool,
}

/// CAs that may sign a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// The CAs of the system.
    System,
    /// PEM of the CAs, or of the server's own certificate.
    Authorities(Vec<u8>),
    /// Skips verification (`insecureSkipTLSVerify`); no `Authorization` header is sent to such a server.
    AnyServer,
}

impl Endpoint {
    /// An endpoint with the system's CAs and no credentials.
    pub fn new(url: Uri) -> Self {
        Endpoint {
            url,
            dial: None,
            reach: Reach::default(),
            server_name: None,
            trust: ServerTrust::System,
            identity: None,
            credential: OutboundCredential::None,
            http1_only: false,
        }
    }

    /// True if the server's certificate is verified, so that credentials may be sent.
    pub fn is_proven(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTPS) && self.trust != ServerTrust::AnyServer
    }
}

/// Configuration errors of an endpoint, independent of the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The URL has no host or an unsupported scheme.
    #[error("{url} is not a URL that can be called: {1}", url = quote(.0))]
    Url(String, &'static str),
    /// The CA bundle cannot be parsed.
    #[error("unable to load root certificates: {0}")]
    Authorities(String),
    /// The client certificate cannot be parsed, or its key does not match.
    #[error("{0}")]
    Identity(String),
}
