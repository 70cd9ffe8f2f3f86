//! Generates the server's own keys and certificates.
//!
//! All generated keys are ECDSA P-256: generating an RSA key would take longer than the rest of the start.

pub use rcgen::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The certificate, followed by its chain if it has one.
    pub cert_pem: String,
    pub key_pem: String,
}

/// Omits the content, so that private keys are never logged.
impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// Validity in seconds: ten years for a CA, one year for other certificates.
const CA_SECONDS: i64 = 10 * 365 * 24 * 3600;
const LEAF_SECONDS: i64 = 365 * 24 * 3600;

fn params(common_name: &str, organizations: &[&str], now: i64, seconds: i64) -> CertificateParams {
    let mut name = DistinguishedName::new();
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    // Tolerates clocks that are up to an hour behind.
    params.not_before = time(now - 3600);
    params.not_after = time(now + seconds);
    params
}

fn time(seconds: i64) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

/// Generates a self-signed CA certificate. `now` is in Unix seconds.
pub fn authority(common_name: &str, now: i64) -> Result<TlsIdentity, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(common_name, &[], now, CA_SECONDS);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    let cert = params.self_signed(&key)?;
    Ok(TlsIdentity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}

/// Generates a serving certificate for these DNS names and IP addresses.
pub fn serving(
    authority: &TlsIdentity,
    names: &[String],
    ips: &[std::net::IpAddr],
    now: i64,
) -> Result<TlsIdentity, rcgen::Error> {
    let mut params = params("kube-apiserver", &[], now, LEAF_SECONDS);
    for name in names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(params, authority)
}

/// Generates a client certificate: the user is its common name, the groups are its organizations.
pub fn client(
    authority: &TlsIdentity,
    user: &str,
    groups: &[&str],
    now: i64,
) -> Result<TlsIdentity, rcgen::Error> {
    let mut params = params(user, groups, now, LEAF_SECONDS);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    signed(params, authority)
}

fn signed(mut params: CertificateParams, authority: &TlsIdentity) -> Result<TlsIdentity, rcgen::Error> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    let issuer_key = KeyPair::from_pem(&authority.key_pem)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.cert_pem, issuer_key)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let cert = params.signed_by(&key, &issuer)?;
    Ok(TlsIdentity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}

/// Generates a private key for signing service account tokens, as PEM.
pub fn signing_key() -> Result<String, rcgen::Error> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?.serialize_pem())
}

/// A kubeconfig with embedded certificates and key.
pub fn kubeconfig(server: &str, ca_pem: &str, client: &TlsIdentity) -> String {
    use base64::Engine as _;
    let data = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: portcullis\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: portcullis\n  context:\n    cluster: portcullis\n    user: admin\ncurrent-context: portcullis\n",
        data(ca_pem),
        data(&client.cert_pem),
        data(&client.key_pem),
    )
}
