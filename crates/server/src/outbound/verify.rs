//! Whether a server is who it should be: as Go decides it, and in Go's words when it is not.
//!
//! The chain is checked by rustls. Beyond that, a certificate that is itself in the bundle is believed, as Go does: webhooks
//! often serve what `openssl req -x509` makes, which is self-signed and calls itself an authority. Its name and its time count
//! all the same.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Who may vouch for a server.
#[derive(Debug)]
pub(super) enum Voucher {
    Anybody,
    Authorities { roots: RootCertStore, certificates: Vec<CertificateDer<'static>> },
}

impl Voucher {
    pub(super) fn anybody() -> Self {
        Voucher::Anybody
    }

    /// The system's authorities, read once. A system without any trusts nobody.
    pub(super) fn system() -> Self {
        static FOUND: LazyLock<Vec<CertificateDer<'static>>> = LazyLock::new(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::debug!(%error, "a certificate of the system's trust store is left out");
            }
            found.certs
        });
        Self::of(FOUND.clone())
    }

    /// The authorities of a PEM bundle; what is no certificate in it is left out as Go does, unless nothing is left.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let mut certificates = Vec::new();
        let mut bad = None;
        for block in x509::pem::blocks(pem) {
            let is_bare = block.label == "CERTIFICATE" && !block.has_headers;
            if is_bare && X509Certificate::from_der(&block.bytes).is_ok() {
                certificates.push(block.bytes.into());
            } else {
                bad = Some("failed to parse certificate: x509: malformed certificate");
            }
        }
        if certificates.is_empty() {
            let words = bad.unwrap_or("unable to parse bytes as PEM block");
            return Err(words.to_owned());
        }
        Ok(Self::of(certificates))
    }

    fn of(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        Voucher::Authorities { roots, certificates }
    }
}

/// Why a server is not believed, in the words of Go's `x509`.
#[derive(Debug)]
pub(super) struct Proof(String);

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Proof {}

/// The check that a handshake runs.
#[derive(Debug)]
pub(super) struct Verifier {
    voucher: Voucher,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(voucher: Voucher) -> Self {
        Verifier { voucher, algorithms: aws_lc_rs::default_provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Voucher::Authorities { roots, certificates } = &self.voucher else {
            return Ok(ServerCertVerified::assertion());
        };
        let refuse = |words: String| {
            Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Proof(words))))))
        };
        // Time and name first, as Go does: what a person can mend is said before who vouches.
        let Ok((_, leaf)) = X509Certificate::from_der(end_entity) else {
            return refuse("x509: malformed certificate".to_owned());
        };
        if let Some(words) = out_of_time(&leaf, now) {
            return refuse(words);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if verify_server_name(&parsed, server_name).is_err() {
            return refuse(wrong_name(&leaf, server_name));
        }
        if certificates.iter().any(|known| **known == **end_entity) {
            return if serves(&leaf) {
                Ok(ServerCertVerified::assertion())
            } else {
                refuse("x509: certificate specifies an incompatible key usage".to_owned())
            };
        }
        match verify_server_cert_signed_by_trust_anchor(
            &parsed,
            roots,
            intermediates,
            now,
            self.algorithms.all,
        ) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(error) => refuse(unproven(&error, &leaf, certificates)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn out_of_time(leaf: &X509Certificate<'_>, now: UnixTime) -> Option<String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let words = |relation: &str, limit: i64| {
        let time = |seconds: i64| api::time::Timestamp::from_seconds(seconds).time();
        format!(
            "x509: certificate has expired or is not yet valid: current time {} is {relation} {}",
            time(now),
            time(limit)
        )
    };
    let (from, until) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    if now < from {
        Some(words("before", from))
    } else if now > until {
        Some(words("after", until))
    } else {
        None
    }
}

/// Whether a certificate may be used by a server at all.
fn serves(leaf: &X509Certificate<'_>) -> bool {
    match leaf.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.any || usage.value.server_auth,
        Err(_) => false,
    }
}

fn wrong_name(leaf: &X509Certificate<'_>, wanted: &ServerName<'_>) -> String {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let alternatives = leaf.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let address = <[u8; 4]>::try_from(*bytes)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                addresses.extend(address.ok().map(|ip| ip.to_string()));
            }
            _ => {}
        }
    }
    let shown = match wanted {
        ServerName::IpAddress(ip) => IpAddr::from(*ip).to_string(),
        other => other.to_str().into_owned(),
    };
    let common_name = leaf.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok());
    if alternatives.is_none() && common_name == Some(shown.as_str()) {
        return "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned();
    }
    let valid = match wanted {
        ServerName::IpAddress(_) if addresses.is_empty() => {
            return format!(
                "x509: cannot validate certificate for {shown} because it doesn't contain any IP SANs"
            );
        }
        ServerName::IpAddress(_) => addresses,
        _ => names,
    };
    if valid.is_empty() {
        return format!("x509: certificate is not valid for any names, but wanted to match {shown}");
    }
    format!("x509: certificate is valid for {}, not {shown}", valid.join(", "))
}

/// Why a chain leads nowhere.
fn unproven(error: &Error, leaf: &X509Certificate<'_>, known: &[CertificateDer<'_>]) -> String {
    match error {
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => "x509: certificate specifies an incompatible key usage".to_owned(),
        _ => {
            // An authority of the right name with another key: a rotation that one side has not heard of.
            let namesake = known.iter().find_map(|der| {
                let (_, authority) = X509Certificate::from_der(der).ok()?;
                (authority.subject() == leaf.issuer()).then(|| {
                    authority
                        .subject()
                        .iter_common_name()
                        .next()
                        .and_then(|cn| cn.as_str().ok())
                        .unwrap_or_default()
                        .to_owned()
                })
            });
            let unknown = "x509: certificate signed by unknown authority";
            match namesake {
                Some(name) => {
                    let why = match leaf.signature_algorithm.algorithm.to_id_string().as_str() {
                        "1.2.840.113549.1.1.5" => {
                            "x509: cannot verify signature: insecure algorithm SHA1-RSA"
                        }
                        "1.2.840.10045.4.1" => "x509: cannot verify signature: insecure algorithm ECDSA-SHA1",
                        id if id.starts_with("1.2.840.113549.1.1.") => "crypto/rsa: verification error",
                        "1.3.101.112" => "x509: Ed25519 verification failure",
                        _ => "x509: ECDSA verification failure",
                    };
                    format!(
                        "{unknown} (possibly because of {} while trying to verify candidate authority certificate {})",
                        api::field::quote(why),
                        api::field::quote(&name)
                    )
                }
                None => unknown.to_owned(),
            }
        }
    }
}
