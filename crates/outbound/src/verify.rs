//! Verifies server certificates like Go, with the error messages of Go.
//!
//! [`Authorities`] verifies the chain. A certificate that is itself in the bundle is trusted, as in Go:
//! webhooks often use the output of `openssl req -x509`, which is self-signed and marked as a CA. Its name
//! and validity are still checked.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use transport::authorities::{Authorities, CertificateRejection, Purpose, Validity};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// CAs that may sign a server's certificate.
#[derive(Debug)]
pub(super) enum TrustedAuthorities {
    AnyServer,
    These(Authorities),
}

impl TrustedAuthorities {
    pub(super) fn any_server() -> Self {
        TrustedAuthorities::AnyServer
    }

    /// The system's CAs, loaded once. If there are none, no server is trusted.
    pub(super) fn system() -> Self {
        static FOUND: LazyLock<Vec<CertificateDer<'static>>> = LazyLock::new(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::debug!(%error, "a certificate of the system's trust store is left out");
            }
            found.certs
        });
        TrustedAuthorities::These(Authorities::of_readable(FOUND.clone()))
    }

    /// The CAs of a PEM bundle. Like Go, skips blocks that are not certificates, and fails if none remain.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let mut certificates = Vec::new();
        let mut bad = None;
        for block in x509::pem::blocks(pem) {
            let is_bare = block.is_certificate();
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
        Ok(TrustedAuthorities::These(Authorities::of_readable(certificates)))
    }
}

/// Reason why a server is not trusted, with the text of Go's `x509` package.
#[derive(Debug)]
pub(super) struct VerificationFailure(String);

impl fmt::Display for VerificationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for VerificationFailure {}

#[derive(Debug)]
pub(super) struct ServerCertificateVerifier {
    trusted: TrustedAuthorities,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertificateVerifier {
    pub(super) fn new(trusted: TrustedAuthorities) -> Self {
        ServerCertificateVerifier {
            trusted,
            algorithms: aws_lc_rs::default_provider().signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for ServerCertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let TrustedAuthorities::These(authorities) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let refuse = |words: String| {
            Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(
                VerificationFailure(words),
            )))))
        };
        // Validity and name are checked first, as in Go, because users can fix them more easily than the
        // chain.
        let Ok((_, leaf)) = X509Certificate::from_der(end_entity) else {
            return refuse("x509: malformed certificate".to_owned());
        };
        if let Some(words) = Validity::of(&leaf).complaint(now) {
            return refuse(words);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if verify_server_name(&parsed, server_name).is_err() {
            return refuse(wrong_name(&leaf, server_name));
        }
        match authorities.verify(end_entity, intermediates, now, Purpose::Server) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(why) => refuse(unproven(why, &leaf, authorities, now)),
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

/// Explains a failed chain verification with the text of Go's `x509` package.
fn unproven(
    why: CertificateRejection,
    leaf: &X509Certificate<'_>,
    authorities: &Authorities,
    now: UnixTime,
) -> String {
    let unknown = "x509: certificate signed by unknown authority";
    let why = match why {
        CertificateRejection::Purpose => {
            return "x509: certificate specifies an incompatible key usage".to_owned();
        }
        CertificateRejection::MayNotSign => {
            "x509: invalid signature: parent certificate cannot sign this kind of certificate".to_owned()
        }
        CertificateRejection::OutOfTime(validity) => validity.complaint(now).unwrap_or_default(),
        CertificateRejection::TooManyIntermediates => {
            "x509: too many intermediates for path length constraint".to_owned()
        }
        // A CA of the right name with another key: usually a rotation that only one side has seen.
        CertificateRejection::Unknown => match leaf.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.113549.1.1.5" => "x509: cannot verify signature: insecure algorithm SHA1-RSA",
            "1.2.840.10045.4.1" => "x509: cannot verify signature: insecure algorithm ECDSA-SHA1",
            id if id.starts_with("1.2.840.113549.1.1.") => "crypto/rsa: verification error",
            "1.3.101.112" => "x509: Ed25519 verification failure",
            _ => "x509: ECDSA verification failure",
        }
        .to_owned(),
    };
    let namesake = authorities.certificates().iter().find_map(|der| {
        let (_, authority) = X509Certificate::from_der(der).ok()?;
        (authority.subject() == leaf.issuer()).then(|| {
            let name = authority.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok());
            name.unwrap_or_default().to_owned()
        })
    });
    let Some(name) = namesake else { return unknown.to_owned() };
    format!(
        "{unknown} (possibly because of {} while trying to verify candidate authority certificate {})",
        api::field::quote(&why),
        api::field::quote(&name)
    )
}
