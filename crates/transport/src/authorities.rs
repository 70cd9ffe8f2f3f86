//! Verifies certificates against a set of trusted CA certificates, with the rules of Go's `crypto/x509`.
//!
//! webpki builds the chain and checks the certificates that the peer sent. It ignores the validity, the purposes and the signing limits
//! of a trusted certificate, because it leaves the choice of those to the configuration. Go enforces them, and so does this module: a CA
//! that has expired, may not sign, is for another purpose or allows only a shorter chain verifies no certificate.

use std::cell::Cell;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer as _, X509Version};

/// The role of the peer that a certificate authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Client,
    Server,
}

/// Why a certificate is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRejection {
    /// The certificate or its CA is for another purpose.
    Purpose,
    /// A CA of the chain may not sign certificates.
    MayNotSign,
    /// The trusted certificate has expired or is not valid yet.
    OutOfTime(Validity),
    /// The CA does not allow so many intermediate certificates.
    TooManyIntermediates,
    /// No trusted CA has signed it, or another check of webpki failed.
    Unknown,
}

/// First and last second of a certificate's validity, since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    pub fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        Validity { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() }
    }

    /// Go's error message for a certificate that is not valid at `now`; `None` if it is valid.
    pub fn complaint(self, now: UnixTime) -> Option<String> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let words = |relation: &str, limit: i64| {
            let time = |seconds: i64| api::time::Timestamp::from_seconds(seconds).time();
            let (now, limit) = (time(now), time(limit));
            format!(
                "x509: certificate has expired or is not yet valid: current time {now} is {relation} {limit}"
            )
        };
        if now < self.from {
            Some(words("before", self.from))
        } else if now > self.until {
            Some(words("after", self.until))
        } else {
            None
        }
    }
}

/// A set of trusted certificates. All lists have the same order.
#[derive(Clone, Debug, Default)]
pub struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    /// The fields of each certificate that webpki uses.
    anchors: Vec<TrustAnchor<'static>>,
    /// The limits of each certificate, which webpki ignores.
    limits: Vec<KeyUsageLimits>,
}

/// Limits that a certificate states for the use of its key.
#[derive(Clone, Copy, Debug)]
struct KeyUsageLimits {
    validity: Validity,
    may_sign: bool,
    /// Most intermediate certificates between it and the leaf (`pathLenConstraint`).
    max_intermediates: Option<u32>,
    for_clients: bool,
    for_servers: bool,
}

impl KeyUsageLimits {
    /// `None` if the certificate or one of these extensions cannot be parsed.
    fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let constraints = certificate.basic_constraints().ok()?.map(|extension| extension.value);
        let key_usage = certificate.key_usage().ok()?;
        let purposes = certificate.extended_key_usage().ok()?.map(|extension| extension.value);
        // A certificate before version 3 cannot state that it is a CA.
        let is_authority = constraints.map_or(certificate.version() != X509Version::V3, |found| found.ca);
        let is_for = |named: bool, any: bool| purposes.is_none() || named || any;
        let (client, server, any) =
            purposes.map_or((false, false, false), |found| (found.client_auth, found.server_auth, found.any));
        Some(KeyUsageLimits {
            validity: Validity::of(&certificate),
            may_sign: is_authority && key_usage.is_none_or(|usage| usage.value.key_cert_sign()),
            max_intermediates: constraints.and_then(|found| found.path_len_constraint),
            for_clients: is_for(client, any),
            for_servers: is_for(server, any),
        })
    }

    fn is_for(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Client => self.for_clients,
            Purpose::Server => self.for_servers,
        }
    }

    /// Checks the limits that apply to every use of the certificate.
    fn check(&self, now: UnixTime, purpose: Purpose) -> Result<(), CertificateRejection> {
        if self.validity.complaint(now).is_some() {
            return Err(CertificateRejection::OutOfTime(self.validity));
        }
        if self.is_for(purpose) { Ok(()) } else { Err(CertificateRejection::Purpose) }
    }

    /// Checks the limits that apply to the issuer of a chain with so many intermediate certificates.
    fn check_authority(
        &self,
        now: UnixTime,
        purpose: Purpose,
        intermediates: usize,
    ) -> Result<(), CertificateRejection> {
        if !self.may_sign {
            return Err(CertificateRejection::MayNotSign);
        }
        if self.max_intermediates.is_some_and(|most| intermediates > most as usize) {
            return Err(CertificateRejection::TooManyIntermediates);
        }
        self.check(now, purpose)
    }
}

impl Authorities {
    /// Errors if a certificate cannot be parsed.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut authorities = Authorities::default();
        certificates.into_iter().try_for_each(|der| authorities.add(der))?;
        Ok(authorities)
    }

    /// Skips certificates that cannot be parsed.
    pub fn of_readable(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut authorities = Authorities::default();
        for der in certificates {
            authorities.add(der).unwrap_or_default();
        }
        authorities
    }

    fn add(&mut self, der: CertificateDer<'static>) -> Result<(), String> {
        let unusable = |why: String| format!("not a usable CA certificate: {why}");
        let anchor = anchor_from_trusted_cert(&der).map_err(|error| unusable(error.to_string()))?.to_owned();
        let limits = KeyUsageLimits::read(&der).ok_or_else(|| unusable("malformed extension".to_owned()))?;
        self.certificates.push(der);
        self.anchors.push(anchor);
        self.limits.push(limits);
        Ok(())
    }

    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Verifies `leaf` at `now`, through `intermediates` if needed. A leaf that is itself in the set is trusted within its own limits.
    pub fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        purpose: Purpose,
    ) -> Result<(), CertificateRejection> {
        // A certificate in the set needs no issuer.
        let known = self.certificates.iter().zip(&self.limits).find(|(known, _)| ***known == **leaf);
        if let Some((_, limits)) = known {
            return limits.check(now, purpose);
        }
        let usage = match purpose {
            Purpose::Client => KeyUsage::client_auth(),
            Purpose::Server => KeyUsage::server_auth(),
        };
        let parsed = EndEntityCert::try_from(leaf).map_err(|_| CertificateRejection::Unknown)?;
        // webpki does not return the reason of the callback, so the callback records it here.
        let refused = Cell::new(None);
        let check = |path: &VerifiedPath<'_>| {
            self.check_path(path, now, purpose).map_err(|why| {
                refused.set(Some(why));
                webpki::Error::UnknownIssuer
            })
        };
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let verified =
            parsed.verify_for_usage(algorithms, &self.anchors, intermediates, now, usage, None, Some(&check));
        verified.map(drop).map_err(|error| match error {
            webpki::Error::RequiredEkuNotFoundContext(_) => CertificateRejection::Purpose,
            _ => refused.get().unwrap_or(CertificateRejection::Unknown),
        })
    }

    /// Checks the limits of a path's certificates that webpki ignores.
    fn check_path(
        &self,
        path: &VerifiedPath<'_>,
        now: UnixTime,
        purpose: Purpose,
    ) -> Result<(), CertificateRejection> {
        let mut between = 0;
        for certificate in path.intermediate_certificates() {
            between += 1;
            let limits = KeyUsageLimits::read(&certificate.der()).ok_or(CertificateRejection::MayNotSign)?;
            if !limits.may_sign {
                return Err(CertificateRejection::MayNotSign);
            }
        }
        // A renewed CA is in the set twice, with the same name and key. It is enough if one of the two passes.
        let mut outcome = Err(CertificateRejection::Unknown);
        for (_, limits) in
            self.anchors.iter().zip(&self.limits).filter(|(anchor, _)| *anchor == path.anchor())
        {
            outcome = limits.check_authority(now, purpose, between);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
