//! Whose certificates count: the authorities of clients and of front proxies, and what they say about a connection.
//!
//! A connection brings its certificates once; what they are worth is judged by the authorities of the moment a request comes,
//! so a certificate whose authority was taken out of the file loses its worth without its connection ending. The judgement is
//! kept with the connection until the authorities change, or for a minute: certificates run out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use authn::x509::ClientCertificate;
use rustls::pki_types::{CertificateDer, UnixTime};
use tracing::debug;

use crate::authorities::{Authorities, Purpose};
use crate::tls;

/// How long a judgement is believed.
const JUDGED_FOR: Duration = Duration::from_mins(1);

/// The authorities in force.
#[derive(Debug, Default)]
pub struct Trust {
    /// `--client-ca-file`.
    pub clients: Option<Authority>,
    /// `--requestheader-client-ca-file`.
    pub proxies: Option<Authority>,
}

/// The authorities of one file.
#[derive(Clone, Debug)]
pub struct Authority {
    /// The file as it is.
    pub pem: Arc<[u8]>,
    authorities: Authorities,
}

impl Trust {
    /// Refuses authorities that vouch for clients and proxies alike while a proxy may have any name: then every client could say
    /// that it is somebody else.
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
    /// From the PEM of one or more certificates.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        Ok(Authority { authorities: Authorities::new(tls::certificates(pem)?)?, pem: pem.into() })
    }

    fn judge(&self, chain: &[CertificateDer<'static>]) -> Option<Arc<ClientCertificate>> {
        let (leaf, intermediates) = chain.split_first()?;
        if let Err(why) = self.authorities.verify(leaf, intermediates, UnixTime::now(), Purpose::Client) {
            debug!(?why, "client certificate refused");
            return None;
        }
        match ClientCertificate::from_der(leaf) {
            Ok(certificate) => Some(Arc::new(certificate)),
            Err(error) => {
                debug!(%error, "client certificate refused");
                None
            }
        }
    }
}

/// The certificates of a connection, leaf first; the handshake has proven that they are the client's.
#[derive(Debug, Default)]
pub struct Certificates {
    chain: Vec<CertificateDer<'static>>,
    judged: ArcSwapOption<Judgement>,
}

/// What certificates are worth.
#[derive(Debug)]
pub struct Judgement {
    trust: Arc<Trust>,
    at: Instant,
    /// The certificate, if it names a client.
    pub client: Option<Arc<ClientCertificate>>,
    /// The certificate, if it names a front proxy.
    pub proxy: Option<Arc<ClientCertificate>>,
    /// Whether somebody who could have vouched for the certificate did not: then nobody is admitted without a name.
    pub doubted: bool,
}

impl Certificates {
    /// Of a connection.
    pub fn new(chain: &[CertificateDer<'static>]) -> Self {
        Certificates { chain: chain.to_vec(), judged: ArcSwapOption::empty() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// What they are worth to these authorities; nothing if there are none.
    pub fn judge(&self, trust: &Arc<Trust>) -> Option<Arc<Judgement>> {
        if self.chain.is_empty() {
            return None;
        }
        let known = self
            .judged
            .load_full()
            .filter(|judged| Arc::ptr_eq(&judged.trust, trust) && judged.at.elapsed() < JUDGED_FOR);
        Some(known.unwrap_or_else(|| {
            let judge = |authority: &Option<Authority>| authority.as_ref().map(|a| a.judge(&self.chain));
            let (client, proxy) = (judge(&trust.clients), judge(&trust.proxies));
            let doubted = [&client, &proxy].iter().any(|judged| matches!(judged, Some(None)));
            let judged = Arc::new(Judgement {
                trust: Arc::clone(trust),
                at: Instant::now(),
                client: client.flatten(),
                proxy: proxy.flatten(),
                doubted,
            });
            self.judged.store(Some(Arc::clone(&judged)));
            judged
        }))
    }
}

#[cfg(test)]
mod tests;
