//! Finds the offsets of fields in a JSON text. Go's decoder reports errors in the order of the text, while the tree
//! has its keys sorted.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Longer paths are not searched for: a text with many long keys would make that quadratic.
const MAX_PATH: usize = 512;

/// An object or array that is open at the current offset.
struct OpenContainer {
    /// Length of the path without the elements inside.
    base: usize,
    /// Current index, if this is an array.
    index: Option<usize>,
}

/// Offsets of the given paths (`spec.containers[0].name`) in valid JSON. A repeated key has the offset of its last
/// occurrence. A path that is not found has `usize::MAX`.
pub fn offsets(bytes: &[u8], paths: &[&str]) -> Vec<usize> {
    let mut found = vec![usize::MAX; paths.len()];
    let mut wanted: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, path) in paths.iter().enumerate().filter(|(_, path)| path.len() <= MAX_PATH) {
        wanted.entry(path).or_default().push(index);
    }
    let (mut path, mut open) = (String::new(), Vec::<OpenContainer>::new());
    let (mut at, mut is_key) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => {
                open.push(OpenContainer { base: path.len(), index: None });
                is_key = true;
            }
            b'[' => {
                open.push(OpenContainer { base: path.len(), index: Some(0) });
                path.push_str("[0]");
            }
            b'}' | b']' => {
                if let Some(OpenContainer { base, .. }) = open.pop() {
                    path.truncate(base);
                }
                is_key = false;
            }
            b',' => match open.last_mut() {
                Some(OpenContainer { base, index: Some(index) }) => {
                    *index += 1;
                    path.truncate(*base);
                    let _ = write!(path, "[{index}]");
                }
                Some(OpenContainer { base, index: None }) => {
                    path.truncate(*base);
                    is_key = true;
                }
                None => {}
            },
            b'"' => {
                let end = end_of_string(bytes, at);
                if is_key {
                    is_key = false;
                    if !path.is_empty() {
                        path.push('.');
                    }
                    let key = bytes.get(at..end).and_then(|text| super::parse(text).ok());
                    path.push_str(key.as_ref().and_then(|key| key.as_str()).unwrap_or_default());
                    let indices = if path.len() <= MAX_PATH { wanted.get(path.as_str()) } else { None };
                    for index in indices.into_iter().flatten() {
                        if let Some(offset) = found.get_mut(*index) {
                            *offset = at;
                        }
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The offset after the string that begins at `at`.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}
