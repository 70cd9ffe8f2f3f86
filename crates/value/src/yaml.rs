//! YAML as Kubernetes reads and writes it: YAML 1.1 scalars, turned into JSON the way `sigs.k8s.io/yaml` does.
//!
//! [`read`] and [`body`] are for request bodies; [`document`] and [`documents`] are for files, and know where each field
//! is. [`fn@write`] prints a tree the way `sigs.k8s.io/yaml` does.
//!
//! Bounds: nesting, length, number of nodes and what aliases may add are limited, so that no input costs more than a small
//! multiple of its size.

mod decode;
mod nodes;
mod problem;
mod resolve;
mod scan;
mod spans;
mod text;
mod write;

use std::fmt;

pub use spans::{FieldPosition, Spans};
pub use write::write;

use crate::{Value, json};

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Position {
    /// The beginning of a text.
    pub const START: Position = Position { line: 1, column: 1 };

    /// The position of a byte.
    fn at(bytes: &[u8], offset: usize) -> Self {
        let before = bytes.get(..offset).unwrap_or(bytes);
        let line = before.split(|b| *b == b'\n').next_back().unwrap_or_default();
        Position {
            line: before.split(|b| *b == b'\n').count(),
            column: 1 + String::from_utf8_lossy(line).chars().count(),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why bytes are not YAML that JSON can express, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong, in the words of `sigs.k8s.io/yaml` (without the `error converting YAML to JSON: ` that its typed
    /// readers put before it).
    pub message: String,
    /// Where. It may differ from the line in the message, which goyaml counts in its own way.
    pub position: Position,
}

impl Error {
    fn new(message: String, position: Position) -> Self {
        Error { message, position }
    }

    fn from_json(bytes: &[u8], error: json::Error) -> Self {
        Error { message: error.message, position: Position::at(bytes, error.offset) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A request body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct YamlBody {
    /// The tree.
    pub value: Value,
    /// Dotted paths of repeated keys (the last one won).
    pub duplicates: Vec<String>,
    /// The error with which Kubernetes' strict reader refuses repeated keys.
    pub strict: Option<String>,
}

/// A document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The tree; null if the document holds nothing but comments.
    pub value: Value,
    /// Dotted paths of repeated keys (the last one won).
    pub duplicates: Vec<String>,
    /// The error with which Kubernetes' strict reader refuses repeated keys. Of a JSON document there is none.
    pub strict: Option<String>,
    /// Where its fields are.
    pub spans: Spans,
    /// The line of the file on which it begins, from 1.
    pub line: usize,
}

/// Reads the first document of `bytes`, as a request body of `application/yaml` is read.
pub fn read(bytes: &[u8]) -> Result<json::DecodedJson, Error> {
    body(bytes).map(|body| json::DecodedJson { value: body.value, duplicates: body.duplicates })
}

/// Reads the first document of `bytes`, which has been put around something as deep as [`json::MAX_DEPTH`].
pub fn parse_wrapped(bytes: &[u8]) -> Result<Value, Error> {
    body_within(bytes, json::MAX_DEPTH_WRAPPED).map(|body| body.value)
}

/// As [`read`], with the words of the strict reader.
pub fn body(bytes: &[u8]) -> Result<YamlBody, Error> {
    body_within(bytes, json::MAX_DEPTH)
}

fn body_within(bytes: &[u8], deepest: usize) -> Result<YamlBody, Error> {
    let text = text::of(bytes)?;
    let Some(nodes) = nodes::first(&text, deepest)? else {
        return Ok(YamlBody::default());
    };
    let decoded = decode::document(&nodes, deepest)?;
    Ok(YamlBody { value: decoded.value, duplicates: decoded.duplicates, strict: decoded.strict })
}

/// Reads the first document of a file. A file that begins with a brace is JSON.
pub fn document(bytes: &[u8]) -> Result<Document, Error> {
    if is_json(bytes) {
        return json_document(bytes);
    }
    let text = text::of(bytes)?;
    let Some(nodes) = nodes::first(&text, json::MAX_DEPTH)? else {
        return Ok(Document {
            value: Value::Null,
            duplicates: Vec::new(),
            strict: None,
            spans: Spans::at(Position::START),
            line: 1,
        });
    };
    let decoded = decode::document(&nodes, json::MAX_DEPTH)?;
    Ok(Document {
        value: decoded.value,
        duplicates: decoded.duplicates,
        strict: decoded.strict,
        spans: spans::of(&nodes),
        line: 1,
    })
}

/// Reads all documents of a file, which lines that begin with `---` separate. Blank ones are left out; one that holds only
/// comments is null.
pub fn documents(bytes: &[u8]) -> Result<Vec<Document>, Error> {
    split(bytes)?.into_iter().map(RawDocument::read).collect()
}

/// The text of one document of a file.
#[derive(Clone, Copy, Debug)]
pub struct RawDocument<'a> {
    bytes: &'a [u8],
    /// The line of the file on which it begins, from 1.
    line: usize,
}

impl<'a> RawDocument<'a> {
    /// The text, without the space around it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes.trim_ascii()
    }

    /// Reads the document. Positions are those in the file.
    pub fn read(self) -> Result<Document, Error> {
        let mut document = document(self.bytes).map_err(|mut error| {
            error.position.line += self.line - 1;
            error
        })?;
        document.line = self.line;
        document.spans.shift(self.line - 1);
        Ok(document)
    }
}

/// The documents of a file, unread, so that one that cannot be read does not hide the others. Blank ones are left out.
pub fn split(bytes: &[u8]) -> Result<Vec<RawDocument<'_>>, Error> {
    let mut split_parts = split_parts(bytes)?;
    split_parts.retain(|part| !part.bytes.trim_ascii().is_empty());
    Ok(split_parts)
}

/// Splits a file at the lines that begin with `---`. Only a comment may follow on such a line. A part keeps the line that
/// opens it, unless that line ended the part before.
fn split_parts(bytes: &[u8]) -> Result<Vec<RawDocument<'_>>, Error> {
    let mut split_parts = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (index, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let end = at + line.len();
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = rest.trim_ascii();
            if !rest.is_empty() && !rest.starts_with(b"#") {
                let message = format!("invalid Yaml document separator: {}", String::from_utf8_lossy(rest));
                return Err(Error::new(message, Position { line: index + 1, column: 1 }));
            }
            if at > start {
                split_parts
                    .push(RawDocument { bytes: bytes.get(start..at).unwrap_or_default(), line: start_line });
                (start, start_line) = (end, index + 2);
            }
        }
        at = end;
    }
    if at > start {
        split_parts.push(RawDocument { bytes: bytes.get(start..at).unwrap_or_default(), line: start_line });
    }
    Ok(split_parts)
}

fn is_json(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{")
}

/// JSON is read by the JSON reader. The places of its fields are those the YAML reader sees; it sees all but some escapes.
fn json_document(bytes: &[u8]) -> Result<Document, Error> {
    let read = json::read(bytes).map_err(|error| Error::from_json(bytes, error))?;
    let text = String::from_utf8_lossy(bytes);
    let spans = json_spans(&text).unwrap_or_else(|| Spans::at(Position::START));
    Ok(Document { value: read.value, duplicates: read.duplicates, strict: None, spans, line: 1 })
}

fn json_spans(text: &str) -> Option<Spans> {
    let nodes = nodes::first(text, json::MAX_DEPTH).ok()??;
    Some(spans::of(&nodes))
}

#[cfg(test)]
mod tests;
