//! Escaping of property names that are not CEL identifiers, as Kubernetes does it.

use value::Str;

use crate::syntax::token::is_reserved;

/// Escapes a property name as a CEL identifier; `None` if expressions cannot access the property.
pub fn escape(name: &str) -> Option<Str> {
    let first = name.bytes().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__").into());
    }
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.contains("__") {
        return Some(name.into());
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => escaped.push(c),
            _ => return None,
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    Some(escaped.into())
}

/// Reverses [`escape`]; `None` if the identifier is not a valid escape sequence.
pub fn unescape(identifier: &str) -> Option<String> {
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("__")
            && let Some((word, after)) = after.split_once("__")
            && !word.is_empty()
            && !word.contains('_')
        {
            match word {
                "underscores" => name.push_str("__"),
                "dot" => name.push('.'),
                "dash" => name.push('-'),
                "slash" => name.push('/'),
                // A reserved word is escaped only if it is the whole name.
                word if is_reserved(word) && word.len() + 4 == identifier.len() => name.push_str(word),
                _ => return None,
            }
            rest = after;
            continue;
        }
        let c = rest.chars().next()?;
        name.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    Some(name)
}
