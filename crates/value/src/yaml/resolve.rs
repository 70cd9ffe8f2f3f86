//! Resolves the types of scalars: YAML 1.1 as Kubernetes reads it.
//!
//! The writer uses the same rules to decide when a string needs quotes, so that written strings are read back
//! unchanged.

use std::borrow::Cow;

use crate::time::days_in_month;
use crate::{go, json};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResolvedScalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    Float(f64),
    Text(Cow<'a, str>),
}

impl ResolvedScalar<'_> {
    fn kind(&self) -> &'static str {
        match self {
            ResolvedScalar::Null => "null",
            ResolvedScalar::Bool(_) => "bool",
            ResolvedScalar::Int(_) | ResolvedScalar::UInt(_) => "int",
            ResolvedScalar::Float(_) => "float",
            ResolvedScalar::Text(_) => "str",
        }
    }
}

const CORE: &str = "tag:yaml.org,2002:";

/// Resolves a plain scalar without a tag.
pub(super) fn plain(text: Cow<'_, str>) -> ResolvedScalar<'_> {
    meaning(&text).unwrap_or(ResolvedScalar::Text(text))
}

/// The type of a plain scalar; `None` if it is a string.
fn meaning(text: &str) -> Option<ResolvedScalar<'static>> {
    match text.as_bytes().first() {
        None => Some(ResolvedScalar::Null),
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => word(text),
        Some(b'.') => dotted(text),
        Some(b'+' | b'-' | b'0'..=b'9') => signed_infinity(text).or_else(|| number(text)),
        Some(_) => None,
    }
}

/// Resolves a scalar with a tag (in its long form). The error is goyaml's message.
pub(super) fn tagged<'a>(tag: &str, text: Cow<'a, str>) -> Result<ResolvedScalar<'a>, String> {
    let kind = match tag.strip_prefix(CORE) {
        Some(kind @ ("bool" | "int" | "float" | "null" | "timestamp")) => kind,
        Some("binary") => return binary(&text).map(|text| ResolvedScalar::Text(Cow::Owned(text))),
        _ => return Ok(ResolvedScalar::Text(text)), // `!!str`, `!mine` and the like: the text stands for itself
    };
    let found = match (kind, meaning(&text)) {
        #[expect(clippy::cast_precision_loss, reason = "the tag asks for a float")]
        ("float", Some(ResolvedScalar::Int(i))) => return Ok(ResolvedScalar::Float(i as f64)),
        ("timestamp", None) if is_timestamp(&text) => return Ok(ResolvedScalar::Text(text)),
        (_, None) => "str",
        (_, Some(scalar)) if scalar.kind() == kind => return Ok(scalar),
        (_, Some(scalar)) => scalar.kind(),
    };
    Err(format!("cannot decode !!{found} `{text}` as a !!{kind}"))
}

/// True if the string, written plain, would be read as another type.
pub(super) fn needs_quotes(text: &str) -> bool {
    meaning(text).is_some() || text == "<<" || is_timestamp(text) || is_base60(text)
}

fn word(text: &str) -> Option<ResolvedScalar<'static>> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            ResolvedScalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            ResolvedScalar::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => ResolvedScalar::Null,
        _ => return None,
    })
}

fn dotted(text: &str) -> Option<ResolvedScalar<'static>> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(ResolvedScalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" => Some(ResolvedScalar::Float(f64::INFINITY)),
        _ if text.contains('_') => separated(text),
        _ => finite(text),
    }
}

/// A float with underscores between its digits.
fn separated(text: &str) -> Option<ResolvedScalar<'static>> {
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let between =
        |at: usize| is_digit(at.checked_sub(1).and_then(|at| bytes.get(at))) && is_digit(bytes.get(at + 1));
    if bytes.iter().enumerate().all(|(at, b)| *b != b'_' || between(at)) {
        finite(&text.replace('_', ""))
    } else {
        None
    }
}

fn signed_infinity(text: &str) -> Option<ResolvedScalar<'static>> {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => Some(ResolvedScalar::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => Some(ResolvedScalar::Float(f64::NEG_INFINITY)),
        _ => None,
    }
}

fn number(text: &str) -> Option<ResolvedScalar<'static>> {
    let plain: Cow<'_, str> =
        if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    integer(&plain)
        .or_else(|| if is_decimal(&plain) { finite(&plain) } else { None })
        .or_else(|| signed_binary(&plain))
}

/// An integer with Go's base prefixes: `0b`, `0o`, `0x`, or a leading `0` for octal.
fn integer(text: &str) -> Option<ResolvedScalar<'static>> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", text.strip_prefix('-')?),
        b'+' => ("+", text.strip_prefix('+')?),
        _ => ("", text),
    };
    let (radix, digits) = based(digits)?;
    let magnitude = match digits {
        "" => 0,
        digits if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) => return None,
        digits => u64::from_str_radix(digits, radix).ok()?,
    };
    match (sign, i64::try_from(magnitude)) {
        ("-", Ok(i)) => Some(ResolvedScalar::Int(-i)),
        ("-", Err(_)) if magnitude == i64::MIN.unsigned_abs() => Some(ResolvedScalar::Int(i64::MIN)),
        (_, Ok(i)) => Some(ResolvedScalar::Int(i)),
        ("", Err(_)) => Some(ResolvedScalar::UInt(magnitude)),
        _ => None,
    }
}

/// Splits off the base prefix; `None` for the empty text.
fn based(digits: &str) -> Option<(u32, &str)> {
    let Some(rest) = digits.strip_prefix('0') else {
        return if digits.is_empty() { None } else { Some((10, digits)) };
    };
    let after = |letters: [char; 2]| rest.strip_prefix(letters).filter(|digits| !digits.is_empty());
    Some(if let Some(digits) = after(['b', 'B']) {
        (2, digits)
    } else if let Some(digits) = after(['o', 'O']) {
        (8, digits)
    } else if let Some(digits) = after(['x', 'X']) {
        (16, digits)
    } else {
        (8, rest)
    })
}

/// `0b` followed by a signed number, which goyaml accepts.
fn signed_binary(text: &str) -> Option<ResolvedScalar<'static>> {
    let digits = text.strip_prefix("0b")?;
    if !digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(digits, 2).ok().map(ResolvedScalar::Int)
}

/// Matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?` in full.
fn is_decimal(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = digits(rest);
    let rest = rest.get(whole..).unwrap_or_default();
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => (digits(after), after.get(digits(after)..).unwrap_or_default()),
        None => (0, rest),
    };
    if whole + fraction == 0 {
        return false;
    }
    match rest.strip_prefix(['e', 'E']) {
        None => rest.is_empty(),
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && exponent.bytes().all(|b| b.is_ascii_digit())
        }
    }
}

/// Parses a float; one that is out of range stays a string.
fn finite(text: &str) -> Option<ResolvedScalar<'static>> {
    text.parse::<f64>().ok().filter(|f| f.is_finite()).map(ResolvedScalar::Float)
}

/// A number in YAML 1.1's base 60, such as `190:20:30.15`. Kubernetes reads it as a string, other readers as a
/// number.
fn is_base60(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = rest.split(':');
    let first = parts.next().unwrap_or_default();
    if !first.starts_with(|c: char| c.is_ascii_digit())
        || !first.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        return false;
    }
    let sixtieth = |part: &str| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']);
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return false;
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    middle.iter().all(|part| sixtieth(part))
        && sixtieth(last)
        && fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// True if goyaml recognizes a timestamp. It is read as a string, but written in quotes.
pub(super) fn is_timestamp(text: &str) -> bool {
    timestamp(text).is_some()
}

fn timestamp(text: &str) -> Option<()> {
    let mut at = Digits { rest: text };
    let year = at.take(4, 4)?;
    at.skip(&['-'])?;
    let month = at.take(1, 2)?;
    at.skip(&['-'])?;
    let day = at.take(1, 2)?;
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    if at.rest.is_empty() {
        return Some(());
    }
    let zoned = at.skip(&['T', 't', ' '])? != ' ';
    let hour = at.take(1, 2)?;
    at.skip(&[':'])?;
    let minute = at.take(1, 2)?;
    at.skip(&[':'])?;
    let second = at.take(1, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if at.rest.starts_with(['.', ',']) {
        at.skip(&['.', ','])?;
        at.take(1, 9)?;
    }
    if zoned && at.skip(&['Z', '+', '-'])? != 'Z' {
        let hours = at.take(2, 2)?;
        at.skip(&[':'])?;
        let minutes = at.take(2, 2)?;
        if hours > 24 || minutes > 60 {
            return None;
        }
    }
    at.rest.is_empty().then_some(())
}

struct Digits<'a> {
    rest: &'a str,
}

impl Digits<'_> {
    /// Consumes `min` to `max` digits.
    fn take(&mut self, min: usize, max: usize) -> Option<i64> {
        let count = self.rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
        if count < min {
            return None;
        }
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        digits.parse().ok()
    }

    fn skip(&mut self, any: &[char]) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.rest = self.rest.strip_prefix(any)?;
        Some(first)
    }
}

/// Decodes standard base64, line breaks allowed. Bytes that are not UTF-8 become U+FFFD, as in JSON.
fn binary(text: &str) -> Result<String, String> {
    match go::base64::STD.decode(text) {
        Ok(bytes) => Ok(json::lossy(&bytes).into_owned()),
        Err(_) => Err("!!binary value contains invalid base64 data".to_owned()),
    }
}

/// Formats a float as goyaml does, from its shortest digits (`{:e}` of the float).
pub(super) fn go_float(shortest: &str) -> String {
    match shortest {
        "inf" => ".inf".to_owned(),
        "-inf" => "-.inf".to_owned(),
        "NaN" => ".nan".to_owned(),
        digits => go::shortest(digits),
    }
}
