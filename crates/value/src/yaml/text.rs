//! Decodes bytes to the characters that YAML allows.

use std::borrow::Cow;

use super::{Error, Position};

/// Upper bound of the length of a text in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Decodes UTF-8, or UTF-16 with a byte order mark.
pub(super) fn of(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::new(format!("yaml: input is longer than {MAX_BYTES} bytes"), Position::START));
    }
    let text = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest)?,
        [0xff, 0xfe, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes)?),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes)?),
        _ => utf8(bytes)?,
    };
    let printable = |b: &u8| matches!(b, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    if text.as_bytes().iter().all(printable) {
        return Ok(text);
    }
    match text.char_indices().find(|(_, c)| !is_allowed(*c)) {
        None => Ok(text),
        Some((at, _)) => {
            let position = Position::at(text.as_bytes(), at);
            Err(Error::new("yaml: control characters are not allowed".to_owned(), position))
        }
    }
}

fn is_allowed(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => true,
        '\u{a0}'.. => !matches!(c, '\u{fffe}' | '\u{ffff}'),
        _ => false,
    }
}

fn utf8(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
        let at = error.valid_up_to();
        let rest = bytes.get(at..).unwrap_or_default();
        Error::new(format!("yaml: {}", wrong_utf8(rest)), Position::at(bytes, at))
    })
}

/// goyaml's message for the invalid sequence that `bytes` begins with.
fn wrong_utf8(bytes: &[u8]) -> &'static str {
    let (width, least) = match bytes.first() {
        Some(0xc0..=0xdf) => (2, 0x80),
        Some(0xe0..=0xef) => (3, 0x800),
        Some(0xf0..=0xf7) => (4, 0x1_0000),
        _ => return "invalid leading UTF-8 octet",
    };
    let Some(([first, rest @ ..], _)) = bytes.split_at_checked(width) else {
        return "incomplete UTF-8 octet sequence";
    };
    if rest.iter().any(|b| b & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    let lead = u32::from(*first) & (0x7f >> width);
    if rest.iter().fold(lead, |code, b| code << 6 | u32::from(b & 0x3f)) < least {
        "invalid length of a UTF-8 sequence"
    } else {
        "invalid Unicode character"
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Error> {
    let units = bytes.as_chunks().0.iter().map(|pair| unit(*pair));
    match char::decode_utf16(units).collect() {
        Ok(text) if bytes.len().is_multiple_of(2) => Ok(text),
        Ok(_) => Err(Error::new("yaml: incomplete UTF-16 character".to_owned(), Position::START)),
        Err(_) => Err(Error::new("yaml: unexpected low surrogate area".to_owned(), Position::START)),
    }
}
