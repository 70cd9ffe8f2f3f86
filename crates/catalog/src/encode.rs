//! Encodes objects to the bytes that are stored, and stored bytes to the bytes of responses.
//!
//! A stored body is JSON with `kind` and `apiVersion` first and all other fields sorted, a line feed at the end, and an empty
//! `metadata.resourceVersion` whose digits the store fills in. So a GET sends the body unchanged, a list item is the body without its
//! [`head`], and another version with the same fields only needs another head; the body is not parsed or encoded again.

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

/// First byte of a body that stands for a value that could not be decoded; the rest says why.
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
    let mut level = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut bytes = compact.iter().copied().peekable();
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * level, b' ');
    };
    while let Some(b) = bytes.next() {
        if in_string {
            out.push(b);
            in_string = escaped || b != b'"';
            escaped = !escaped && b == b'\\';
            continue;
        }
        match b {
            b'"' => {
                in_string = true;
                out.push(b);
            }
            b'{' | b'[' => {
                out.push(b);
                if let Some(close @ (b'}' | b']')) = bytes.peek().copied() {
                    bytes.next();
                    out.push(close);
                } else {
                    level += 1;
                    line(&mut out, level);
                }
            }
            b'}' | b']' => {
                level = level.saturating_sub(1);
                line(&mut out, level);
                out.push(b);
            }
            b',' => {
                out.push(b);
                line(&mut out, level);
            }
            b':' => out.extend_from_slice(b": "),
            b'\n' | b' ' | b'\r' | b'\t' => {}
            _ => out.push(b),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use value::json;

    use super::{head, indent, record};

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
}
