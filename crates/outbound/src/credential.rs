//! Client certificates, tokens and passwords for other servers. `Debug` prints none of them.

use std::fmt;
use std::path::{Path, PathBuf};

use http::header::HeaderValue;

use super::FailureKind;
use super::failure::{Broken, broken};

/// Token files longer than this are rejected.
const MAX_TOKEN_FILE: u64 = 64 << 10;

/// A client certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, with its chain.
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// Credentials for the `Authorization` header.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum OutboundCredential {
    /// No header is sent.
    #[default]
    None,
    /// A fixed bearer token.
    Bearer(String),
    /// A file with a bearer token, read again every 10 seconds at most.
    TokenFile(PathBuf),
    /// Basic authentication with user name and password.
    Basic(String, String),
}

/// A bearer token as a header value; `Debug` does not print it.
#[derive(Clone)]
pub struct BearerToken(pub(super) HeaderValue);

impl BearerToken {
    /// `None` if the token is not valid in a header.
    pub fn new(token: &str) -> Option<Self> {
        sensitive("Bearer ", token).ok().map(BearerToken)
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer")
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity")
    }
}

/// Omits tokens and passwords.
impl fmt::Debug for OutboundCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutboundCredential::None => f.write_str("None"),
            OutboundCredential::Bearer(_) => f.write_str("Bearer"),
            OutboundCredential::TokenFile(path) => write!(f, "TokenFile({})", path.display()),
            OutboundCredential::Basic(name, _) => write!(f, "Basic({name:?})"),
        }
    }
}

/// Reads a token from a file, without the white space around it.
pub(super) fn read_token_file(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let file = runtime::files::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(MAX_TOKEN_FILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(text.len()).is_ok_and(|len| len > MAX_TOKEN_FILE) {
        return Err("it is too long to be a token".to_owned());
    }
    let token = text.trim();
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(token.to_owned())
}

/// Builds a header value that is excluded from debug output.
pub(super) fn sensitive(scheme: &str, secret: &str) -> Result<HeaderValue, Broken> {
    let mut value = HeaderValue::try_from(format!("{scheme}{secret}"))
        .map_err(|_| broken(FailureKind::Unsent, "the credential cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}
