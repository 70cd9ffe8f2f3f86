//! Certificates and TLS configurations of the servers that tests run.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A serving certificate with its key, and the CA that clients trust.
pub(crate) struct ServingIdentity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pub(crate) ca_pem: String,
}

impl ServingIdentity {
    /// A certificate that a new CA signed.
    pub(crate) fn signed(leaf: &CertificateParams) -> Result<Self, AnyError> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "an authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &authority)?.der().clone();
        Ok(ServingIdentity { certificate, key: private_key(&key), ca_pem: authority.pem() })
    }

    /// A certificate that is its own CA, as `openssl req -x509` creates it.
    pub(crate) fn self_signed(mut leaf: CertificateParams) -> Result<Self, AnyError> {
        leaf.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let certificate = leaf.self_signed(&key)?;
        let ca_pem = certificate.pem();
        Ok(ServingIdentity { certificate: certificate.der().clone(), key: private_key(&key), ca_pem })
    }

    /// The TLS configuration for these HTTP versions (ALPN). With `client_authorities` (PEM), the handshake requires a client certificate
    /// that one of them signed.
    pub(crate) fn tls_config(
        self,
        protocols: &[&str],
        client_authorities: Option<&str>,
    ) -> Result<ServerConfig, AnyError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    roots.add(certificate?)?;
                }
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?,
                )
            }
        };
        let mut config = builder.with_single_cert(vec![self.certificate], self.key)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Ok(config)
    }
}

fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}
