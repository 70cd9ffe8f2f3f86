//! The canonical writer: JSON with sorted keys, no white space, and strings and numbers as Go's encoder writes them.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::Value;

/// The canonical JSON of `value`.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(&mut out, value);
    out
}

/// The canonical JSON of `value`, as text.
pub fn to_string(value: &Value) -> String {
    String::from_utf8(to_vec(value)).unwrap_or_default()
}

/// Appends the canonical JSON of `value`.
pub fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Value::UInt(u) => {
            let _ = write!(out, "{u}");
        }
        Value::Float(f) => out.extend_from_slice(float(*f).as_bytes()),
        Value::String(s) => string(out, s),
        Value::List(list) => {
            out.push(b'[');
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write(out, item);
            }
            out.push(b']');
        }
        Value::Map(map) => {
            out.push(b'{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                string(out, key);
                out.push(b':');
                write(out, item);
            }
            out.push(b'}');
        }
    }
}

/// Appends `value` indented by two spaces a level, as `?pretty=true` shows it.
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

/// A float as Go's `encoding/json` prints it. NaN and the infinities, which JSON has no word for, become `null`.
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

/// Appends `s` as a JSON string. HTML's special characters are escaped as Go's encoder does.
pub fn string(out: &mut Vec<u8>, s: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = s.as_bytes();
    let mut plain = 0;
    let mut flush = |out: &mut Vec<u8>, upto: usize, next: usize| {
        out.extend_from_slice(bytes.get(plain..upto).unwrap_or_default());
        plain = next;
    };
    let mut i = 0;
    while let Some(&b) = bytes.get(i) {
        let escape: Option<&[u8]> = match b {
            b'"' => Some(b"\\\""),
            b'\\' => Some(b"\\\\"),
            b'\n' => Some(b"\\n"),
            b'\r' => Some(b"\\r"),
            b'\t' => Some(b"\\t"),
            0x08 => Some(b"\\b"),
            0x0c => Some(b"\\f"),
            b'<' => Some(b"\\u003c"),
            b'>' => Some(b"\\u003e"),
            b'&' => Some(b"\\u0026"),
            _ => None,
        };
        if let Some(escape) = escape {
            flush(out, i, i + 1);
            out.extend_from_slice(escape);
        } else if b < 0x20 {
            flush(out, i, i + 1);
            out.extend_from_slice(b"\\u00");
            out.push(HEX.get(usize::from(b >> 4)).copied().unwrap_or(b'0'));
            out.push(HEX.get(usize::from(b & 15)).copied().unwrap_or(b'0'));
        } else if b == 0xe2 && matches!(bytes.get(i + 1..i + 3), Some([0x80, 0xa8 | 0xa9])) {
            flush(out, i, i + 3);
            let last = if bytes.get(i + 2) == Some(&0xa8) { b'8' } else { b'9' };
            out.extend_from_slice(b"\\u202");
            out.push(last);
            i += 2;
        }
        i += 1;
    }
    flush(out, bytes.len(), bytes.len());
    out.push(b'"');
}
