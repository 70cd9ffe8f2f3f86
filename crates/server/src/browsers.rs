//! Response headers for browsers: cross-origin requests (CORS) and strict transport security (HSTS).

use cel::pattern::{Pattern, PatternError};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, ORIGIN,
    STRICT_TRANSPORT_SECURITY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::body::Body;

/// The configured headers. By default there are none, and browsers refuse to show responses to pages of other origins.
#[derive(Debug, Default)]
pub struct BrowserConfig {
    /// `--cors-allowed-origins`: patterns of origins whose pages may read responses.
    origins: Vec<Pattern>,
    /// The value of the `Strict-Transport-Security` header.
    transport_security: Option<HeaderValue>,
}

/// The headers for the response to one request.
pub(crate) struct BrowserHeaders {
    allowed_origin: Option<HeaderValue>,
    transport_security: Option<HeaderValue>,
    is_preflight: bool,
}

impl BrowserConfig {
    /// From `--cors-allowed-origins` and `--strict-transport-security-directives`. Fails if a pattern is not a regular
    /// expression. Directives that cannot be in a header are left out.
    pub fn new(origins: &[String], directives: &[String]) -> Result<Self, PatternError> {
        let joined = directives.join("; ");
        Ok(BrowserConfig {
            origins: origins.iter().map(|origin| Pattern::compile(origin)).collect::<Result<_, _>>()?,
            transport_security: HeaderValue::try_from(joined).ok().filter(|value| !value.is_empty()),
        })
    }

    /// `None` if the response gets no further headers.
    pub(crate) fn for_request(&self, method: &Method, headers: &HeaderMap) -> Option<BrowserHeaders> {
        let origin = headers.get(ORIGIN).filter(|_| !self.origins.is_empty());
        let is_allowed = |origin: &&HeaderValue| {
            let text = String::from_utf8_lossy(origin.as_bytes());
            !text.is_empty() && self.origins.iter().any(|allowed| allowed.is_match(&text))
        };
        let allowed_origin = origin.filter(is_allowed).cloned();
        let transport_security = self.transport_security.clone();
        let is_preflight = allowed_origin.is_some() && method == Method::OPTIONS;
        (allowed_origin.is_some() || transport_security.is_some()).then_some(BrowserHeaders {
            allowed_origin,
            transport_security,
            is_preflight,
        })
    }
}

impl BrowserHeaders {
    /// The response to a browser that asks whether it may send a request; it needs no credentials.
    pub(crate) fn preflight(&self) -> Option<Response<Body>> {
        self.is_preflight.then(|| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
            response
        })
    }

    /// Adds the headers. An aggregated API server may have set its own, which CORS replaces and HSTS does not.
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        if let Some(directives) = self.transport_security {
            headers.entry(STRICT_TRANSPORT_SECURITY).or_insert(directives);
        }
        if let Some(origin) = self.allowed_origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            for (name, value) in [
                (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
                (
                    ACCESS_CONTROL_ALLOW_HEADERS,
                    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
                ),
                (ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
                (ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
    }
}

#[cfg(test)]
mod tests;
