//! Opens a TLS connection to a server with the administrator's client certificate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use server::Ephemeral;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Connects and offers `protocol` through ALPN.
pub(crate) async fn connect(server: &Ephemeral, protocol: &str) -> TlsStream<TcpStream> {
    open(server.running.address, client_config(server, protocol)).await.unwrap()
}

pub(crate) async fn open(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(config).connect(name, tcp).await
}

/// The administrator's credentials, and `protocol` for ALPN.
pub(crate) fn client_config(server: &Ephemeral, protocol: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(server.ca_pem.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain =
        CertificateDer::pem_slice_iter(server.admin.cert_pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(server.admin.key_pem.as_bytes()).unwrap();
    let mut config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}
