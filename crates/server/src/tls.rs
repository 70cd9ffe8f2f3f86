//! TLS: the serving configuration, and the check of client certificates.
//!
//! As in kube-apiserver the handshake asks for a client certificate but does not judge it: the chain is checked once per
//! connection against the CA bundle of that moment, and a certificate that does not pass is an unauthenticated request (401),
//! not a broken connection. That is also what lets the CA file be replaced while the server runs.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::config::ConfigError;

/// The lowest TLS version and the cipher suites that are offered.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// `VersionTLS12` (the default) or `VersionTLS13`.
    pub min_version: Option<String>,
    /// Go's names of the TLS 1.2 suites to offer; empty offers all that are safe.
    pub cipher_suites: Vec<String>,
}

const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
const ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The configuration connections are accepted with.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    options: &TlsOptions,
) -> Result<ServerConfig, ConfigError> {
    let mut provider = aws_lc_rs::default_provider();
    if !options.cipher_suites.is_empty() {
        provider.cipher_suites = suites(&provider.cipher_suites, &options.cipher_suites)?;
    }
    let versions = match options.min_version.as_deref() {
        None | Some("VersionTLS10" | "VersionTLS11" | "VersionTLS12") => BOTH,
        Some("VersionTLS13") => ONLY_13,
        Some(other) => {
            return Err(ConfigError::flag(
                "tls-min-version",
                format!("unknown tls version `{other}`: use VersionTLS12 or VersionTLS13"),
            ));
        }
    };
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(|e| ConfigError::flag("tls-min-version", e.to_string()))?
        .with_client_cert_verifier(Arc::new(AskForCertificate { algorithms }))
        .with_single_cert(chain, key)
        .map_err(|e| {
            ConfigError::flag("tls-cert-file", format!("the certificate and its key do not fit: {e}"))
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The suites of TLS 1.3 (which cannot be chosen) and those of TLS 1.2 that are named.
fn suites(
    known: &[SupportedCipherSuite],
    names: &[String],
) -> Result<Vec<SupportedCipherSuite>, ConfigError> {
    let mut chosen: Vec<SupportedCipherSuite> =
        known.iter().copied().filter(|s| s.tls13().is_some()).collect();
    for name in names {
        let suite = match name.as_str() {
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            }
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => {
                CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
            }
            "TLS_AES_128_GCM_SHA256" | "TLS_AES_256_GCM_SHA384" | "TLS_CHACHA20_POLY1305_SHA256" => continue,
            other => {
                return Err(ConfigError::flag(
                    "tls-cipher-suites",
                    format!("cipher suite {other} not supported or doesn't exist"),
                ));
            }
        };
        chosen.extend(known.iter().copied().filter(|s| s.suite() == suite));
    }
    Ok(chosen)
}

/// Asks for a client certificate and accepts whichever comes, so long as the client proves that it holds its key.
#[derive(Debug)]
struct AskForCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

/// How long the certificates of a client may be together. Anybody may show some, and they are kept as long as the connection: a
/// chain of four certificates with RSA keys of 4096 bits has 6 KiB.
const MAX_CHAIN_BYTES: usize = 16 * 1024;

impl ClientCertVerifier for AskForCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let size = intermediates.iter().fold(end_entity.len(), |size, one| size.saturating_add(one.len()));
        if size > MAX_CHAIN_BYTES {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        // Judged after the handshake by `ClientCa`; until then the certificate says nothing about who is calling.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The certificates in a PEM file; none at all is an error. What is no certificate is passed over, and so is one with headers, as
/// Go does: nothing is trusted here that kube-apiserver does not see in the same file.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certs: Vec<CertificateDer<'static>> = x509::pem::blocks(pem)
        .filter(|block| block.label == "CERTIFICATE" && !block.has_headers)
        .map(|block| block.bytes.into())
        .collect();
    if certs.is_empty() {
        return Err("contains no PEM block of type CERTIFICATE".to_owned());
    }
    Ok(certs)
}

/// The private key in a PEM file.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    use rustls::pki_types::pem::PemObject as _;
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| "contains no usable private key in PEM".to_owned())
}
