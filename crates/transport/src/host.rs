//! The header `Host` of HTTP/1 requests, by the rules and with the answers of Go's `net/http` server, which kube-apiserver uses. A proxy
//! and this server could otherwise read two hosts from one request. Go applies none of these rules to HTTP/2, where `:authority` is the host.

use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostError {
    /// HTTP/1.1 without a host.
    Missing,
    Malformed,
    Several,
}

pub(crate) fn check(version: Version, method: &Method, headers: &HeaderMap) -> Result<(), HostError> {
    if version >= Version::HTTP_2 {
        return Ok(());
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(HostError::Several),
        (Some(host), None) if !host.as_bytes().iter().copied().all(is_host_byte) => Err(HostError::Malformed),
        (None, None) if version == Version::HTTP_11 && *method != Method::CONNECT => Err(HostError::Missing),
        (_, None) => Ok(()),
    }
}

/// Go searches only for bytes that are in no form of a host and port.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&()*+,-.:;=['_~]".contains(&byte)
}

impl HostError {
    fn body(self) -> &'static str {
        match self {
            HostError::Missing => "400 Bad Request: missing required Host header",
            HostError::Malformed => "400 Bad Request: malformed Host header",
            // Go does not send the reason of this one.
            HostError::Several => "400 Bad Request",
        }
    }

    /// The answer, after which the connection is closed: the body is not read.
    pub(crate) fn answer<B>(self, body: impl FnOnce(&'static str) -> B) -> Response<B> {
        let text = self.body();
        let mut response = Response::new(body(text));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        // The status line has the text after the code.
        let reason = text.strip_prefix("400 ").unwrap_or(text);
        response.extensions_mut().insert(ReasonPhrase::from_static(reason.as_bytes()));
        response
    }
}

#[cfg(test)]
mod tests;
