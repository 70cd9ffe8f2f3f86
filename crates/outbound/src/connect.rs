//! Connects to an endpoint: TCP, TLS and the choice of the HTTP version.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use runtime::files::go_words;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use transport::tls;

use super::verify::{ServerCertificateVerifier, TrustedAuthorities, VerificationFailure};
use super::{ClientIdentity, Endpoint, EndpointError, Reach, ServerTrust};

/// Limits for the TCP connection and the TLS handshake; the time limit of a call is usually shorter.
const DIAL: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Reason for a failed connection, with the text of Go's client.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ConnectError {
    pub(super) message: String,
    pub(super) timed_out: bool,
}

impl ConnectError {
    fn new(message: impl Into<String>) -> Self {
        ConnectError { message: message.into(), timed_out: false }
    }
}

/// Opens connections to one endpoint.
#[derive(Clone)]
pub(super) struct Connector {
    route: Arc<Route>,
}

struct Route {
    /// Host and port to connect to; if `None`, those of each request's URL.
    dial: Option<DialAddress>,
    reach: Reach,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A host and port to dial.
#[derive(Clone)]
struct DialAddress {
    host: String,
    port: u16,
}

impl Connector {
    pub(super) fn new(endpoint: &Endpoint, secure: bool) -> Result<Self, EndpointError> {
        let url = |why| EndpointError::Url(endpoint.url.to_string(), why);
        let own = endpoint.url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = endpoint.url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let (host, port) = match endpoint.dial.as_deref() {
            None => (own.to_owned(), port),
            Some(dial) => {
                let (host, port) = dial.rsplit_once(':').ok_or_else(|| url("its address has no port"))?;
                let port = port.parse().map_err(|_| url("its address has no valid port"))?;
                (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
            }
        };
        let tls = if secure {
            let name = endpoint.server_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
            let name = ServerName::try_from(name.to_owned())
                .map_err(|_| url("its host is not a name that a certificate can have"))?;
            Some((TlsConnector::from(Arc::new(client_config(endpoint)?)), name))
        } else {
            None
        };
        Ok(Connector {
            route: Arc::new(Route { dial: Some(DialAddress { host, port }), reach: endpoint.reach, tls }),
        })
    }

    /// Connects to the host and port of each request's URL; the server must prove the endpoint's name.
    pub(super) fn anywhere(endpoint: &Endpoint) -> Result<Self, EndpointError> {
        let connector = Connector::new(endpoint, true)?;
        let tls = connector.route.tls.clone();
        Ok(Connector { route: Arc::new(Route { dial: None, reach: endpoint.reach, tls }) })
    }
}

fn client_config(endpoint: &Endpoint) -> Result<ClientConfig, EndpointError> {
    let trusted = match &endpoint.trust {
        ServerTrust::System => TrustedAuthorities::system(),
        ServerTrust::Authorities(pem) => {
            TrustedAuthorities::from_pem(pem).map_err(EndpointError::Authorities)?
        }
        ServerTrust::AnyServer => TrustedAuthorities::any_server(),
    };
    let identity = |why: String| EndpointError::Identity(why);
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| identity(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerCertificateVerifier::new(trusted)));
    let mut config = match &endpoint.identity {
        None => builder.with_no_client_auth(),
        Some(ClientIdentity { certificate, key }) => {
            let missing = |what: &str| identity(format!("tls: failed to find any PEM data in {what} input"));
            let chain = tls::certificates(certificate).map_err(|_| missing("certificate"))?;
            let key = tls::private_key(key).map_err(|_| missing("key"))?;
            let signing = aws_lc_rs::default_provider()
                .key_provider
                .load_private_key(key)
                .map_err(|error| identity(format!("tls: {error}")))?;
            let certified = CertifiedKey::new(chain, signing);
            // X.509 version 1 certificates cannot be parsed here and are accepted, since only the server
            // verifies them.
            if let Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) =
                certified.keys_match()
            {
                return Err(identity("tls: private key does not match public key".to_owned()));
            }
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
    };
    config.alpn_protocols = if endpoint.http1_only {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    Ok(config)
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let route = Arc::clone(&self.route);
        Box::pin(async move { route.connect(&uri).await })
    }
}

impl Route {
    async fn connect(&self, uri: &Uri) -> Result<Stream, ConnectError> {
        let dial = self.dial.clone().unwrap_or_else(|| DialAddress {
            host: uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(443),
        });
        let tcp = tokio::time::timeout(DIAL, dial.dial(self.reach)).await.map_err(|_| ConnectError {
            message: format!("dial tcp {}: i/o timeout", dial.address()),
            timed_out: true,
        })??;
        let _ = tcp.set_nodelay(true);
        let addresses = ConnectionAddresses { local: tcp.local_addr().ok(), peer: tcp.peer_addr().ok() };
        let Some((connector, name)) = &self.tls else {
            return Ok(Stream { io: TokioIo::new(OutboundSocket::Plain(tcp)), addresses, http2: false });
        };
        let handshake = connector.connect(name.clone(), tcp);
        let stream = match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(ConnectError::new(handshake_words(&error, &addresses))),
            Err(_) => {
                let message = "net/http: TLS handshake timeout".to_owned();
                return Err(ConnectError { message, timed_out: true });
            }
        };
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Stream { io: TokioIo::new(OutboundSocket::Tls(Box::new(stream))), addresses, http2 })
    }
}

impl DialAddress {
    fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Tries every permitted address of the host, and reports the first failure like Go.
    async fn dial(&self, reach: Reach) -> Result<TcpStream, ConnectError> {
        let addresses: Vec<SocketAddr> = match self.host.parse::<std::net::IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, self.port)],
            Err(_) => {
                let lookup = |why: &str| ConnectError::new(format!("dial tcp: lookup {}: {why}", self.host));
                tokio::net::lookup_host((self.host.as_str(), self.port))
                    .await
                    .map_err(|_| lookup("no such host"))?
                    .collect()
            }
        };
        let mut first = None;
        for address in addresses {
            if !reach.allows(&self.host, address) {
                first.get_or_insert(ConnectError::new(format!("dial tcp {address}: address not allowed")));
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    let message = format!("dial tcp {address}: connect: {}", go_words(&error));
                    first.get_or_insert(ConnectError::new(message));
                }
            }
        }
        Err(first
            .unwrap_or_else(|| ConnectError::new(format!("dial tcp: lookup {}: no such host", self.host))))
    }
}

/// Text of Go's client for a failed TLS handshake.
fn handshake_words(error: &io::Error, addresses: &ConnectionAddresses) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
            match other.0.downcast_ref::<VerificationFailure>() {
                Some(proof) => format!("tls: failed to verify certificate: {proof}"),
                None => format!("tls: failed to verify certificate: {other:?}"),
            }
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {}", alert_words(*alert)),
        Some(rustls::Error::InvalidMessage(_)) => {
            "tls: first record does not look like a TLS handshake".to_owned()
        }
        Some(other) => format!("tls: {other}"),
        None => match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            io::ErrorKind::ConnectionReset => addresses.words("read", &go_words(error)),
            _ => go_words(error),
        },
    }
}

/// Text of Go's client for a TLS alert.
fn alert_words(alert: rustls::AlertDescription) -> String {
    use rustls::AlertDescription as Alert;
    match alert {
        Alert::BadCertificate => "bad certificate".to_owned(),
        Alert::CertificateRequired => "certificate required".to_owned(),
        Alert::CertificateExpired => "expired certificate".to_owned(),
        Alert::UnknownCA => "unknown certificate authority".to_owned(),
        Alert::HandshakeFailure => "handshake failure".to_owned(),
        Alert::ProtocolVersion => "protocol version not supported".to_owned(),
        Alert::InternalError => "internal error".to_owned(),
        Alert::UnrecognisedName => "unrecognized name".to_owned(),
        Alert::NoApplicationProtocol => "no application protocol".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Addresses of both ends of a connection, for error messages.
#[derive(Clone, Copy, Debug)]
struct ConnectionAddresses {
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

impl ConnectionAddresses {
    fn words(&self, operation: &str, why: &str) -> String {
        match (self.local, self.peer) {
            (Some(local), Some(peer)) => format!("{operation} tcp {local}->{peer}: {operation}: {why}"),
            _ => format!("{operation} tcp: {why}"),
        }
    }

    fn name<T>(&self, operation: &str, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error)) if error.raw_os_error().is_some() => {
                let text = self.words(operation, &go_words(&error));
                Poll::Ready(Err(io::Error::new(error.kind(), text)))
            }
            other => other,
        }
    }
}

/// A connection whose I/O errors include both addresses.
pub(super) struct Stream {
    io: TokioIo<OutboundSocket>,
    addresses: ConnectionAddresses,
    http2: bool,
}

enum OutboundSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        if self.http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        self.addresses.name("read", polled)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.addresses.name("write", polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(context);
        self.addresses.name("write", polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl tokio::io::AsyncRead for OutboundSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            OutboundSocket::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            OutboundSocket::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl tokio::io::AsyncWrite for OutboundSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self.get_mut() {
            OutboundSocket::Plain(stream) => ready!(Pin::new(stream).poll_write(context, bytes)),
            OutboundSocket::Tls(stream) => ready!(Pin::new(stream).poll_write(context, bytes)),
        };
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            OutboundSocket::Plain(stream) => Pin::new(stream).poll_flush(context),
            OutboundSocket::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            OutboundSocket::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            OutboundSocket::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
