//! Extracts metadata from stored bytes without decoding the whole object.
//!
//! The garbage collector sees every write to the store, and most of them concern no owner. Scanning the bytes for the metadata is
//! many times cheaper than decoding the object.

use api::Status;
use storage::StoredEntry;
use value::{Value, json};

/// Decodes an object's metadata alone: `{"metadata": …}`.
pub(super) fn metadata(entry: &StoredEntry) -> Result<Value, Status> {
    let unreadable =
        || Status::internal(format!("the metadata of the stored object at {} cannot be read", entry.key));
    let bytes = member(&entry.body, b"\"metadata\"").ok_or_else(unreadable)?;
    let metadata = json::parse_wrapped(bytes).map_err(|_| unreadable())?;
    Ok(Value::map([("metadata", metadata)]))
}

/// Whether an object has owner references or is being deleted. May return `true` for other objects, for example if an annotation
/// contains such text.
pub(super) fn concerns_owners(entry: &StoredEntry) -> bool {
    // If the metadata cannot be located, let the caller decode the object and report the error.
    member(&entry.body, b"\"metadata\"").is_none_or(|bytes| {
        contains(bytes, b"\"ownerReferences\":") || contains(bytes, b"\"deletionTimestamp\":")
    })
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// The value of a member of a JSON object in the compact form objects are stored in. `name` includes its quotes.
fn member<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut at = 1;
    loop {
        let colon = end_of_text(object, at)?;
        let value = colon + 1;
        let end = end_of_value(object, value)?;
        if object.get(at..colon)? == name {
            return object.get(value..end);
        }
        if object.get(end) != Some(&b',') {
            return None;
        }
        at = end + 1;
    }
}

/// The end of the string whose opening quote is at `at`.
fn end_of_text(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The end of the value that starts at `at`.
fn end_of_value(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = at;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = end_of_text(bytes, at)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return Some(at + depth),
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests;
