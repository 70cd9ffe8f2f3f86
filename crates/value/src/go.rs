//! Go's standard library where clients can see it: formats values as `fmt` does, decodes as `encoding/base64` does, and
//! parses as `net/url` and `net/netip` do, with their error messages.

pub mod base64;
pub mod netip;
pub mod url;

use std::fmt::Write as _;
use std::str::Chars;

use crate::Value;

/// Quotes a string as `%q` does.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote_to(&mut out, text, usize::MAX);
    out
}

/// Like [`quote`], for bytes that need not be UTF-8.
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for chunk in bytes.utf8_chunks() {
        escape_to(&mut out, chunk.valid(), usize::MAX);
        for byte in chunk.invalid() {
            escape_byte_to(&mut out, *byte);
        }
    }
    out.push('"');
    out
}

/// Appends a byte as the escape sequence `\xNN`.
pub fn escape_byte_to(out: &mut String, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}

/// Like [`quote`]; stops soon after `out` has `most` bytes.
fn quote_to(out: &mut String, text: &str, most: usize) {
    out.push('"');
    if escape_to(out, text, most) {
        out.push('"');
    }
}

/// The part of [`quote`] between the quotes. False if it stopped before the end, because `out` has more than `most` bytes.
fn escape_to(out: &mut String, text: &str, most: usize) -> bool {
    for c in text.chars() {
        if out.len() > most {
            return false;
        }
        if let Some(letter) = escape_letter(c) {
            out.extend(['\\', letter]);
        } else if is_printable(c) {
            out.push(c);
        } else {
            let code = u32::from(c);
            let _ = match code {
                0..0x80 => write!(out, "\\x{code:02x}"),
                0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
        }
    }
    true
}

/// The letter that stands for `c` after a backslash, in Go and C: `n` for a line feed. Quotes and backslashes stand for themselves.
pub fn escape_letter(c: char) -> Option<char> {
    Some(match c {
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '"' | '\\' => c,
        _ => return None,
    })
}

/// The control character that `letter` stands for after a backslash, in Go and C: a line feed for `n`.
pub fn escaped_control(letter: char) -> Option<char> {
    Some(match letter {
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        _ => return None,
    })
}

/// Replaces the escape sequences of a text. `resolve` gets the character after a backslash, `None` at the end, and those that follow, of
/// which it takes what belongs to the sequence. [`unquote`] has the sequences of Go; other languages have fewer.
pub fn unescape<E>(
    text: &str,
    mut resolve: impl FnMut(Option<char>, &mut Chars<'_>) -> Result<char, E>,
) -> Result<String, E> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let escaped = chars.next();
            out.push(resolve(escaped, &mut chars)?);
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

/// The value of a string in Go's syntax, without its quotes; `None` if an escape sequence is invalid. Octal sequences are not supported,
/// and `\xNN` is a character.
pub fn unquote(text: &str, quote: char) -> Option<String> {
    let resolve = |escaped: Option<char>, rest: &mut Chars<'_>| {
        let escaped = escaped.ok_or(())?;
        let mut code = |digits: usize| {
            let hex: String = rest.by_ref().take(digits).collect();
            let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
            code.and_then(char::from_u32)
        };
        let resolved = match escaped {
            '\\' => Some('\\'),
            'x' => code(2),
            'u' => code(4),
            'U' => code(8),
            c if c == quote => Some(c),
            letter => escaped_control(letter),
        };
        resolved.ok_or(())
    };
    unescape(text, resolve).ok()
}

/// Go's `strconv.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // `escape_debug` uses the same categories, if a mark follows a character that it can extend.
    let mut bytes = [b'a', 0, 0, 0, 0];
    let [_, rest @ ..] = &mut bytes;
    let end = 1 + c.encode_utf8(rest).len();
    let text = bytes.get(..end).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    text.escape_debug().nth(1) == Some(c)
}

/// Formats a float as `%v` does.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    shortest(&format!("{number:e}"))
}

/// Formats a float as `strconv.FormatFloat(…, 'g', -1, …)` does, from its shortest digits (`{:e}` of the float).
pub(crate) fn shortest(digits: &str) -> String {
    let (sign, unsigned) = digits.strip_prefix('-').map_or(("", digits), |unsigned| ("-", unsigned));
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let way = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{way}{:02}", exponent.unsigned_abs());
    }
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let point = usize::try_from(exponent + 1).unwrap_or_default();
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or_default());
        return format!("{sign}0.{zeros}{digits}");
    }
    match digits.split_at_checked(point) {
        Some((whole, "")) => format!("{sign}{whole}"),
        Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{digits}{}", "0".repeat(point - digits.len())),
    }
}

/// Formats decoded JSON as `%v` does: `map[a:1 b:[x y]]`.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    text_to(&mut out, value);
    out
}

fn text_to(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(s) => out.push_str(s),
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                out.push_str(if i > 0 { " " } else { "" });
                text_to(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.iter().enumerate() {
                out.push_str(if i > 0 { " " } else { "" });
                out.push_str(key);
                out.push(':');
                text_to(out, item);
            }
            out.push(']');
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "what does not fit into int64 is a float to Go's JSON"
        )]
        Value::UInt(u) => out.push_str(&float(*u as f64)),
        scalar => scalar_to(out, scalar),
    }
}

/// Formats null, booleans and numbers, which all verbs print alike.
fn scalar_to(out: &mut String, value: &Value) {
    match value {
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Float(f) => out.push_str(&float(*f)),
        _ => {}
    }
}

/// Formats a tree as `%#v` does, with maps whose keys have the type `keys`: `map[string]interface {}{"a":1}`. Stops
/// soon after `most` bytes.
pub fn syntax(value: &Value, keys: &str, most: usize) -> String {
    let mut out = String::new();
    syntax_to(&mut out, value, keys, most);
    out
}

/// Like [`syntax`]; exceeds `most` bytes in `out` only slightly.
fn syntax_to(out: &mut String, value: &Value, keys: &str, most: usize) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::UInt(u) => {
            let _ = write!(out, "{u:#x}");
        }
        Value::String(s) => quote_to(out, s, most),
        Value::List(list) => {
            out.push_str("[]interface {}{");
            for (i, item) in list.iter().enumerate() {
                if out.len() > most {
                    return;
                }
                out.push_str(if i > 0 { ", " } else { "" });
                syntax_to(out, item, keys, most);
            }
            out.push('}');
        }
        Value::Map(map) => {
            let _ = write!(out, "map[{keys}]interface {{}}{{");
            for (i, (key, item)) in map.iter().enumerate() {
                if out.len() > most {
                    return;
                }
                out.push_str(if i > 0 { ", " } else { "" });
                quote_to(out, key, most);
                out.push(':');
                syntax_to(out, item, keys, most);
            }
            out.push('}');
        }
        scalar => scalar_to(out, scalar),
    }
}

/// Name of the Go type of decoded JSON, as `%T` prints it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::UInt(_) | Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;
