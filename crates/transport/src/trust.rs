//! The CAs of clients and of front proxies, and the verification of a connection's certificates against them.
//!
//! Certificates are verified for each request against the CAs in force, so a certificate is no longer trusted once its CA is removed
//! from the file, even on an open connection. The result is cached per connection until the CAs change, for at most a minute, because
//! certificates expire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use authn::x509::ClientCertificate;
use rustls::pki_types::{CertificateDer, UnixTime};
use tracing::debug;

use crate::authorities::{Authorities, Purpose};
use crate::tls;

/// How long a verification result is reused.
const VERIFIED_FOR: Duration = Duration::from_mins(1);

/// The CAs that are in force.
#[derive(Debug, Default)]
pub struct ClientTrust {
    /// CAs of client certificates (`--client-ca-file`).
    pub clients: Option<Authority>,
    /// CAs of front proxies (`--requestheader-client-ca-file`).
    pub proxies: Option<Authority>,
}

/// The CAs of one file.
#[derive(Clone, Debug)]
pub struct Authority {
    /// The unchanged content of the file.
    pub pem: Arc<[u8]>,
    authorities: Authorities,
}

impl ClientTrust {
    /// Errors if both files share a CA while a proxy may have any name (`any_name`): then every client could act as any user with the
    /// headers of a front proxy.
    pub fn check(&self, any_name: bool) -> Result<(), String> {
        let certificates = |authority: &Option<Authority>| {
            authority.as_ref().and_then(|a| tls::certificates(&a.pem).ok()).unwrap_or_default()
        };
        let proxies = certificates(&self.proxies);
        if any_name && certificates(&self.clients).iter().any(|certificate| proxies.contains(certificate)) {
            return Err(OVERLAP.to_owned());
        }
        Ok(())
    }
}

const OVERLAP: &str = "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users";

impl Authority {
    /// Parses the PEM of one or more certificates.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        Ok(Authority { authorities: Authorities::new(tls::certificates(pem)?)?, pem: pem.into() })
    }

    fn verify(&self, chain: &[CertificateDer<'static>]) -> Option<Arc<ClientCertificate>> {
        let (leaf, intermediates) = chain.split_first()?;
        if let Err(why) = self.authorities.verify(leaf, intermediates, UnixTime::now(), Purpose::Client) {
            debug!(error = ?why, "cannot verify a client certificate; it is ignored");
            return None;
        }
        match ClientCertificate::from_der(leaf) {
            Ok(certificate) => Some(Arc::new(certificate)),
            Err(error) => {
                debug!(%error, "cannot read a client certificate; it is ignored");
                None
            }
        }
    }
}

/// The certificates of a connection, leaf first. The handshake has proven that the client has the key of the leaf.
#[derive(Debug, Default)]
pub struct Certificates {
    chain: Vec<CertificateDer<'static>>,
    verified: ArcSwapOption<VerifiedCertificates>,
}

/// The verification result of a connection's certificates.
#[derive(Debug)]
pub struct VerifiedCertificates {
    trust: Arc<ClientTrust>,
    at: Instant,
    /// The leaf, if the client CAs verify it.
    pub client: Option<Arc<ClientCertificate>>,
    /// The leaf, if the front proxy CAs verify it.
    pub proxy: Option<Arc<ClientCertificate>>,
    /// Whether the CAs of a configured file do not verify the certificate. Such a connection gets no anonymous access.
    pub is_untrusted: bool,
}

impl Certificates {
    pub fn new(chain: &[CertificateDer<'static>]) -> Self {
        Certificates { chain: chain.to_vec(), verified: ArcSwapOption::empty() }
    }

    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Verifies the certificates, or returns the cached result. `None` if the client sent no certificate.
    pub fn verify(&self, trust: &Arc<ClientTrust>) -> Option<Arc<VerifiedCertificates>> {
        if self.chain.is_empty() {
            return None;
        }
        let known = self
            .verified
            .load_full()
            .filter(|verified| Arc::ptr_eq(&verified.trust, trust) && verified.at.elapsed() < VERIFIED_FOR);
        Some(known.unwrap_or_else(|| {
            let verify = |authority: &Option<Authority>| authority.as_ref().map(|a| a.verify(&self.chain));
            let (client, proxy) = (verify(&trust.clients), verify(&trust.proxies));
            let is_untrusted = [&client, &proxy].iter().any(|verified| matches!(verified, Some(None)));
            let verified = Arc::new(VerifiedCertificates {
                trust: Arc::clone(trust),
                at: Instant::now(),
                client: client.flatten(),
                proxy: proxy.flatten(),
                is_untrusted,
            });
            self.verified.store(Some(Arc::clone(&verified)));
            verified
        }))
    }
}

#[cfg(test)]
mod tests;
