//! The parts of a certificate that Kubernetes' validation needs.

use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::PublicKey;

/// A parsed certificate. Neither its signature nor its validity period is verified.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The public key; `None` if Go does not know its type.
    pub key: Option<PublicKey>,
    /// Start of validity, in seconds since the Unix epoch.
    pub not_before: i64,
    /// End of validity, in seconds since the Unix epoch.
    pub not_after: i64,
    /// True for a CA certificate, which may sign others.
    pub is_authority: bool,
    /// DNS names in the subject alternative names.
    pub dns_names: Vec<String>,
    /// Email addresses in the subject alternative names.
    pub email_addresses: Vec<String>,
}

impl Certificate {
    /// Parses one certificate; `None` if it is malformed or more bytes follow.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        Self::first(der).filter(|(_, rest)| rest.is_empty()).map(|(certificate, _)| certificate)
    }

    /// Parses one or more concatenated certificates; `None` if anything else is there.
    pub fn all_from_der(der: &[u8]) -> Option<Vec<Self>> {
        let mut found = Vec::new();
        let mut rest = der;
        while !rest.is_empty() {
            let (certificate, after) = Self::first(rest)?;
            found.push(certificate);
            rest = after;
        }
        (!found.is_empty()).then_some(found)
    }

    fn first(der: &[u8]) -> Option<(Self, &[u8])> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        let info = parsed.public_key().raw;
        let key = match PublicKey::from_spki(info) {
            Ok(key) => Some(key),
            Err(crate::Error::Key("unknown public key algorithm")) => None,
            Err(_) => return None,
        };
        let mut certificate = Certificate {
            key,
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            is_authority: parsed.is_ca(),
            dns_names: Vec::new(),
            email_addresses: Vec::new(),
        };
        for extension in parsed.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    for name in &names.general_names {
                        match name {
                            GeneralName::DNSName(name) => certificate.dns_names.push((*name).to_owned()),
                            GeneralName::RFC822Name(name) => {
                                certificate.email_addresses.push((*name).to_owned());
                            }
                            GeneralName::Invalid(..) => return None,
                            _ => {}
                        }
                    }
                }
                ParsedExtension::ParseError { .. } => return None,
                _ => {}
            }
        }
        Some((certificate, rest))
    }
}
