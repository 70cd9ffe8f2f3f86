use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use time::OffsetDateTime;

use super::{Authorities, CertificateRejection, Purpose};

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

/// A certificate, and the issuer that signs others with its key.
struct TestCertificate {
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// The parameters of a valid CA, modified by `change`.
fn params(name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = OffsetDateTime::from_unix_timestamp(NOW - 10 * DAY).unwrap();
    params.not_after = OffsetDateTime::from_unix_timestamp(NOW + 10 * DAY).unwrap();
    change(&mut params);
    params
}

fn root(name: &str, change: impl FnOnce(&mut CertificateParams)) -> TestCertificate {
    let (params, key) = (params(name, change), KeyPair::generate().unwrap());
    TestCertificate { der: params.self_signed(&key).unwrap().der().clone(), issuer: Issuer::new(params, key) }
}

fn signed(by: &TestCertificate, name: &str, change: impl FnOnce(&mut CertificateParams)) -> TestCertificate {
    let (params, key) = (params(name, change), KeyPair::generate().unwrap());
    let der = params.signed_by(&key, &by.issuer).unwrap().der().clone();
    TestCertificate { der, issuer: Issuer::new(params, key) }
}

fn leaf(by: &TestCertificate) -> CertificateDer<'static> {
    let change = |params: &mut CertificateParams| {
        params.is_ca = IsCa::NoCa;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    };
    signed(by, "leaf", change).der
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(NOW).unwrap()))
}

fn verify(
    trusted: &[&TestCertificate],
    chain: &[CertificateDer<'static>],
    purpose: Purpose,
) -> Result<(), CertificateRejection> {
    let trusted = trusted.iter().map(|made| made.der.clone()).collect();
    Authorities::new(trusted).unwrap().verify(&chain[0], &chain[1..], now(), purpose)
}

/// Verifies a client certificate that was signed by a CA with the modified parameters.
fn verify_with_ca(change: impl FnOnce(&mut CertificateParams)) -> Result<(), CertificateRejection> {
    let root = root("root", change);
    verify(&[&root], &[leaf(&root)], Purpose::Client)
}

fn ends(params: &mut CertificateParams, at: i64) {
    params.not_after = OffsetDateTime::from_unix_timestamp(at).unwrap();
}

#[test]
fn a_certificate_authority_is_trusted_only_within_its_validity_period() {
    assert_eq!(verify_with_ca(|_| {}), Ok(()));
    assert_eq!(verify_with_ca(|params| ends(params, NOW)), Ok(()));
    assert!(matches!(
        verify_with_ca(|params| ends(params, NOW - 1)),
        Err(CertificateRejection::OutOfTime(_))
    ));
    let later = OffsetDateTime::from_unix_timestamp(NOW + 1).unwrap();
    assert!(matches!(
        verify_with_ca(|params| params.not_before = later),
        Err(CertificateRejection::OutOfTime(_))
    ));
}

#[test]
fn a_certificate_authority_is_trusted_only_if_it_may_sign_certificates() {
    assert_eq!(
        verify_with_ca(|params| params.is_ca = IsCa::ExplicitNoCa),
        Err(CertificateRejection::MayNotSign)
    );
    assert_eq!(verify_with_ca(|params| params.is_ca = IsCa::NoCa), Err(CertificateRejection::MayNotSign));
    assert_eq!(verify_with_ca(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]), Ok(()));
    let signs_data =
        |params: &mut CertificateParams| params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    assert_eq!(verify_with_ca(signs_data), Err(CertificateRejection::MayNotSign));
    let root = root("root", |_| {});
    let between = signed(&root, "between", signs_data);
    let chain = [leaf(&between), between.der.clone()];
    assert_eq!(verify(&[&root], &chain, Purpose::Client), Err(CertificateRejection::MayNotSign));
}

#[test]
fn a_certificate_authority_is_trusted_only_for_its_extended_key_usages() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    for (usages, client, server) in [
        (vec![ClientAuth], Ok(()), Err(CertificateRejection::Purpose)),
        (vec![ServerAuth], Err(CertificateRejection::Purpose), Ok(())),
        (vec![Any], Ok(()), Ok(())),
    ] {
        let root = root("root", |params| params.extended_key_usages = usages);
        let chain = [leaf(&root)];
        assert_eq!(verify(&[&root], &chain, Purpose::Client), client);
        assert_eq!(verify(&[&root], &chain, Purpose::Server), server);
    }
}

#[test]
fn a_certificate_authority_limits_the_length_of_chains() {
    for (most, outcome) in [(1, Ok(())), (0, Err(CertificateRejection::TooManyIntermediates))] {
        let root = root("root", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(most)));
        assert_eq!(verify(&[&root], &[leaf(&root)], Purpose::Client), Ok(()));
        let between = signed(&root, "between", |_| {});
        let chain = [leaf(&between), between.der.clone()];
        assert_eq!(verify(&[&root], &chain, Purpose::Client), outcome);
    }
}

#[test]
fn a_renewed_certificate_authority_is_trusted_by_its_valid_certificate() {
    let old = root("root", |params| ends(params, NOW - DAY));
    let renewed = {
        let params = params("root", |_| {});
        let der = params.self_signed(old.issuer.key()).unwrap().der().clone();
        TestCertificate { der, issuer: Issuer::new(params, KeyPair::generate().unwrap()) }
    };
    let chain = [leaf(&old)];
    for trusted in [[&old, &renewed], [&renewed, &old]] {
        assert_eq!(verify(&trusted, &chain, Purpose::Client), Ok(()));
    }
    assert!(matches!(verify(&[&old], &chain, Purpose::Client), Err(CertificateRejection::OutOfTime(_))));
    let stranger = root("root", |_| {});
    assert_eq!(verify(&[&stranger], &chain, Purpose::Client), Err(CertificateRejection::Unknown));
}

#[test]
fn a_leaf_certificate_in_the_ca_file_is_trusted_but_cannot_issue_certificates() {
    let change = |params: &mut CertificateParams| {
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let pinned = root("pinned", change);
    let own = [pinned.der.clone()];
    assert_eq!(verify(&[&pinned], &own, Purpose::Client), Ok(()));
    assert_eq!(verify(&[&pinned], &own, Purpose::Server), Err(CertificateRejection::Purpose));
    assert_eq!(verify(&[&pinned], &[leaf(&pinned)], Purpose::Client), Err(CertificateRejection::MayNotSign));
    let expired = root("pinned", |params| ends(params, NOW - DAY));
    let own = [expired.der.clone()];
    assert!(matches!(verify(&[&expired], &own, Purpose::Client), Err(CertificateRejection::OutOfTime(_))));
}
