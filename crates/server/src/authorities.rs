//! Whether one of several authorities vouches for a certificate, as Go's `crypto/x509` decides it.
//!
//! webpki builds the chain and checks the certificates that the peer sent. Of a trusted certificate it keeps only the name and the key,
//! because it leaves the choice of trusted certificates to whoever configures them. Go holds trusted certificates to their own limits, and
//! so does this module: an authority that has expired, that may not sign, that is for another purpose or that allows a shorter chain
//! vouches for nobody.

use std::cell::Cell;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer as _, X509Version};

/// What a certificate is shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To say who a client is.
    Client,
    /// To say who a server is.
    Server,
}

/// Why nobody vouches for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The certificate, or its authority, is for another purpose.
    Purpose,
    /// An authority has signed it that may not do so.
    MayNotSign,
    /// An authority has signed it that is not valid now.
    OutOfTime(Validity),
    /// An authority has signed it that does not allow so many certificates in between.
    TooManyIntermediates,
    /// No authority has signed it.
    Unknown,
}

/// The first and the last second at which a certificate is valid, since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        Validity { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() }
    }

    /// What Go says about a certificate that is not valid now; `None` if it is.
    pub(crate) fn complaint(self, now: UnixTime) -> Option<String> {
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

/// The certificates that vouch for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    /// For each certificate, what webpki keeps of it.
    anchors: Vec<TrustAnchor<'static>>,
    /// For each certificate, what webpki does not keep of it.
    limits: Vec<Limits>,
}

/// What a certificate says about the use of its key.
#[derive(Clone, Copy, Debug)]
struct Limits {
    validity: Validity,
    may_sign: bool,
    /// How many certificates may be between it and the one that it vouches for.
    max_intermediates: Option<u32>,
    for_clients: bool,
    for_servers: bool,
}

impl Limits {
    /// Reads them; `None` if the certificate or one of these extensions cannot be read.
    fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let constraints = certificate.basic_constraints().ok()?.map(|extension| extension.value);
        let key_usage = certificate.key_usage().ok()?;
        let purposes = certificate.extended_key_usage().ok()?.map(|extension| extension.value);
        // Only the first versions of certificates had no way to say that they are an authority.
        let is_authority = constraints.map_or(certificate.version() != X509Version::V3, |found| found.ca);
        let is_for = |named: bool, any: bool| purposes.is_none() || named || any;
        let (client, server, any) =
            purposes.map_or((false, false, false), |found| (found.client_auth, found.server_auth, found.any));
        Some(Limits {
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
    fn check(&self, now: UnixTime, purpose: Purpose) -> Result<(), Refused> {
        if self.validity.complaint(now).is_some() {
            return Err(Refused::OutOfTime(self.validity));
        }
        if self.is_for(purpose) { Ok(()) } else { Err(Refused::Purpose) }
    }

    /// Checks the limits that apply to the issuer of a chain with so many intermediate certificates.
    fn check_authority(&self, now: UnixTime, purpose: Purpose, intermediates: usize) -> Result<(), Refused> {
        if !self.may_sign {
            return Err(Refused::MayNotSign);
        }
        if self.max_intermediates.is_some_and(|most| intermediates > most as usize) {
            return Err(Refused::TooManyIntermediates);
        }
        self.check(now, purpose)
    }
}

impl Authorities {
    /// These certificates; an error if one cannot be read.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut authorities = Authorities::default();
        certificates.into_iter().try_for_each(|der| authorities.add(der))?;
        Ok(authorities)
    }

    /// Those of these certificates that can be read.
    pub(crate) fn of_readable(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut authorities = Authorities::default();
        for der in certificates {
            authorities.add(der).unwrap_or_default();
        }
        authorities
    }

    fn add(&mut self, der: CertificateDer<'static>) -> Result<(), String> {
        let unusable = |why: String| format!("not a usable CA certificate: {why}");
        let anchor = anchor_from_trusted_cert(&der).map_err(|error| unusable(error.to_string()))?.to_owned();
        let limits = Limits::read(&der).ok_or_else(|| unusable("malformed extension".to_owned()))?;
        self.certificates.push(der);
        self.anchors.push(anchor);
        self.limits.push(limits);
        Ok(())
    }

    /// Every certificate.
    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Whether one of them vouches for `leaf` now, through `intermediates` if it must be.
    pub(crate) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        purpose: Purpose,
    ) -> Result<(), Refused> {
        // Whoever is in the file needs nobody to vouch for it.
        let known = self.certificates.iter().zip(&self.limits).find(|(known, _)| ***known == **leaf);
        if let Some((_, limits)) = known {
            return limits.check(now, purpose);
        }
        let usage = match purpose {
            Purpose::Client => KeyUsage::client_auth(),
            Purpose::Server => KeyUsage::server_auth(),
        };
        let parsed = EndEntityCert::try_from(leaf).map_err(|_| Refused::Unknown)?;
        // webpki says no more than that a path was refused.
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
            webpki::Error::RequiredEkuNotFoundContext(_) => Refused::Purpose,
            _ => refused.get().unwrap_or(Refused::Unknown),
        })
    }

    /// Holds the certificates of a path to limits that webpki does not look at.
    fn check_path(&self, path: &VerifiedPath<'_>, now: UnixTime, purpose: Purpose) -> Result<(), Refused> {
        let mut between = 0;
        for certificate in path.intermediate_certificates() {
            between += 1;
            let limits = Limits::read(&certificate.der()).ok_or(Refused::MayNotSign)?;
            if !limits.may_sign {
                return Err(Refused::MayNotSign);
            }
        }
        // An authority that was renewed is there twice, with the same name and key. One that allows it is enough.
        let mut outcome = Err(Refused::Unknown);
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
