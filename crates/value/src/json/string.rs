//! Reads the strings of a JSON text.

use std::borrow::Cow;

use super::{JsonReader, ReadFailed};
use crate::Str;

impl<'a> JsonReader<'a> {
    /// The string at the current offset, if it has no escapes and is UTF-8; otherwise consumes nothing.
    #[inline]
    pub(super) fn plain_string(&mut self) -> Option<&'a str> {
        let (text, back) = (self.text?, self.at);
        self.at += 1;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return text.get(back + 1..self.at - 1);
        }
        self.at = back;
        None
    }

    /// Reads a string, with escapes.
    pub(super) fn string(&mut self) -> Result<Str, ReadFailed> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.at;
            self.skip_plain();
            text.push_str(&self.utf8(plain));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Str::from(text));
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => return Err(self.invalid("in string literal")),
            }
        }
    }

    /// Skips to the next quote, backslash or control character.
    #[inline]
    fn skip_plain(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            let stops = plain_stops(u64::from_le_bytes(*word));
            if stops != 0 {
                self.at += stops.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        self.at += tail.iter().take_while(|b| !matches!(b, b'"' | b'\\' | 0..0x20)).count();
    }

    /// The bytes from `start` up to here as text.
    #[inline]
    pub(super) fn utf8(&self, start: usize) -> Cow<'a, str> {
        match self.text.and_then(|text| text.get(start..self.at)) {
            Some(text) => Cow::Borrowed(text),
            None => lossy(self.bytes.get(start..self.at).unwrap_or_default()),
        }
    }

    fn escape(&mut self) -> Result<char, ReadFailed> {
        let c = match self.peek() {
            Some(b @ (b'"' | b'\\' | b'/')) => char::from(b),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let first = self.hex4()?;
                return Ok(self.surrogates(first));
            }
            _ => return Err(self.invalid("in string escape code")),
        };
        self.at += 1;
        Ok(c)
    }

    fn hex4(&mut self) -> Result<u32, ReadFailed> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().and_then(|b| char::from(b).to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => return Err(self.invalid(r"in \u hexadecimal character escape")),
            }
            self.at += 1;
        }
        Ok(code)
    }

    /// Combines a surrogate pair; a lone surrogate becomes U+FFFD, as in Go.
    fn surrogates(&mut self, first: u32) -> char {
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER);
        }
        let back = self.at;
        if self.bytes.get(self.at..self.at + 2) == Some(br"\u") {
            self.at += 2;
            if let Ok(second @ 0xdc00..=0xdfff) = self.hex4() {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
        }
        self.at = back;
        char::REPLACEMENT_CHARACTER
    }
}

/// A mask with the top bit of the first (lowest) byte that ends plain text in a string; higher bits are undefined.
#[inline]
const fn plain_stops(word: u64) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x8080_8080_8080_8080;
    let quote = word ^ (LOW * 0x22);
    let backslash = word ^ (LOW * 0x5c);
    let is_quote = quote.wrapping_sub(LOW) & !quote;
    let is_backslash = backslash.wrapping_sub(LOW) & !backslash;
    let is_control = word.wrapping_sub(LOW * 0x20) & !word;
    (is_quote | is_backslash | is_control) & TOP
}

/// Converts bytes to text; each byte that is not valid UTF-8 becomes U+FFFD, as in Go.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}
