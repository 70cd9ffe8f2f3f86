//! Readers of certificates, keys and certificate signing requests.

use authn::tokens::{SigningKey, TokenVerificationKey};
use authn::x509::ClientCertificate;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fuzz::Corpus;
use kinds::validation::certificates::certificate_request;
use rcgen::{CertificateParams, DnType, KeyPair};

#[test]
fn reading_certificates_keys_and_signing_requests_never_panics() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "system:node:a");
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    let certificate = params.self_signed(&key).unwrap();
    let request = params.serialize_request(&key).unwrap();
    let seeds = [
        certificate.der().to_vec(),
        certificate.pem().into_bytes(),
        request.pem().unwrap().into_bytes(),
        request.der().to_vec(),
        key.serialize_pem().into_bytes(),
        key.public_key_pem().into_bytes(),
    ];
    let tokens = [
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "-----BEGIN ",
        "PUBLIC KEY",
        "\x30\x03",
        "\x02\x01",
        "\x06\x03",
        "\x0c\x01",
        "\x7f",
        "A",
        "=",
        "Proc-Type: 4,ENCRYPTED\n",
    ];
    fuzz::run(&Corpus::new(&seeds, &tokens).inputs(), |input| {
        if let Ok(read) = ClientCertificate::from_der(input) {
            let _ = (read.common_name(), read.not_after());
        }
        let _ = (TokenVerificationKey::all_from_pem(input), SigningKey::from_pem(input).is_ok());
        let _ = (transport::tls::certificates(input), transport::tls::private_key(input).is_ok());
        // An object holds its request in base64.
        let text = BASE64_STANDARD.encode(&input[..]);
        if let Ok(request) = certificate_request(&text) {
            let _ = request.check_signature();
        }
        let _ = certificate_request(&input.text()).is_ok();
        if let Ok(request) = x509::CertificateRequest::from_der(input) {
            let _ = request.check_signature();
        }
        let _ = (x509::Certificate::all_from_der(input), x509::PublicKey::from_spki(input));
        Ok(())
    });
}
