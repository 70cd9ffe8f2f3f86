//! YAML as Kubernetes reads and writes it: YAML 1.1 scalars, converted to JSON as `sigs.k8s.io/yaml` does.
//!
//! [`read`] and [`body`] are for request bodies; [`document`] and [`documents`] are for files, and keep the positions
//! of fields. [`fn@write`] prints a tree as `sigs.k8s.io/yaml` does.
//!
//! Nesting, length, number of nodes and the expansion of aliases are limited, so that no input costs more than a
//! small multiple of its size.

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
pub use write::{write, write_to};

use crate::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Position {
    /// The first character of a text.
    pub const START: Position = Position { line: 1, column: 1 };

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

/// A YAML error, or YAML that JSON cannot express, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The message of `sigs.k8s.io/yaml`, without the prefix `error converting YAML to JSON: ` of its typed readers.
    pub message: String,
    /// Position of the error. It may differ from the line in the message, which goyaml counts in its own way.
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

/// A decoded request body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct YamlBody {
    /// The decoded value of the body.
    pub value: Value,
    /// Dotted paths of repeated keys (the last one won).
    pub duplicates: Vec<String>,
    /// Error of Kubernetes' strict reader if keys are repeated.
    pub strict: Option<String>,
}

/// A decoded document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The decoded value; null if the document has only comments.
    pub value: Value,
    /// Dotted paths of repeated keys (the last one won).
    pub duplicates: Vec<String>,
    /// Error of Kubernetes' strict reader if keys are repeated; always `None` for JSON documents.
    pub strict: Option<String>,
    /// Source positions of its fields.
    pub spans: Spans,
    /// Line of the file on which the document begins, from 1.
    pub line: usize,
}

/// Reads the first document, as a request body of type `application/yaml` is read.
pub fn read(bytes: &[u8]) -> Result<json::DecodedJson, Error> {
    body(bytes).map(|body| json::DecodedJson { value: body.value, duplicates: body.duplicates })
}

/// Like [`read`], for a wrapper around a value as deep as [`json::MAX_DEPTH`].
pub fn parse_wrapped(bytes: &[u8]) -> Result<Value, Error> {
    body_within(bytes, json::MAX_DEPTH_WRAPPED).map(|body| body.value)
}

/// Like [`read`], with the strict reader's error.
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

/// Reads all documents of a file, separated by lines that begin with `---`. Blank documents are left out; one with
/// only comments is null.
pub fn documents(bytes: &[u8]) -> Result<Vec<Document>, Error> {
    split(bytes)?.into_iter().map(RawDocument::read).collect()
}

/// The text of one document of a file.
#[derive(Clone, Copy, Debug)]
pub struct RawDocument<'a> {
    bytes: &'a [u8],
    /// Line of the file on which it begins, from 1.
    line: usize,
}

impl<'a> RawDocument<'a> {
    /// The text without surrounding white space.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes.trim_ascii()
    }

    /// Reads the document. Positions are relative to the file.
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

/// Splits a file into documents without reading them, so that an invalid one does not hide the others. Blank
/// documents are left out.
pub fn split(bytes: &[u8]) -> Result<Vec<RawDocument<'_>>, Error> {
    let mut split_parts = split_parts(bytes)?;
    split_parts.retain(|part| !part.bytes.trim_ascii().is_empty());
    Ok(split_parts)
}

/// Splits a file at lines that begin with `---`; only a comment may follow on such a line. A document keeps its
/// opening line, unless that line ends the previous document.
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

/// Reads a JSON document. Field positions come from the YAML reader, which accepts all JSON except for some escapes.
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
