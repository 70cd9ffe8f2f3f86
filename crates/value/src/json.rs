//! The strict JSON reader. Errors are in the words of Go's decoder, because API clients see them.

use std::borrow::Cow;
use std::fmt;

use crate::{Map, Str, Value};

/// How deeply maps and lists may nest in input from outside.
pub const MAX_DEPTH: usize = 128;

/// The most duplicate keys that are reported.
const MAX_DUPLICATES: usize = 100;

/// What a reader found: the tree, and the paths of keys that occurred more than once (the last one won).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// The tree.
    pub value: Value,
    /// Dotted paths (`spec.containers[0].name`) of repeated keys.
    pub duplicates: Vec<String>,
}

/// Why bytes are not JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong, in the words of Go's decoder.
    pub message: String,
    /// The offset of the offending byte.
    pub offset: usize,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Reads one JSON value, ignoring how often a key occurs.
pub fn parse(bytes: &[u8]) -> Result<Value, Error> {
    read(bytes).map(|read| read.value)
}

/// Reads one JSON value and notes repeated keys.
pub fn read(bytes: &[u8]) -> Result<Read, Error> {
    let mut reader = Reader { bytes, at: 0, depth: 0, duplicates: Vec::new() };
    let value = reader.value()?;
    reader.space();
    match reader.peek() {
        None => Ok(Read { value, duplicates: reader.duplicates }),
        Some(_) => Err(reader.invalid("after top-level value")),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    duplicates: Vec<String>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The error for the byte (or the end) at the current place.
    fn invalid(&self, context: &str) -> Error {
        let message = match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(b'\'') => format!(r"invalid character '\'' {context}"),
            Some(b'"') => format!("invalid character '\"' {context}"),
            Some(b) => format!("invalid character {} {context}", quoted(b)),
        };
        Error { message, offset: self.at }
    }

    fn value(&mut self) -> Result<Value, Error> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.invalid("looking for beginning of value")),
        }
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<Value, Error>) -> Result<Value, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error { message: "exceeded max depth".to_owned(), offset: self.at });
        }
        self.depth += 1;
        self.at += 1;
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, Error> {
        let mut entries: Vec<(Str, Value)> = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(Map::new()));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.invalid("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.invalid("after object key"));
            }
            self.at += 1;
            let known = self.duplicates.len();
            let value = self.value()?;
            self.prefix_duplicates(known, |rest| {
                if rest.starts_with('[') { format!("{key}{rest}") } else { format!("{key}.{rest}") }
            });
            entries.push((key, value));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
        self.at += 1;
        let (map, repeated) = Map::from_entries(entries);
        let room = MAX_DUPLICATES.saturating_sub(self.duplicates.len());
        self.duplicates.extend(repeated.into_iter().take(room).map(|key| key.to_string()));
        Ok(Value::Map(map))
    }

    fn array(&mut self) -> Result<Value, Error> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            let known = self.duplicates.len();
            let index = items.len();
            items.push(self.value()?);
            self.prefix_duplicates(known, |rest| {
                if rest.starts_with('[') { format!("[{index}]{rest}") } else { format!("[{index}].{rest}") }
            });
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.invalid("after array element")),
            }
        }
        self.at += 1;
        items.shrink_to_fit();
        Ok(Value::List(items))
    }

    /// Completes the paths of duplicates found inside a child, which only knows its own part of them.
    fn prefix_duplicates(&mut self, known: usize, prefixed: impl Fn(&str) -> String) {
        for path in self.duplicates.iter_mut().skip(known) {
            *path = prefixed(path);
        }
    }

    fn literal(&mut self, word: &'static str, value: Value) -> Result<Value, Error> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.invalid(&format!("in literal {word} (expecting {})", quoted(expected))));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn digits(&mut self, context: &str) -> Result<(), Error> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.invalid(context));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            integer = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text =
            self.bytes.get(start..self.at).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or_default();
        if integer && let Ok(i) = text.parse::<i64>() {
            return Ok(Value::Int(i));
        }
        match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Value::Float(f)),
            _ => Err(Error {
                message: format!("json: cannot unmarshal number {text} into Go value of type float64"),
                offset: start,
            }),
        }
    }

    fn string(&mut self) -> Result<Str, Error> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = self.utf8(start);
                    self.at += 1;
                    return Ok(Str::from(text));
                }
                Some(b'\\') => break,
                Some(0x20..) => self.at += 1,
                _ => return Err(self.invalid("in string literal")),
            }
        }
        // An escape: from here on the text is built.
        let mut text = self.utf8(start).into_owned();
        let mut plain = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    text.push_str(&self.utf8(plain));
                    self.at += 1;
                    return Ok(Str::from(text));
                }
                Some(b'\\') => {
                    text.push_str(&self.utf8(plain));
                    self.at += 1;
                    text.push(self.escape()?);
                    plain = self.at;
                }
                Some(0x20..) => self.at += 1,
                _ => return Err(self.invalid("in string literal")),
            }
        }
    }

    /// The bytes from `start` to here as text.
    fn utf8(&self, start: usize) -> Cow<'a, str> {
        lossy(self.bytes.get(start..self.at).unwrap_or_default())
    }

    fn escape(&mut self) -> Result<char, Error> {
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

    fn hex4(&mut self) -> Result<u32, Error> {
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

    /// Joins a surrogate pair; a lone half becomes U+FFFD, as in Go.
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

/// The bytes as text; each byte that is not part of UTF-8 becomes U+FFFD, as in Go.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
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

/// A byte as Go quotes it in error messages.
fn quoted(b: u8) -> String {
    match b {
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(b)),
        0xa1..=0xff if b != 0xad => format!("'{}'", char::from(b)),
        0x80.. => format!(r"'\u{b:04x}'"),
        _ => format!(r"'\x{b:02x}'"),
    }
}
