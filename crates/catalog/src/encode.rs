//! Encodes objects to the bytes that are stored, and stored bytes to the bytes of responses.
//!
//! A stored body is JSON with `kind` and `apiVersion` first and all other fields sorted, a line feed at the end, and an empty
//! `metadata.resourceVersion` whose digits the store fills in. So a GET sends the body unchanged, a list item is the body without its
//! [`head`], and another version with the same fields only needs another head; the body is not parsed or encoded again.

use std::io;

use bytes::Bytes;
use storage::{Record, StoredEntry};
use value::{Value, write};

/// The first bytes of a body: `{"kind":"K","apiVersion":"V",`.
pub fn head(api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(b"{\"kind\":");
    write::string(&mut out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    write::string(&mut out, api_version);
    out.push(b',');
    out
}

/// The first bytes of a custom resource's body: Kubernetes writes its keys sorted, `apiVersion` before `kind`.
pub fn sorted_head(api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(b"{\"apiVersion\":");
    write::string(&mut out, api_version);
    out.extend_from_slice(b",\"kind\":");
    write::string(&mut out, kind);
    out.push(b',');
    out
}

/// Encodes an object whose kind has this head. The store fills in `metadata.resourceVersion`; a value in the object is ignored.
pub fn record(head: &[u8], object: &Value, facts: Vec<u8>) -> Record {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(head);
    let mut revision_at = 0;
    let mut first = true;
    for (key, item) in object.as_map().into_iter().flat_map(value::Map::iter) {
        if matches!(key.as_str(), "kind" | "apiVersion") {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        write::string(&mut out, key);
        out.push(b':');
        if key == "metadata" {
            revision_at = metadata(&mut out, item);
        } else {
            write::write(&mut out, item);
        }
    }
    out.extend_from_slice(b"}\n");
    Record {
        body: out.into(),
        revision_at: u32::try_from(revision_at).unwrap_or(u32::MAX),
        facts: facts.into(),
    }
}

/// Writes the metadata with an empty `resourceVersion` in sorted position and returns the offset for its digits.
fn metadata(out: &mut Vec<u8>, metadata: &Value) -> usize {
    let mut revision_at = None;
    let mut first = true;
    let mut revision = |out: &mut Vec<u8>, first: &mut bool| {
        if !std::mem::take(first) {
            out.push(b',');
        }
        out.extend_from_slice(b"\"resourceVersion\":\"");
        revision_at = Some(out.len());
        out.push(b'"');
    };
    let mut written = false;
    out.push(b'{');
    for (key, item) in metadata.as_map().into_iter().flat_map(value::Map::iter) {
        if key == "resourceVersion" {
            continue;
        }
        if !written && key.as_str() > "resourceVersion" {
            written = true;
            revision(out, &mut first);
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write::string(out, key);
        out.push(b':');
        write::write(out, item);
    }
    if !written {
        revision(out, &mut first);
    }
    out.push(b'}');
    revision_at.unwrap_or(out.len())
}

/// Replaces the head of a stored body, for another version with the same fields. `stored_head` is the length of the present head.
pub fn with_head(entry: &StoredEntry, stored_head: usize, head: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(entry.body.len() + head.len());
    out.extend_from_slice(head);
    out.extend_from_slice(entry.body.get(stored_head..).unwrap_or_default());
    out.into()
}

/// The body of an entry after its head, without the line feed: `…}`.
pub fn tail(entry: &StoredEntry, stored_head: usize) -> &[u8] {
    entry.body.get(stored_head..entry.body.len().saturating_sub(1)).unwrap_or_default()
}

/// A body that begins with this byte is no object: the value could not be decoded, and the rest of the body is the error. JSON never
/// begins with it.
const UNREADABLE: u8 = 0;

/// The record of a value that cannot be decoded. [`tree`] fails for it with `why`.
pub fn unreadable(why: &str) -> Record {
    let body = [&[UNREADABLE], why.as_bytes()].concat();
    Record {
        revision_at: u32::try_from(body.len()).unwrap_or(u32::MAX),
        body: body.into(),
        facts: Bytes::new(),
    }
}

/// Parses a stored body. Fails only for bytes that this server did not write.
pub fn tree(entry: &StoredEntry) -> Result<Value, api::Status> {
    if let Some((&UNREADABLE, _)) = entry.body.split_first() {
        let record = entry.record();
        return parse_body(&entry.key, &record.body);
    }
    parse_body(&entry.key, &entry.body)
}

/// Like [`tree`], for the body of a key's record.
pub fn parse_body(key: &str, body: &[u8]) -> Result<Value, api::Status> {
    let unreadable = |why: &dyn std::fmt::Display| {
        api::Status::internal(format!("the stored object at {key} cannot be read: {why}"))
    };
    if let Some((&UNREADABLE, why)) = body.split_first() {
        let why = String::from_utf8_lossy(why);
        let key = crate::keys::below_root(key);
        return Err(api::Status::internal(format!(
            "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        )));
    }
    let tree = value::json::parse_wrapped(body).map_err(|error| unreadable(&error))?;
    if tree.as_map().is_some() { Ok(tree) } else { Err(unreadable(&"it is not an object")) }
}

/// Indents compact JSON by two spaces a level, as Go's encoder does.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    // Writing to a vector does not fail.
    let _ = Indenter::default().write(compact, &mut out);
    out
}

/// Indents compact JSON that arrives in parts, as [`indent`] does. The result may be a hundred times as large as the input.
#[derive(Debug, Default)]
pub struct Indenter {
    level: usize,
    in_string: bool,
    escaped: bool,
    /// The last byte opened an object or an array, which is empty if the next one closes it.
    opened: bool,
}

impl Indenter {
    /// Writes the next part. It may end anywhere.
    pub fn write<W: io::Write>(&mut self, part: &[u8], out: &mut W) -> io::Result<()> {
        let mut rest = part;
        while let Some((&b, after)) = rest.split_first() {
            if self.in_string {
                rest = self.string(rest, out)?;
                continue;
            }
            rest = after;
            if std::mem::take(&mut self.opened) {
                if matches!(b, b'}' | b']') {
                    out.write_all(&[b])?;
                    continue;
                }
                self.level += 1;
                self.line(out)?;
            }
            match b {
                b'"' => {
                    out.write_all(&[b])?;
                    self.in_string = true;
                }
                b'{' | b'[' => {
                    out.write_all(&[b])?;
                    self.opened = true;
                }
                b'}' | b']' => {
                    self.level = self.level.saturating_sub(1);
                    self.line(out)?;
                    out.write_all(&[b])?;
                }
                b',' => {
                    out.write_all(&[b])?;
                    self.line(out)?;
                }
                b':' => out.write_all(b": ")?,
                b'\n' | b' ' | b'\r' | b'\t' => {}
                _ => out.write_all(&[b])?,
            }
        }
        Ok(())
    }

    /// Copies bytes of a string up to its end, and returns the rest.
    fn string<'p, W: io::Write>(&mut self, part: &'p [u8], out: &mut W) -> io::Result<&'p [u8]> {
        let mut length = 0;
        for b in part {
            length += 1;
            self.in_string = self.escaped || *b != b'"';
            self.escaped = !self.escaped && *b == b'\\';
            if !self.in_string {
                break;
            }
        }
        let (string, rest) = part.split_at_checked(length).unwrap_or((part, &[]));
        out.write_all(string)?;
        Ok(rest)
    }

    fn line<W: io::Write>(&self, out: &mut W) -> io::Result<()> {
        /// A line feed and the indentation of the deepest level of most objects.
        const LINE: &[u8] = b"\n                                                                ";
        let (line, more) = (LINE, (2 * self.level + 1).saturating_sub(LINE.len()));
        out.write_all(line.get(..2 * self.level + 1).unwrap_or(line))?;
        for _ in 0..more {
            out.write_all(b" ")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use value::json;

    use super::{Indenter, head, indent, record};

    #[test]
    fn kind_and_api_version_come_first_and_the_revision_is_located() {
        let object = json::parse(br#"{"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap","metadata":{"uid":"u","name":"n","resourceVersion":"7"}}"#).unwrap();
        let record = record(&head("v1", "ConfigMap"), &object, Vec::new());
        let body = std::str::from_utf8(&record.body).unwrap();
        assert_eq!(
            body,
            "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"a\":\"b\"},\"metadata\":{\"name\":\"n\",\"resourceVersion\":\"\",\"uid\":\"u\"}}\n"
        );
        let at = record.revision_at as usize;
        assert_eq!(body.get(at - 1..=at), Some("\"\""));
    }

    #[test]
    fn json_is_indented_as_go_does() {
        let text = indent(br#"{"a":[],"b":{"c":"x,{\"","d":[1,2]}}"#);
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            "{\n  \"a\": [],\n  \"b\": {\n    \"c\": \"x,{\\\"\",\n    \"d\": [\n      1,\n      2\n    ]\n  }\n}"
        );
    }

    #[test]
    fn json_in_parts_is_indented_as_the_whole() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        for text in [r#"{"a":[],"b":{"c":"x,{\"\\","d":[1,{},2]},"":{}}"#, &deep] {
            let whole = indent(text.as_bytes());
            for length in 1..text.len() {
                let (mut out, mut indenter) = (Vec::new(), Indenter::default());
                for part in text.as_bytes().chunks(length) {
                    indenter.write(part, &mut out).unwrap();
                }
                assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&whole), "{length}");
            }
        }
    }
}
