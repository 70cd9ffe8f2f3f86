use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;

use super::{Authority, Certificates, JUDGED_FOR, Judgement, Trust};

/// A CA, and a certificate of `alice` that it signed.
fn made(name: &str) -> (Trust, CertificateDer<'static>) {
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
    (Trust { clients, proxies: None }, leaf.der().clone())
}

/// A copy of a verification result, made older by `by`.
fn aged(judged: &Judgement, by: Duration) -> Arc<Judgement> {
    Arc::new(Judgement {
        trust: Arc::clone(&judged.trust),
        at: Instant::now().checked_sub(by).unwrap(),
        client: judged.client.clone(),
        proxy: judged.proxy.clone(),
        doubted: judged.doubted,
    })
}

#[test]
fn a_judgement_is_believed_for_a_minute_and_then_made_anew() {
    let (trust, alice) = made("one");
    let trust = Arc::new(trust);
    let good = Certificates::new(&[alice]).judge(&trust).unwrap();
    assert!(good.client.is_some() && !good.doubted);

    // An untrusted certificate with a cached positive result: as if it had expired since.
    let (_, stranger) = made("two");
    let certificates = Certificates::new(&[stranger]);
    certificates.judged.store(Some(aged(&good, JUDGED_FOR / 2)));
    assert!(certificates.judge(&trust).unwrap().client.is_some());
    certificates.judged.store(Some(aged(&good, JUDGED_FOR)));
    let judged = certificates.judge(&trust).unwrap();
    assert!(judged.client.is_none() && judged.doubted);
}

#[test]
fn a_judgement_is_made_anew_when_the_authorities_change() {
    let (one, alice) = made("one");
    let certificates = Certificates::new(&[alice]);
    assert!(certificates.judge(&Arc::new(one)).unwrap().client.is_some());
    let (two, _) = made("two");
    assert!(certificates.judge(&Arc::new(two)).unwrap().client.is_none());
}

#[test]
fn without_certificates_there_is_nothing_to_judge() {
    let (trust, _) = made("one");
    assert!(Certificates::new(&[]).judge(&Arc::new(trust)).is_none());
}
