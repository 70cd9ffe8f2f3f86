//! Where fields stand in a JSON text: Go's decoder complains in the order of the text, and the tree keeps its keys sorted.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Longer paths than this are not looked for: a text that repeats one at every key would make that costly.
const MAX_PATH: usize = 512;

/// A map or a list that has been opened.
struct OpenContainer {
    /// How long the path is without what is inside.
    base: usize,
    /// The index in a list.
    index: Option<usize>,
}

/// The offset of each of these paths (`spec.containers[0].name`) in a text that has been read before: of its last occurrence,
/// which is the one that repeats a key. What is not found comes last.
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

/// The offset behind the string that begins at `at`.
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
