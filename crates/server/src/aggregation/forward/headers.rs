//! Filters and rewrites headers, path and query of proxied requests and responses.

use std::net::IpAddr;

use authn::front_proxy::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use authn::{FrontProxy, User, comparable_header_name, protocols_without_token};
use bytes::Bytes;
use http::header::{self, CONNECTION, HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use requests::request_info::clean_path;
use value::go::url::query_escape;
use value::text::percent_encode;

/// Headers that concern a single connection and are not forwarded.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "http2-settings",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Response headers that only this server may set.
const OURS: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Prefixes of the headers in which authenticating proxies pass the identity of the client to the servers behind them. Aggregated API
/// servers must take the identity only from `X-Remote-*`, which only this server writes. A client's headers with these prefixes are
/// removed, because a server that was written for such a proxy would take them as an identity.
const PROXY_IDENTITY_PREFIXES: &[&str] = &[
    "remote-",
    "x-remote-",
    "impersonate-",
    "x-auth-request-",
    "x-authenticated-",
    "x-webauth-",
    "x-ssl-client-",
    "ssl-client-",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-amzn-oidc-",
    "x-ms-client-principal",
    "cf-access-",
];

/// Further names with this meaning. Headers about the connection, such as `X-Forwarded-For`, are not among them.
const PROXY_IDENTITY: &[&str] = &[
    "x-forwarded-user",
    "x-forwarded-group",
    "x-forwarded-groups",
    "x-forwarded-email",
    "x-forwarded-preferred-username",
    "x-forwarded-access-token",
    "x-forwarded-client-cert",
    "x-forwarded-tls-client-cert",
    "x-forwarded-tls-client-cert-info",
    "x-client-cert",
    "client-cert",
    "client-cert-chain",
];

/// Headers that this server sets, so that their other spellings must not reach a server that reads them alike.
const SET_HERE: &[&str] = &[FORWARDED_FOR, "x-forwarded-uri", "x-forwarded-host", "x-forwarded-proto"];

/// Protocols a connection may be upgraded to. The bytes after an upgrade are not inspected, so none of these protocols may carry
/// further requests: over `h2c`, a client could send its own identity headers.
const UPGRADES: [&str; 2] = ["websocket", "spdy/3.1"];

/// Whether a request asks for an upgrade to allowed protocols only.
pub(super) fn asks_to_upgrade(headers: &HeaderMap) -> bool {
    let texts = |name: HeaderName| {
        headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase())
    };
    let mut protocols = texts(header::UPGRADE).peekable();
    texts(CONNECTION).any(|value| value.contains("upgrade"))
        && protocols.peek().is_some()
        && protocols.all(|protocol| UPGRADES.contains(&protocol.as_str()))
}

/// The request headers to forward, with `peer` appended to `X-Forwarded-For`.
pub(in super::super) fn outgoing(
    received: &HeaderMap,
    front_proxy: Option<&FrontProxy>,
    peer: IpAddr,
    upgrades: bool,
) -> HeaderMap {
    let dropped = named_by_connection(received);
    let mut headers = HeaderMap::new();
    for (name, value) in received {
        let text = name.as_str();
        let hop = (HOP_BY_HOP.contains(&text) || dropped.contains(name))
            && !(upgrades && matches!(text, "connection" | "upgrade"));
        if hop || is_reserved_header(text, front_proxy) {
            continue;
        }
        if *name == header::SEC_WEBSOCKET_PROTOCOL {
            let protocols = value.to_str().map(protocols_without_token).unwrap_or_default();
            if let Ok(protocols) = HeaderValue::try_from(protocols)
                && !protocols.is_empty()
            {
                headers.append(name.clone(), protocols);
            }
            continue;
        }
        headers.append(name.clone(), value.clone());
    }
    // `TE` is hop-by-hop, but `trailers` is requested again from the next server.
    let wants_trailers = |value: &HeaderValue| {
        value
            .to_str()
            .is_ok_and(|value| value.split(',').any(|each| each.trim().eq_ignore_ascii_case("trailers")))
    };
    if received.get_all(header::TE).iter().any(wants_trailers) {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if upgrades {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    let before: Vec<String> = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .chain([peer.to_string()])
        .collect();
    if let Ok(value) = HeaderValue::try_from(before.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
    headers
}

/// Whether a client's header must not be forwarded: it carries an identity in a spelling that the aggregated server might accept
/// ([`comparable_header_name`]), it is a credential, or it belongs to the next connection.
fn is_reserved_header(name: &str, front_proxy: Option<&FrontProxy>) -> bool {
    let comparable = comparable_header_name(name);
    matches!(comparable.as_str(), "authorization" | "host" | "expect")
        || PROXY_IDENTITY.contains(&comparable.as_str())
        || PROXY_IDENTITY_PREFIXES.iter().any(|prefix| comparable.starts_with(prefix))
        || (SET_HERE.contains(&comparable.as_str()) && comparable != name)
        || front_proxy.is_some_and(|proxy| proxy.is_identity_header(name))
}

/// The request trailers to forward. The rules for headers apply.
pub(in super::super) fn forwarded_trailers(
    received: &HeaderMap,
    front_proxy: Option<&FrontProxy>,
) -> HeaderMap {
    let goes_on = |name: &HeaderName| {
        !HOP_BY_HOP.contains(&name.as_str()) && !is_reserved_header(name.as_str(), front_proxy)
    };
    received
        .iter()
        .filter(|(name, _)| goes_on(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Filters the trailers of a frame with `keep`; data frames pass unchanged. Unfiltered trailers could smuggle headers.
pub(super) fn trailers_of(frame: Frame<Bytes>, keep: impl FnOnce(&HeaderMap) -> HeaderMap) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(keep(&trailers)),
        Err(frame) => frame,
    }
}

/// The response headers to forward.
pub(in super::super) fn incoming(received: &HeaderMap) -> HeaderMap {
    let dropped = named_by_connection(received);
    let mut headers = HeaderMap::with_capacity(received.len());
    for (name, value) in received {
        let text = name.as_str();
        if !HOP_BY_HOP.contains(&text) && !OURS.contains(&text) && !dropped.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// The headers that `Connection` declares hop-by-hop.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

/// Adds the front-proxy identity headers. Fails on a value that the receiver would read differently.
pub(in super::super) fn identify(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    let mut add = |name: &str, value: &str| {
        let invalid =
            || format!("net/http: invalid header field value for {}", api::field::quote(&canonical(name)));
        let name = name.parse::<HeaderName>().map_err(|_| {
            format!("net/http: invalid header field name {}", api::field::quote(&canonical(name)))
        })?;
        // HTTP strips blanks around a header value, which would turn it into another identity.
        if value.trim() != value {
            return Err(invalid());
        }
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?);
        Ok(())
    };
    add(REMOTE_USER, &user.name)?;
    if !user.uid.is_empty() {
        add(REMOTE_UID, &user.uid)?;
    }
    for group in &user.groups {
        add(REMOTE_GROUP, group)?;
    }
    for (key, values) in &user.extra {
        let name = format!("{REMOTE_EXTRA_PREFIX}{}", escape_key(key));
        for value in values {
            add(&name, value)?;
        }
    }
    Ok(())
}

/// Go's canonical form of a header name: `x-remote-user` → `X-Remote-User`.
fn canonical(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    });
    words.collect::<Vec<_>>().join("-")
}

/// Percent-encodes a key of the user's extra attributes for use in a header name.
fn escape_key(key: &str) -> String {
    percent_encode(key, |byte| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte))
}

/// Sets the `X-Forwarded-Uri`, `-Host` and `-Proto` headers. The path is cleaned of empty, `.` and `..` segments.
pub(in super::super) fn set_forwarded_headers(headers: &mut HeaderMap, path: &str, host: &str) {
    let mut uri = clean_path(path);
    if path.ends_with('/') && uri != "/" {
        uri.push('/');
    }
    for (name, value) in
        [("x-forwarded-uri", &*uri), ("x-forwarded-host", host), ("x-forwarded-proto", "https")]
    {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Encodes a path like Go, but also escapes semicolons, which some servers treat as the start of path parameters.
pub(crate) fn encode_path(path: &str) -> String {
    percent_encode(path, |byte| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:=@".contains(&byte))
}

/// Encodes a query like Go: sorted by name, with the order of equal names preserved.
pub(in super::super) fn encode_query(pairs: &[(String, String)]) -> String {
    let mut sorted: Vec<&(String, String)> = pairs.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let pairs =
        sorted.into_iter().map(|(name, value)| format!("{}={}", query_escape(name), query_escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}
