//! [`Headers`]: access to request headers without a dependency on HTTP.
//!
//! Values are bytes. Reading an identity header that is not UTF-8 is an error: it must never count as absent.

use std::collections::BTreeMap;

use value::Str;
use value::text::{bad_percent_escape, percent_decode};

/// Request headers. Names are compared case-insensitively.
pub trait Headers: Sync {
    fn first(&self, name: &str) -> Option<&[u8]>;

    /// Calls `visit` with name and value of every header line, in order.
    fn each(&self, visit: &mut dyn FnMut(&str, &[u8]));
}

pub struct HeaderLines<'a, V>(pub &'a [(&'a str, V)]);

impl<V: AsRef<[u8]> + Sync> Headers for HeaderLines<'_, V> {
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_ref())
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        for (name, value) in self.0 {
            visit(name, value.as_ref());
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the header {0} is not UTF-8")]
pub struct UnreadableHeader(pub Str);

/// The first value of a header; empty if it is missing.
pub(crate) fn first<'a>(headers: &'a dyn Headers, name: &str) -> Result<&'a str, UnreadableHeader> {
    let value = headers.first(name).unwrap_or_default();
    std::str::from_utf8(value).map_err(|_| UnreadableHeader(name.into()))
}

pub(crate) fn all(headers: &dyn Headers, name: &str) -> Result<Vec<Str>, UnreadableHeader> {
    let mut values = Vec::new();
    collect(headers, &mut |line, value| {
        if line.eq_ignore_ascii_case(name) {
            values.push(std::str::from_utf8(value)?.into());
        }
        Ok(())
    })?;
    Ok(values)
}

/// All headers with one of the prefixes, by the rest of their name.
pub(crate) fn extra(
    headers: &dyn Headers,
    prefixes: &[Str],
) -> Result<BTreeMap<Str, Vec<Str>>, UnreadableHeader> {
    let mut values: BTreeMap<Str, Vec<Str>> = BTreeMap::new();
    for prefix in prefixes {
        collect(headers, &mut |line, value| {
            if let Some(key) = extra_key(line, prefix) {
                values.entry(key.into()).or_default().push(std::str::from_utf8(value)?.into());
            }
            Ok(())
        })?;
    }
    Ok(values)
}

/// Receives a header's name and value. Fails if the value is not UTF-8.
type HeaderVisitor<'a> = dyn FnMut(&str, &[u8]) -> Result<(), std::str::Utf8Error> + 'a;

/// Visits every line. Returns the first error.
fn collect(headers: &dyn Headers, take: &mut HeaderVisitor<'_>) -> Result<(), UnreadableHeader> {
    let mut unreadable = None;
    headers.each(&mut |name, value| {
        if take(name, value).is_err() {
            unreadable.get_or_insert_with(|| UnreadableHeader(name.into()));
        }
    });
    unreadable.map_or(Ok(()), Err)
}

/// The part of a header name after `prefix`, in lower case and percent-decoded. Malformed escapes stay as
/// they are.
pub(crate) fn extra_key(name: &str, prefix: &str) -> Option<String> {
    let head = name.get(..prefix.len())?;
    if !head.eq_ignore_ascii_case(prefix) {
        return None;
    }
    let rest = name.get(prefix.len()..)?.to_ascii_lowercase();
    if bad_percent_escape(&rest).is_some() {
        return Some(rest);
    }
    // Kubernetes keeps bytes that are not UTF-8; here the escaped spelling stays instead.
    Some(String::from_utf8(percent_decode(&rest).into_owned()).unwrap_or(rest))
}
