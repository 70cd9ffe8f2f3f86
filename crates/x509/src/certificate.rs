//! What a certificate says, as far as Kubernetes' rules look at it.

use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::PublicKey;

/// A certificate. Nothing is verified: not its signature, not its time.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its key; nothing if Go does not know the kind.
    pub key: Option<PublicKey>,
    /// Seconds since the epoch.
    pub not_before: i64,
    /// Seconds since the epoch.
    pub not_after: i64,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// The DNS names among its alternative names.
    pub dns_names: Vec<String>,
    /// The mail addresses among its alternative names.
    pub email_addresses: Vec<String>,
}

impl Certificate {
    /// Reads the certificate that `der` is; nothing if it is none, or if more follows.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        Self::first(der).filter(|(_, rest)| rest.is_empty()).map(|(certificate, _)| certificate)
    }

    /// Reads the certificates of which `der` consists, one or more; nothing if there is anything else.
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
