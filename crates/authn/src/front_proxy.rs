//! Front proxy: a proxy that proved itself by certificate says in headers who is calling.

use std::collections::BTreeMap;

use value::Str;

use crate::authenticator::Error;
use crate::headers::{Headers, all, extra_key};
use crate::user::User;
use crate::x509::ClientCertificate;

/// Which proxies to believe, and which headers (`--requestheader-*`).
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// Common names a proxy's certificate may have; empty allows all.
    pub allowed_names: Vec<Str>,
    /// Headers that may carry the name; the first with a value counts.
    pub username_headers: Vec<Str>,
    /// Headers that may carry the uid; the first with a value counts.
    pub uid_headers: Vec<Str>,
    /// Headers that carry groups; all count.
    pub group_headers: Vec<Str>,
    /// Beginnings of headers that carry extra attributes.
    pub extra_header_prefixes: Vec<Str>,
}

impl FrontProxy {
    /// The user the proxy names, if it names one. `certificate` was verified by TLS against the proxies' own authority.
    pub(crate) fn user(
        &self,
        certificate: &ClientCertificate,
        headers: &dyn Headers,
    ) -> Result<Option<User>, Error> {
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(certificate.common_name()) {
            return Err(Error::ProxyName(certificate.common_name().clone()));
        }
        let first = |names: &[Str]| {
            names.iter().filter_map(|name| headers.first(name)).find(|v| !v.is_empty()).map(Str::from)
        };
        let Some(name) = first(&self.username_headers) else { return Ok(None) };
        let groups = self
            .group_headers
            .iter()
            .flat_map(|name| all(headers, name))
            .filter(|group| !group.is_empty())
            .map(Str::from)
            .collect();
        let mut extra: BTreeMap<Str, Vec<Str>> = BTreeMap::new();
        for prefix in &self.extra_header_prefixes {
            headers.each(&mut |name, value| {
                if let Some(key) = extra_key(name, prefix) {
                    extra.entry(key.into()).or_default().push(value.into());
                }
            });
        }
        Ok(Some(User { name, uid: first(&self.uid_headers).unwrap_or_default(), groups, extra }))
    }

    /// Whether a server behind this one could read a header as one that carries an identity. Separators and case do not
    /// matter: see [`comparable_header_name`].
    pub fn is_identity_header(&self, name: &str) -> bool {
        let name = comparable_header_name(name);
        let same = |list: &[Str]| list.iter().any(|header| comparable_header_name(header) == name);
        same(&self.username_headers)
            || same(&self.uid_headers)
            || same(&self.group_headers)
            || self
                .extra_header_prefixes
                .iter()
                .any(|prefix| !prefix.is_empty() && name.starts_with(&comparable_header_name(prefix)))
    }
}

/// A header name in the one form that all its spellings share for a CGI-style server: such servers (CGI, WSGI, Rack, PHP)
/// turn `X-Remote-User`, `X_Remote_User` and `x.remote.user` into one variable.
pub fn comparable_header_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}
