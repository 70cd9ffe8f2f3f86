//! URLs as Go's `net/url` parses, takes apart and prints them, with its error messages.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{netip, quote, quote_bytes};
use crate::text::{bad_percent_escape, percent_decode, percent_encode};

/// A parsed URL, with the fields of Go's `url.URL`.
#[derive(Clone, Debug, Default)]
pub struct Url {
    pub scheme: String,
    opaque: String,
    /// User name and optional password.
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// Host with the port, if there is one.
    pub host: String,
    path: Vec<u8>,
    /// The path as written, if escaping the path would give a different text.
    raw_path: String,
    force_query: bool,
    /// The query as written, without the `?`.
    pub raw_query: String,
    omit_host: bool,
    fragment: Vec<u8>,
    raw_fragment: String,
}

/// The parameters of a query in order. Like Go's `ParseQuery`, skips those with a semicolon, which some parsers treat as a
/// separator, and those with invalid percent escapes.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescape_text(key, UrlPart::Query).ok()?, unescape_text(value, UrlPart::Query).ok()?))
    })
}

/// Go's `QueryEscape`: a space becomes `+`.
pub fn query_escape(text: &str) -> String {
    escape(text.as_bytes(), UrlPart::Query)
}

/// The part of a URL, which decides the characters to escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Path,
    UserPassword,
    Host,
    Zone,
    Query,
    Fragment,
}

fn is_plain(c: u8, mode: UrlPart) -> bool {
    if c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'~') {
        return true;
    }
    match mode {
        UrlPart::Host | UrlPart::Zone => b"!$&'()*+,;=:[]<>\"".contains(&c),
        UrlPart::Path => b"$&+,/:;=@".contains(&c),
        UrlPart::UserPassword => b"$&+,;=".contains(&c),
        UrlPart::Query => false,
        UrlPart::Fragment => b"$&+,/:;=?@!()*".contains(&c),
    }
}

fn escape(bytes: &[u8], mode: UrlPart) -> String {
    if mode == UrlPart::Query {
        return percent_encode(bytes, |byte| byte == b' ' || is_plain(byte, mode)).replace(' ', "+");
    }
    percent_encode(bytes, |byte| is_plain(byte, mode))
}

fn unescape(text: &str, mode: UrlPart) -> Result<Vec<u8>, String> {
    match mode {
        UrlPart::Host | UrlPart::Zone => check_host(text, mode)?,
        _ => bad_percent_escape(text).map_or(Ok(()), |escape| Err(invalid_escape(escape)))?,
    }
    if mode == UrlPart::Query && text.contains('+') {
        return Ok(percent_decode(&text.replace('+', " ")).into_owned());
    }
    Ok(percent_decode(text).into_owned())
}

fn invalid_escape(escape: &[u8]) -> String {
    format!("invalid URL escape {}", quote_bytes(escape))
}

/// Refuses characters and escapes that a host name or an IPv6 zone must not have.
fn check_host(text: &str, mode: UrlPart) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        if byte == b'%' {
            let escape = bytes.get(i..bytes.len().min(i + 3)).unwrap_or_default();
            let is_allowed = match percent_decode(&String::from_utf8_lossy(escape)).as_ref() {
                [value] if escape.len() == 3 => {
                    escape == b"%25"
                        || match mode {
                            UrlPart::Zone => *value == b' ' || is_plain(*value, UrlPart::Host),
                            _ => *value >= 0x80,
                        }
                }
                _ => false,
            };
            if !is_allowed {
                return Err(invalid_escape(escape));
            }
            i += 3;
            continue;
        }
        if byte < 0x80 && !is_plain(byte, mode) {
            return Err(format!("invalid character {} in host name", quote(&char::from(byte).to_string())));
        }
        i += 1;
    }
    Ok(())
}

fn unescape_text(text: &str, mode: UrlPart) -> Result<String, String> {
    unescape(text, mode).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Splits off the scheme.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, c) in text.bytes().enumerate() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((text.get(..i).unwrap_or_default(), text.get(i + 1..).unwrap_or_default())),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn read(text: &str, request: bool) -> Result<Url, String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, mut rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        url.force_query = true;
        rest = rest.strip_suffix('?').unwrap_or(rest);
    } else if let Some((before, query)) = rest.split_once('?') {
        rest = before;
        query.clone_into(&mut url.raw_query);
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if (!url.scheme.is_empty() || !request && !rest.starts_with("///"))
        && let Some(after) = rest.strip_prefix("//")
    {
        let end = after.find('/').unwrap_or(after.len());
        rest = after.get(end..).unwrap_or_default();
        authority(&mut url, after.get(..end).unwrap_or_default())?;
    } else if !url.scheme.is_empty() && rest.starts_with('/') {
        url.omit_host = true;
    }
    url.path = unescape(rest, UrlPart::Path)?;
    if escape(&url.path, UrlPart::Path) != rest {
        rest.clone_into(&mut url.raw_path);
    }
    Ok(url)
}

fn authority(url: &mut Url, authority: &str) -> Result<(), String> {
    let (user, host_text) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    url.host = host(&url.scheme, host_text)?;
    let Some(user) = user else { return Ok(()) };
    let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    url.user = Some(match user.split_once(':') {
        None => (unescape(user, UrlPart::UserPassword)?, None),
        Some((name, password)) => {
            (unescape(name, UrlPart::UserPassword)?, Some(unescape(password, UrlPart::UserPassword)?))
        }
    });
    Ok(())
}

fn port(text: &str) -> Result<(), String> {
    let valid =
        text.is_empty() || text.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if valid { Ok(()) } else { Err(format!("invalid port {} after host", quote(text))) }
}

fn host(scheme: &str, text: &str) -> Result<String, String> {
    match text.rfind('[') {
        Some(0) => {
            let Some((inside, after)) = text.get(1..).unwrap_or_default().rsplit_once(']') else {
                return Err("missing ']' in host".to_owned());
            };
            port(after)?;
            let after = unescape_text(after, UrlPart::Host)?;
            let name = match inside.find("%25") {
                Some(zone) => {
                    let (host, zone) = inside.split_at(zone);
                    unescape_text(host, UrlPart::Host)? + &unescape_text(zone, UrlPart::Zone)?
                }
                None => unescape_text(inside, UrlPart::Host)?,
            };
            let (ip, _) = netip::parse_addr(&name).map_err(|error| format!("invalid host: {error}"))?;
            if ip.is_ipv4() {
                return Err("invalid IP-literal".to_owned());
            }
            return Ok(format!("[{name}]{after}"));
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let (Some(first), Some(last)) = (text.find(':'), text.rfind(':')) {
        let at = if matches!(scheme, "http" | "https") { first } else { last };
        port(text.get(at..).unwrap_or_default())?;
    }
    unescape_text(text, UrlPart::Host)
}

/// True if `text` is a valid escaped form, with Go's exceptions.
fn valid_encoded(text: &str, mode: UrlPart) -> bool {
    text.bytes().all(|b| b"!$&'()*+,;=:@[]%".contains(&b) || is_plain(b, mode))
}

impl Url {
    /// Go's `ParseRequestURI`: the URL must be absolute or an absolute path.
    pub fn parse_request_uri(text: &str) -> Result<Url, String> {
        read(text, true).map_err(|error| format!("parse {}: {error}", quote(text)))
    }

    /// Go's `Parse`: accepts relative references.
    pub fn parse(text: &str) -> Result<Url, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = read(before, false).map_err(|error| format!("parse {}: {error}", quote(before)))?;
        if !fragment.is_empty() {
            url.fragment = unescape(fragment, UrlPart::Fragment)
                .map_err(|error| format!("parse {}: {error}", quote(text)))?;
            if escape(&url.fragment, UrlPart::Fragment) != fragment {
                fragment.clone_into(&mut url.raw_fragment);
            }
        }
        Ok(url)
    }

    /// Length of its parts in bytes.
    pub fn byte_count(&self) -> usize {
        let user = self
            .user
            .as_ref()
            .map_or(0, |(name, password)| name.len() + password.as_ref().map_or(0, Vec::len));
        let texts = self.scheme.len() + self.opaque.len() + self.host.len() + self.raw_query.len();
        texts + user + self.path.len() + self.fragment.len()
    }

    /// The path as it is sent: as written if that is a valid escaping, else escaped anew.
    pub fn escaped_path(&self) -> String {
        if !self.raw_path.is_empty()
            && valid_encoded(&self.raw_path, UrlPart::Path)
            && unescape(&self.raw_path, UrlPart::Path).is_ok_and(|path| path == self.path)
        {
            return self.raw_path.clone();
        }
        if self.path == b"*" {
            return "*".to_owned();
        }
        escape(&self.path, UrlPart::Path)
    }

    /// The fragment without the `#`, unescaped.
    pub fn fragment(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fragment)
    }

    /// User name and password, escaped as Go's `Userinfo.String` does.
    pub fn userinfo(&self) -> Option<String> {
        let (name, password) = self.user.as_ref()?;
        let name = escape(name, UrlPart::UserPassword);
        Some(match password {
            Some(password) => format!("{name}:{}", escape(password, UrlPart::UserPassword)),
            None => name,
        })
    }

    fn escaped_fragment(&self) -> String {
        if !self.raw_fragment.is_empty() && valid_encoded(&self.raw_fragment, UrlPart::Fragment) {
            return self.raw_fragment.clone();
        }
        escape(&self.fragment, UrlPart::Fragment)
    }

    /// Host without brackets, and port; the port is empty if there is none.
    pub fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, port),
            _ => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    /// Query parameters in order of first appearance; malformed ones are dropped.
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        // Expressions parse texts of clients, so looking for a key must not take longer with more keys.
        let mut positions: HashMap<String, usize> = HashMap::new();
        for (key, value) in query_pairs(&self.raw_query) {
            let known = positions.get(&key).and_then(|position| parameters.get_mut(*position));
            match known {
                Some((_, values)) => values.push(value),
                None => {
                    positions.insert(key.clone(), parameters.len());
                    parameters.push((key, vec![value]));
                }
            }
        }
        parameters
    }

    /// The URL as Go's `String` prints it.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if self.opaque.is_empty() {
            let no_authority = self.host.is_empty() && self.user.is_none();
            if !no_authority || !self.scheme.is_empty() && !self.omit_host {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    out.push_str("//");
                }
                if let Some(userinfo) = self.userinfo() {
                    out.push_str(&userinfo);
                    out.push('@');
                }
                if !self.host.is_empty() {
                    out.push_str(&escape(self.host.as_bytes(), UrlPart::Host));
                }
            }
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            if out.is_empty() && path.split('/').next().is_some_and(|segment| segment.contains(':')) {
                out.push_str("./");
            }
            out.push_str(&path);
        } else {
            out.push_str(&self.opaque);
        }
        if self.force_query || !self.raw_query.is_empty() {
            out.push('?');
            out.push_str(&self.raw_query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&self.escaped_fragment());
        }
        out
    }
}
