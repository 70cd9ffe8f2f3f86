//! Client certificates: the common name is the user, organizations are the groups.
//!
//! TLS has verified the chain and the possession of the key. The certificate is decoded once per connection;
//! its validity period is checked again for every request.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::identities as names;
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use value::{Str, format_smolstr};
use x509_parser::asn1_rs::{Any, Class, oid};
use x509_parser::der_parser::Oid;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authenticator::Error;
use crate::caller::{AuthenticationMethod, Caller};
use crate::user::User;

/// The attribute of a distinguished name with the user's uid, registered for Kubernetes.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
const COMMON_NAME: Oid<'static> = oid!(2.5.4.3);
const ORGANIZATION: Oid<'static> = oid!(2.5.4.10);

/// The identity in a verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    common_name: Str,
    /// `None` if the certificate names no user.
    holder: Option<Caller>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl ClientCertificate {
    /// Decodes the leaf certificate that TLS has verified. Like Go, it rejects a certificate whose extended
    /// key usages do not include client authentication; a certificate without any is accepted.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| Error::Certificate("malformed certificate"))?;
        let usage = certificate
            .extended_key_usage()
            .map_err(|_| Error::Certificate("malformed extended key usage"))?;
        if usage.is_some_and(|usage| !usage.value.client_auth && !usage.value.any) {
            return Err(Error::Certificate("certificate specifies an incompatible key usage"));
        }

        let mut user = User::default();
        let mut uids: Vec<Str> = Vec::new();
        for attribute in certificate.subject().iter_attributes() {
            let kind = attribute.attr_type();
            let value = text(attribute.attr_value())?;
            if kind == &COMMON_NAME {
                user.name = value;
            } else if kind == &ORGANIZATION {
                user.groups.push(value);
            } else if kind == &UID {
                uids.push(value);
            }
        }
        match uids.as_slice() {
            [] => {}
            [uid] if !uid.is_empty() => user.uid = uid.clone(),
            [_] => return Err(Error::Certificate("UID cannot be an empty string")),
            _ => return Err(Error::Certificate("expected 1 UID, but found multiple")),
        }
        let fingerprint = digest(&SHA256, der);
        user.extra = BTreeMap::from([(
            Str::new_static(names::CREDENTIAL_ID),
            vec![format_smolstr!("X509SHA256={}", HEXLOWER.encode(fingerprint.as_ref()))],
        )]);
        let validity = certificate.validity();
        let common_name = user.name.clone();
        let holder = (!common_name.is_empty())
            .then(|| Caller::authenticated(user, AuthenticationMethod::ClientCertificate));
        Ok(ClientCertificate {
            common_name,
            holder,
            not_before: unix(validity.not_before.timestamp()),
            not_after: unix(validity.not_after.timestamp()),
        })
    }

    /// Empty if the subject has no common name.
    pub fn common_name(&self) -> &Str {
        &self.common_name
    }

    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Fails outside the validity period. `None` if the certificate names no user.
    pub(crate) fn holder(&self, now: SystemTime) -> Result<Option<Caller>, Error> {
        self.check_time(now)?;
        Ok(self.holder.clone())
    }

    pub(crate) fn check_time(&self, now: SystemTime) -> Result<(), Error> {
        if now < self.not_before || now > self.not_after {
            return Err(Error::Certificate("certificate has expired or is not yet valid"));
        }
        Ok(())
    }
}

fn unix(seconds: i64) -> SystemTime {
    match u64::try_from(seconds) {
        Ok(after) => UNIX_EPOCH + Duration::from_secs(after),
        Err(_) => UNIX_EPOCH,
    }
}

/// Decodes a string of a distinguished name. Like Go, it rejects certificates with other values.
fn text(value: &Any<'_>) -> Result<Str, Error> {
    let number = u8::try_from(value.tag().0).ok();
    let is_plain = value.class() == Class::Universal && !value.header.is_constructed();
    number
        .filter(|_| is_plain)
        .and_then(|tag| ::x509::directory_string(tag, value.data).ok().flatten())
        .map(Str::from)
        .ok_or(Error::Certificate("unable to parse a name into a string"))
}
