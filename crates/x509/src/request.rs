//! Certificate requests (PKCS#10), parsed by the rules of Go's `crypto/x509`.

use crate::der::{DerReader, INTEGER, SEQUENCE, context};
use crate::name::CertificateSubject;
use crate::signature::{self, SignatureAlgorithm};
use crate::{Error, PublicKey, pem};

/// A certificate request whose signature was not verified yet.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    pub subject: CertificateSubject,
    /// The public key to certify; `None` if Go does not know its type.
    pub key: Option<PublicKey>,
    algorithm: SignatureAlgorithm,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl CertificateRequest {
    /// Parses the first block of a PEM text; text after it is ignored.
    pub fn from_pem(text: &[u8]) -> Result<Self, Error> {
        match pem::decode(text) {
            Some((block, _)) if block.label == "CERTIFICATE REQUEST" => Self::from_der(&block.bytes),
            _ => Err(Error::NotARequest),
        }
    }

    /// Parses DER. As in Go, additional elements at the end of a structure are ignored.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let mut outside = DerReader(der);
        let mut request = outside.expect(SEQUENCE)?.inside();
        let signed = request.expect(SEQUENCE)?;
        let algorithm = SignatureAlgorithm::read(request.expect(SEQUENCE)?.inside())?;
        let signature = request.any()?.bits()?.to_vec();
        if !outside.is_empty() {
            return Err(Error::TrailingData);
        }
        let mut information = signed.inside();
        information.expect(INTEGER)?;
        let subject = information.expect(SEQUENCE)?;
        let key = PublicKey::read(information.expect(SEQUENCE)?.inside())?;
        information.expect(context(0))?;
        let subject = CertificateSubject::read(subject.inside())?;
        Ok(CertificateRequest { subject, key, algorithm, signed: signed.raw.to_vec(), signature })
    }

    /// Verifies that the request is signed with the private key of its public key.
    pub fn check_signature(&self) -> Result<(), Error> {
        signature::check(self.key.as_ref(), self.algorithm, &self.signed, &self.signature)
    }
}
