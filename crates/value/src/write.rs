//! Writes canonical JSON: sorted keys, no white space, strings and numbers as Go's encoder writes them.

use std::fmt::Write as _;

use crate::{Map, Value, steps};

/// Encodes a value as canonical JSON bytes.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(&mut out, value);
    out
}

/// Encodes a value as a canonical JSON string.
pub fn to_string(value: &Value) -> String {
    String::from_utf8(to_vec(value)).unwrap_or_default()
}

/// Appends a value as canonical JSON.
pub fn write(out: &mut Vec<u8>, value: &Value) {
    steps::count(1);
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(i) => {
            if *i < 0 {
                out.push(b'-');
            }
            integer(out, i.unsigned_abs());
        }
        Value::UInt(u) => integer(out, *u),
        Value::Float(f) => out.extend_from_slice(float(*f).as_bytes()),
        Value::String(s) => string(out, s),
        Value::List(items) => list(out, items, write),
        Value::Map(entries) => map(out, entries, write),
    }
}

/// Appends a list whose items `item` appends.
pub fn list(out: &mut Vec<u8>, items: &[Value], mut item: impl FnMut(&mut Vec<u8>, &Value)) {
    out.push(b'[');
    for (i, value) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        item(out, value);
    }
    out.push(b']');
}

/// Appends a map whose values `item` appends.
pub fn map(out: &mut Vec<u8>, entries: &Map, mut item: impl FnMut(&mut Vec<u8>, &Value)) {
    out.push(b'{');
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        string(out, key);
        out.push(b':');
        item(out, value);
    }
    out.push(b'}');
}

/// Appends a value indented by two spaces per level, as for `?pretty=true`.
pub fn pretty(out: &mut Vec<u8>, value: &Value) {
    indented(out, value, 0);
}

fn indented(out: &mut Vec<u8>, value: &Value, level: usize) {
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * level, b' ');
    };
    match value {
        Value::List(list) if !list.is_empty() => {
            out.push(b'[');
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(out, level + 1);
                indented(out, item, level + 1);
            }
            line(out, level);
            out.push(b']');
        }
        Value::Map(map) if !map.is_empty() => {
            out.push(b'{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(out, level + 1);
                string(out, key);
                out.extend_from_slice(b": ");
                indented(out, item, level + 1);
            }
            line(out, level);
            out.push(b'}');
        }
        _ => write(out, value),
    }
}

/// Formats a float as Go's `encoding/json` does. NaN and infinities, which JSON cannot express, become `null`.
pub fn float(f: f64) -> String {
    if !f.is_finite() {
        return "null".to_owned();
    }
    let magnitude = f.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{f:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
            _ => text,
        };
    }
    let mut text = String::new();
    let _ = write!(text, "{f}");
    text
}

/// Appends an integer in decimal.
fn integer(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

/// First bytes of characters that may need escaping.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut b = 0;
    while b < 256 {
        #[expect(clippy::indexing_slicing, reason = "evaluated when compiled")]
        {
            special[b] = b < 0x20 || matches!(b, 0x22 | 0x5c | 0x3c | 0x3e | 0x26 | 0xe2);
        }
        b += 1;
    }
    special
};

/// Appends `s` as a JSON string. HTML's special characters are escaped, as Go's encoder does.
pub fn string(out: &mut Vec<u8>, s: &str) {
    out.reserve(s.len() + 2);
    out.push(b'"');
    let mut rest = s.as_bytes();
    while let Some(at) =
        rest.iter().position(|b| SPECIAL.get(usize::from(*b)).is_some_and(|special| *special))
    {
        let Some((plain, after)) = rest.split_at_checked(at) else { break };
        out.extend_from_slice(plain);
        rest = special(out, after);
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Appends the first character of `bytes`, escaped if necessary, and returns the rest.
fn special<'b>(out: &mut Vec<u8>, bytes: &'b [u8]) -> &'b [u8] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let Some((first, rest)) = bytes.split_first() else { return bytes };
    let escape: &[u8] = match first {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        0x08 => b"\\b",
        0x0c => b"\\f",
        b'<' => b"\\u003c",
        b'>' => b"\\u003e",
        b'&' => b"\\u0026",
        0xe2 => match rest {
            [0x80, 0xa8, rest @ ..] => {
                out.extend_from_slice(b"\\u2028");
                return rest;
            }
            [0x80, 0xa9, rest @ ..] => {
                out.extend_from_slice(b"\\u2029");
                return rest;
            }
            _ => b"\xe2",
        },
        control => {
            out.extend_from_slice(b"\\u00");
            out.extend(
                [control >> 4, control & 15]
                    .map(|digit| HEX.get(usize::from(digit)).copied().unwrap_or(b'0')),
            );
            return rest;
        }
    };
    out.extend_from_slice(escape);
    rest
}
