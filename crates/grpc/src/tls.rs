//! The TLS configuration of a client from files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::endpoint::GrpcEndpointError;

/// The files for TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate authorities of the servers; the system's if `None`.
    pub ca: Option<PathBuf>,
    /// The client certificate, which needs [`TlsFiles::key`].
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Loads the files. The result is used for the endpoints that begin with `https://`. It reads the certificate and the key again for
    /// each connection, so that they can be rotated.
    pub fn load(&self) -> Result<Arc<ClientConfig>, GrpcEndpointError> {
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
                let files = IdentityFiles { certificate: certificate.clone(), key: key.clone() };
                let last = Mutex::new(Arc::new(files.read()?));
                builder.with_client_cert_resolver(Arc::new(RotatedIdentity { files, last }))
            }
            _ => return Err(GrpcEndpointError::HalfIdentity),
        };
        // A resumed session would have the certificate with which it began.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, GrpcEndpointError> {
        if let Some(path) = &self.ca {
            return certificates(path);
        }
        let loaded = rustls_native_certs::load_native_certs();
        match loaded.errors.first() {
            Some(error) if loaded.certs.is_empty() => Err(GrpcEndpointError::SystemRoots(error.to_string())),
            _ => Ok(loaded.certs),
        }
    }
}

#[derive(Debug)]
struct IdentityFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl IdentityFiles {
    fn read(&self) -> Result<CertifiedKey, GrpcEndpointError> {
        let no_key = |_| GrpcEndpointError::Pem { path: self.key.clone(), what: "private key" };
        let private = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(no_key)?;
        let chain = certificates(&self.certificate)?;
        Ok(CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider())?)
    }
}

/// The client certificate and key that are in the files when a connection is opened. If those cannot be used, for example because they
/// are just being replaced, the last ones that could be are used.
#[derive(Debug)]
struct RotatedIdentity {
    files: IdentityFiles,
    last: Mutex<Arc<CertifiedKey>>,
}

impl ResolvesClientCert for RotatedIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let found = self.files.read();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => *last = Arc::new(found),
            Err(error) => tracing::error!(
                %error,
                "cannot read the client certificate again; using the last one. Check the files"
            ),
        }
        Some(Arc::clone(&last))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn read(path: &Path) -> Result<Vec<u8>, GrpcEndpointError> {
    std::fs::read(path).map_err(|source| GrpcEndpointError::File { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, GrpcEndpointError> {
    let found: Vec<_> = x509::pem::certificates(&read(path)?).map(CertificateDer::from).collect();
    if found.is_empty() {
        return Err(GrpcEndpointError::Pem { path: path.to_owned(), what: "certificate" });
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
