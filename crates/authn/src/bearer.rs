//! Extracts the bearer token from the `Authorization` header, or from a WebSocket subprotocol for browsers,
//! which cannot set that header.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::authenticator::Error;
use crate::headers::{Headers, all};

/// The warning for a header with more than one space before the token.
const EXTRA_SPACE: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// The prefix of the subprotocol with the token.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The content of the `Authorization` header.
#[derive(Debug, PartialEq)]
pub(crate) enum BearerHeader<'a> {
    /// The header has no bearer token.
    None,
    /// The header is ignored; the text is a warning for the client.
    Ignored(&'static str),
    Token(&'a str),
}

pub(crate) fn from_header(header: &str) -> BearerHeader<'_> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next().unwrap_or_default();
    match (parts.next(), parts.next()) {
        _ if !scheme.eq_ignore_ascii_case("bearer") => BearerHeader::None,
        (None, _) | (Some(""), None) => BearerHeader::None,
        (Some(""), Some(_)) => BearerHeader::Ignored(EXTRA_SPACE),
        (Some(token), _) => BearerHeader::Token(token),
    }
}

/// The token in the WebSocket subprotocols, if the request is a WebSocket upgrade.
pub(crate) fn from_websocket(headers: &dyn Headers) -> Result<Option<String>, Error> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let mut token = None;
    let mut others = 0;
    for line in all(headers, "sec-websocket-protocol")? {
        for protocol in line.split(',').map(str::trim) {
            let Some(encoded) = protocol.strip_prefix(PROTOCOL_PREFIX) else {
                others += 1;
                continue;
            };
            if token.is_some() {
                return Err(Error::SeveralProtocolTokens);
            }
            let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Error::ProtocolTokenEncoding)?;
            token = Some(String::from_utf8(bytes).map_err(|_| Error::ProtocolTokenEncoding)?);
        }
    }
    match token {
        None => Ok(None),
        Some(token) if token.is_empty() => Ok(None),
        // The server never selects the token's subprotocol, so there must be another one.
        Some(_) if others == 0 => Err(Error::NoOtherProtocol),
        Some(token) => Ok(Some(token)),
    }
}

/// Removes the subprotocol with the token from a `Sec-WebSocket-Protocol` header.
pub fn protocols_without_token(header: &str) -> String {
    let others: Vec<&str> =
        header.split(',').map(str::trim).filter(|p| !p.starts_with(PROTOCOL_PREFIX)).collect();
    others.join(",")
}

fn is_websocket(headers: &dyn Headers) -> bool {
    let upgrade = headers.first("upgrade").is_some_and(|v| v.eq_ignore_ascii_case(b"websocket"));
    let connection = headers.first("connection").is_some_and(|v| {
        v.split(|byte| *byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    });
    upgrade && connection
}
