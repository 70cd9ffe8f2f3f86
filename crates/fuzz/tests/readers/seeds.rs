//! Seeds: valid input from files of the repository.

use std::fs;
use std::path::PathBuf;

use value::{Value, write};

/// The absolute path of a file or folder below `crates/`.
fn crates(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

/// The content of a file below `crates/`.
pub(crate) fn file(path: &str) -> Vec<u8> {
    fs::read(crates(path)).unwrap()
}

/// All request scripts of `conformance`, parsed.
fn scripts() -> Vec<Value> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(crates("conformance/scripts")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    assert!(paths.len() > 20, "{paths:?}");
    paths.iter().map(|path| value::yaml::read(&fs::read(path).unwrap()).unwrap().value).collect()
}

/// Collects every value that is below a key of this name.
fn collect(tree: &Value, key: &str, found: &mut Vec<Value>) {
    match tree {
        Value::Map(map) => {
            for (name, value) in map.iter() {
                if name == key {
                    found.push(value.clone());
                }
                collect(value, key, found);
            }
        }
        Value::List(list) => list.iter().for_each(|value| collect(value, key, found)),
        _ => {}
    }
}

/// The request bodies of the scripts, shortest first, so that a failure shows a short one.
pub(crate) fn bodies() -> Vec<Value> {
    let mut found = Vec::new();
    for script in scripts() {
        collect(&script, "body", &mut found);
    }
    found.retain(|body| matches!(body, Value::Map(_) | Value::List(_)));
    let length = |body: &Value| write::to_vec(body).len();
    found.retain(|body| length(body) < 8192);
    found.sort_by_key(length);
    assert!(found.len() > 500, "only {} bodies", found.len());
    found
}

/// The example expressions of the CEL specification pages.
pub(crate) fn expressions() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(crates("cel/spec")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| line.split_once("  // "))
            .map(|(expression, _)| expression.to_owned());
        found.extend(lines);
    }
    found.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    assert!(found.len() > 500, "only {} expressions", found.len());
    found
}
