//! Front proxy authentication: a proxy with a verified certificate names the user in headers.

use value::Str;

use crate::authenticator::Error;
use crate::headers::{Headers, all, extra, first};
use crate::user::User;
use crate::x509::ClientCertificate;

/// Kubernetes' standard header with the user name.
pub const REMOTE_USER: &str = "X-Remote-User";
/// Kubernetes' standard header with the uid.
pub const REMOTE_UID: &str = "X-Remote-Uid";
/// Kubernetes' standard header with a group.
pub const REMOTE_GROUP: &str = "X-Remote-Group";
/// The prefix of Kubernetes' standard headers with extra attributes.
pub const REMOTE_EXTRA_PREFIX: &str = "X-Remote-Extra-";

/// The `--requestheader-*` flags: which proxies and headers are accepted.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// Allowed common names of the proxy's certificate; empty allows all.
    pub allowed_names: Vec<Str>,
    /// Headers with the user name; the first with a value counts.
    pub username_headers: Vec<Str>,
    /// Headers with the uid; the first with a value counts.
    pub uid_headers: Vec<Str>,
    /// Headers with groups; all count.
    pub group_headers: Vec<Str>,
    /// Prefixes of headers with extra attributes.
    pub extra_header_prefixes: Vec<Str>,
}

impl FrontProxy {
    /// The user named by the proxy; `None` if it names none. TLS has verified `certificate` with the front
    /// proxy CA. An identity header that is not UTF-8 is an error.
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

    /// Whether an aggregated API server could read a header as an identity header. Separators and case are
    /// ignored, see [`comparable_header_name`].
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

/// Normalizes a header name: CGI-style servers (CGI, WSGI, Rack, PHP) map `X-Remote-User`, `X_Remote_User`
/// and `x.remote.user` to the same variable.
pub fn comparable_header_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}
