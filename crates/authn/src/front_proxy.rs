//! Front proxy: a proxy that proved itself by certificate says in headers who is calling.

use value::Str;

use crate::authenticator::Error;
use crate::headers::{Headers, all, extra, first};
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
    /// The user the proxy names, if it names one. `certificate` was verified by TLS against the proxies' own authority. A header
    /// that counts and cannot be read is an error.
    pub(crate) fn user(
        &self,
        certificate: &ClientCertificate,
        headers: &dyn Headers,
    ) -> Result<Option<User>, Error> {
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(certificate.common_name()) {
            return Err(Error::ProxyName(certificate.common_name().clone()));
        }
        let first = |names: &[Str]| {
            names.iter().map(|name| first(headers, name)).find(|value| *value != Ok("")).transpose()
        };
        let Some(name) = first(&self.username_headers)? else { return Ok(None) };
        let mut groups = Vec::new();
        for name in &self.group_headers {
            groups.extend(all(headers, name)?.into_iter().filter(|group| !group.is_empty()));
        }
        let uid = first(&self.uid_headers)?.unwrap_or_default();
        let extra = extra(headers, &self.extra_header_prefixes)?;
        Ok(Some(User { name: name.into(), uid: uid.into(), groups, extra }))
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
