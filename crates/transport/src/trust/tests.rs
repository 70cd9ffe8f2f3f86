use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;

use super::{Authority, Certificates, ClientTrust, VERIFIED_FOR, VerifiedCertificates};

/// A CA, and a certificate of `alice` that it signed.
fn made(name: &str) -> (ClientTrust, CertificateDer<'static>) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let clients = Some(Authority::from_pem(authority.pem().as_bytes()).unwrap());
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    (ClientTrust { clients, proxies: None }, leaf.der().clone())
}

/// A copy of a verification result, made older by `by`.
fn aged(verified: &VerifiedCertificates, by: Duration) -> Arc<VerifiedCertificates> {
    Arc::new(VerifiedCertificates {
        trust: Arc::clone(&verified.trust),
        at: Instant::now().checked_sub(by).unwrap(),
        client: verified.client.clone(),
        proxy: verified.proxy.clone(),
        is_untrusted: verified.is_untrusted,
    })
}

#[test]
fn a_verification_is_cached_for_a_minute() {
    let (trust, alice) = made("one");
    let trust = Arc::new(trust);
    let good = Certificates::new(&[alice]).verify(&trust).unwrap();
    assert!(good.client.is_some() && !good.is_untrusted);

    // An untrusted certificate with a cached positive result: as if it had expired since.
    let (_, stranger) = made("two");
    let certificates = Certificates::new(&[stranger]);
    certificates.verified.store(Some(aged(&good, VERIFIED_FOR / 2)));
    assert!(certificates.verify(&trust).unwrap().client.is_some());
    certificates.verified.store(Some(aged(&good, VERIFIED_FOR)));
    let verified = certificates.verify(&trust).unwrap();
    assert!(verified.client.is_none() && verified.is_untrusted);
}

#[test]
fn certificates_are_verified_again_when_the_authorities_change() {
    let (one, alice) = made("one");
    let certificates = Certificates::new(&[alice]);
    assert!(certificates.verify(&Arc::new(one)).unwrap().client.is_some());
    let (two, _) = made("two");
    assert!(certificates.verify(&Arc::new(two)).unwrap().client.is_none());
}

#[test]
fn a_request_without_client_certificates_is_not_verified() {
    let (trust, _) = made("one");
    assert!(Certificates::new(&[]).verify(&Arc::new(trust)).is_none());
}
