//! The strict JSON reader. Error messages are those of Go's decoder, because API clients see them.

mod offsets;
mod string;

use std::fmt;

use crate::{Map, Str, Value, go};

pub use offsets::offsets;
pub use string::lossy;

/// Nesting limit of objects and arrays in requests.
pub const MAX_DEPTH: usize = 128;

/// Nesting limit when an accepted object is read again inside a wrapper, such as a review or a list.
pub const MAX_DEPTH_WRAPPED: usize = MAX_DEPTH + 16;

/// Upper bound of reported repeated keys.
const MAX_DUPLICATES: usize = 100;

/// A decoded value, with the paths of repeated keys (the last one won).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodedJson {
    /// The decoded value, in canonical key order.
    pub value: Value,
    /// Dotted paths (`spec.containers[0].name`) of repeated keys.
    pub duplicates: Vec<String>,
}

/// A JSON syntax error with its offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The message of Go's decoder.
    pub message: String,
    /// Byte offset of the error.
    pub offset: usize,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Limit of the memory in bytes of the tree that JSON or YAML decodes to, known without decoding it. Typical objects take about half as much,
/// without what YAML repeats by aliases.
pub fn max_memory(text: &[u8]) -> usize {
    /// An entry of a map, in a list that has grown to twice its size.
    const NODE: usize = 2 * size_of::<(crate::Str, Value)>();
    let (mut items, mut lines) = (1_usize, 0_usize);
    for byte in text {
        items += usize::from(matches!(byte, b',' | b'[' | b'{'));
        lines += usize::from(*byte == b'\n');
    }
    items.max(lines).saturating_mul(NODE).saturating_add(text.len())
}

/// Decodes one JSON value; repeated keys are ignored.
pub fn parse(bytes: &[u8]) -> Result<Value, Error> {
    read(bytes).map(|read| read.value)
}

/// Like [`parse`], for a wrapper around a value as deep as [`MAX_DEPTH`].
pub fn parse_wrapped(bytes: &[u8]) -> Result<Value, Error> {
    read_to_depth(bytes, MAX_DEPTH_WRAPPED).map(|read| read.value)
}

/// Decodes one JSON value and reports repeated keys.
pub fn read(bytes: &[u8]) -> Result<DecodedJson, Error> {
    read_to_depth(bytes, MAX_DEPTH)
}

fn read_to_depth(bytes: &[u8], max_depth: usize) -> Result<DecodedJson, Error> {
    let mut reader = JsonReader {
        bytes,
        text: std::str::from_utf8(bytes).ok(),
        at: 0,
        depth: 0,
        max_depth,
        entries: Vec::with_capacity(32),
        items: Vec::with_capacity(16),
        duplicates: Vec::new(),
        error: None,
    };
    match reader.whole() {
        Ok(value) => Ok(DecodedJson { value, duplicates: reader.duplicates }),
        Err(ReadFailed) => Err(reader.error.unwrap_or_else(|| Error {
            message: "unexpected end of JSON input".to_owned(),
            offset: reader.at,
        })),
    }
}

/// The error is stored in the reader.
#[derive(Clone, Copy, Debug)]
struct ReadFailed;

/// The target of a decoded value. Values are not returned, because moving them would dominate the decoding time.
#[derive(Clone, Copy)]
enum ValueDestination {
    /// The value of the last key.
    Entry,
    /// The next item of the innermost array.
    Item,
}

struct JsonReader<'a> {
    bytes: &'a [u8],
    /// The input as text, if it is UTF-8; validated once, so that strings can be sliced from it.
    text: Option<&'a str>,
    at: usize,
    depth: usize,
    max_depth: usize,
    /// Entries of the objects that are still open, innermost last; the last entry waits for its value. A completed
    /// object drains its own entries, so that its vector is allocated once with the right capacity. `items` does the
    /// same for arrays.
    entries: Vec<(Str, Value)>,
    items: Vec<Value>,
    duplicates: Vec<String>,
    error: Option<Error>,
}

impl JsonReader<'_> {
    fn whole(&mut self) -> Result<Value, ReadFailed> {
        self.value(ValueDestination::Item)?;
        self.space();
        match self.peek() {
            None => Ok(self.items.pop().unwrap_or_default()),
            Some(_) => Err(self.invalid("after top-level value")),
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    #[cold]
    fn fail(&mut self, message: String, offset: usize) -> ReadFailed {
        self.error = Some(Error { message, offset });
        ReadFailed
    }

    /// Fails because of the byte (or the end) at the current offset.
    #[cold]
    fn invalid(&mut self, context: &str) -> ReadFailed {
        let message = match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(b'\'') => format!(r"invalid character '\'' {context}"),
            Some(b'"') => format!("invalid character '\"' {context}"),
            Some(b) => format!("invalid character {} {context}", quoted(b)),
        };
        self.fail(message, self.at)
    }

    #[inline]
    fn put(&mut self, value: Value, destination: ValueDestination) {
        match destination {
            ValueDestination::Item => self.items.push(value),
            ValueDestination::Entry => {
                if let Some(entry) = self.entries.last_mut() {
                    entry.1 = value;
                }
            }
        }
    }

    fn value(&mut self, destination: ValueDestination) -> Result<(), ReadFailed> {
        self.space();
        let value = match self.peek() {
            Some(b'"') => {
                if let Some(text) = self.plain_string() {
                    self.put(Value::String(Str::new(text)), destination);
                    return Ok(());
                }
                Value::String(self.string()?)
            }
            Some(b'{') => return self.object(destination),
            Some(b'[') => return self.array(destination),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true", Value::Bool(true))?,
            Some(b'f') => self.literal("false", Value::Bool(false))?,
            Some(b'n') => self.literal("null", Value::Null)?,
            _ => return Err(self.invalid("looking for beginning of value")),
        };
        self.put(value, destination);
        Ok(())
    }

    /// Consumes the bracket that opens an object or array.
    fn enter(&mut self) -> Result<(), ReadFailed> {
        if self.depth == self.max_depth {
            return Err(self.fail("exceeded max depth".to_owned(), self.at));
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        Ok(())
    }

    /// Consumes the bracket that closes an object or array.
    fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn object(&mut self, destination: ValueDestination) -> Result<(), ReadFailed> {
        self.enter()?;
        if self.peek() == Some(b'}') {
            self.leave();
            self.put(Value::Map(Map::new()), destination);
            return Ok(());
        }
        let first = self.entries.len();
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.invalid("looking for beginning of object key string"));
            }
            if let Some(text) = self.plain_string() {
                self.entries.push((Str::new(text), Value::Null));
            } else {
                let key = self.string()?;
                self.entries.push((key, Value::Null));
            }
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.invalid("after object key"));
            }
            self.at += 1;
            let known = self.duplicates.len();
            self.value(ValueDestination::Entry)?;
            if self.duplicates.len() > known
                && let Some((key, _)) = self.entries.last()
            {
                prefix(&mut self.duplicates, known, key);
            }
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
        self.leave();
        let entries = self.entries.split_off(first);
        let (map, repeated) = Map::from_entries(entries);
        if !repeated.is_empty() {
            let room = MAX_DUPLICATES.saturating_sub(self.duplicates.len());
            self.duplicates.extend(repeated.into_iter().take(room).map(|key| key.to_string()));
        }
        self.put(Value::Map(map), destination);
        Ok(())
    }

    fn array(&mut self, destination: ValueDestination) -> Result<(), ReadFailed> {
        self.enter()?;
        if self.peek() == Some(b']') {
            self.leave();
            self.put(Value::List(Vec::new()), destination);
            return Ok(());
        }
        let first = self.items.len();
        loop {
            let known = self.duplicates.len();
            self.value(ValueDestination::Item)?;
            if self.duplicates.len() > known {
                let index = self.items.len() - first - 1;
                prefix(&mut self.duplicates, known, &format!("[{index}]"));
            }
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.invalid("after array element")),
            }
        }
        self.leave();
        let mut items = self.items.split_off(first);
        items.shrink_to_fit();
        self.put(Value::List(items), destination);
        Ok(())
    }

    fn literal(&mut self, word: &'static str, value: Value) -> Result<Value, ReadFailed> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.invalid(&format!("in literal {word} (expecting {})", quoted(expected))));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn digits(&mut self, context: &str) -> Result<(), ReadFailed> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.invalid(context));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, ReadFailed> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        let first_digit = self.at;
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        let whole = first_digit..self.at;
        if let Some(b'.' | b'e' | b'E') = self.peek() {
            return self.float(start);
        }
        // Up to 18 digits cannot overflow.
        if whole.len() <= 18 {
            let digits = self.bytes.get(whole).unwrap_or_default();
            let magnitude = digits.iter().fold(0, |i, digit| i * 10 + i64::from(digit - b'0'));
            return Ok(Value::Int(if negative { -magnitude } else { magnitude }));
        }
        match self.utf8(start).parse() {
            Ok(i) => Ok(Value::Int(i)),
            Err(_) => self.float(start),
        }
    }

    /// Completes the number that began at `start`; its integer digits are consumed.
    fn float(&mut self, start: usize) -> Result<Value, ReadFailed> {
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = self.utf8(start);
        match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Value::Float(f)),
            _ => {
                let message = format!("json: cannot unmarshal number {text} into Go value of type float64");
                Err(self.fail(message, start))
            }
        }
    }
}

/// Prepends `part` to the paths of duplicates found inside a child.
fn prefix(duplicates: &mut [String], known: usize, part: &str) {
    for path in duplicates.iter_mut().skip(known) {
        let dot = if path.starts_with('[') { "" } else { "." };
        *path = format!("{part}{dot}{path}");
    }
}

/// Quotes a byte as Go's error messages do.
fn quoted(b: u8) -> String {
    match b {
        b'\'' => r"'\''".to_owned(),
        b'"' => r#"'"'"#.to_owned(),
        _ => format!("'{}'", go::quote(char::from(b).encode_utf8(&mut [0; 2])).trim_matches('"')),
    }
}
