//! Certificate authorities of tests.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

use crate::client::Credentials;
use crate::{Problem, Result};

/// A certificate authority with the certificates that it issues.
#[derive(Debug)]
pub struct TestAuthority {
    params: CertificateParams,
    key: KeyPair,
    /// The certificate of the authority itself, in PEM.
    pub pem: String,
}

impl TestAuthority {
    /// A new authority with this common name.
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate().map_err(certificate_failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).map_err(certificate_failed)?.pem();
        Ok(TestAuthority { params, key, pem })
    }

    /// Writes the authority's certificate to a file, and returns the flag of this name with the file.
    pub fn flag(&self, name: &str, file: &Path) -> Result<String> {
        std::fs::write(file, &self.pem)
            .map_err(|e| Problem::at("cannot write the file of an authority", e))?;
        Ok(format!("--{name}={}", file.display()))
    }

    /// A certificate with its key, both in PEM.
    pub fn issue(
        &self,
        name: &DistinguishedName,
        usage: ExtendedKeyUsagePurpose,
        hosts: &[&str],
    ) -> Result<(String, String)> {
        let key = KeyPair::generate().map_err(certificate_failed)?;
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).map_err(certificate_failed)?;
        params.distinguished_name = name.clone();
        params.extended_key_usages = vec![usage];
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(certificate_failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// A client certificate as credentials.
    pub fn client(&self, name: &str, groups: &[&str], uid: Option<&str>) -> Result<Credentials> {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, name);
        for group in groups {
            subject.push(DnType::OrganizationName, *group);
        }
        if let Some(uid) = uid {
            subject.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), uid);
        }
        let (certificate, key) = self.issue(&subject, ExtendedKeyUsagePurpose::ClientAuth, &[])?;
        Ok(Credentials::Certificate(certificate.into_bytes(), key.into_bytes()))
    }
}

fn certificate_failed(error: rcgen::Error) -> Problem {
    Problem::at("cannot create a certificate", error)
}
