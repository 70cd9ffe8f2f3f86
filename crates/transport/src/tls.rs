//! TLS serving configuration and PEM parsing.
//!
//! As in kube-apiserver, the handshake requests a client certificate but does not verify its chain. The chain
//! is verified once per connection against the current CA bundle, and a certificate that fails leads to an
//! unauthenticated request (401), not a broken connection. This also allows replacing the CA file at runtime.

use std::sync::Arc;

use runtime::ConfigError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};

/// Minimum TLS version and cipher suites.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// `VersionTLS12` (the default) or `VersionTLS13`.
    pub min_version: Option<String>,
    /// Go names of the TLS 1.2 suites to offer; if empty, all safe ones.
    pub cipher_suites: Vec<String>,
    /// Clients cannot negotiate HTTP/2 (`--disable-http2-serving`).
    pub http1_only: bool,
}

const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
const ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Builds the configuration for accepting connections; errors name the flag.
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
            ConfigError::flag(
                "tls-cert-file",
                format!("the certificate does not match the private key of --tls-private-key-file: {e}"),
            )
        })?;
    config.alpn_protocols = if options.http1_only {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    Ok(config)
}

/// All TLS 1.3 suites, which cannot be configured, and the named TLS 1.2 suites.
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

/// Requests a client certificate and accepts any, provided that the client proves possession of its key.
#[derive(Debug)]
struct AskForCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

/// Maximum total size of a client's certificates. Unauthenticated clients can send them, and they stay in
/// memory as long as the connection. A chain of four certificates with 4096-bit RSA keys has 6 KiB.
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
        // `trust::Certificates` verifies the chain after the handshake; until then the certificate proves no identity.
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

/// Parses the certificates of a PEM file; fails if there are none. Skips other blocks and, like Go, blocks
/// with headers: only certificates that kube-apiserver would read from the file are trusted.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certs: Vec<CertificateDer<'static>> = x509::pem::certificates(pem).map(Into::into).collect();
    if certs.is_empty() {
        return Err("contains no PEM block of type CERTIFICATE".to_owned());
    }
    Ok(certs)
}

/// Parses the first private key of a PEM file.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    use rustls::pki_types::pem::PemObject as _;
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| "contains no usable private key in PEM".to_owned())
}
