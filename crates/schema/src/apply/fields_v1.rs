//! `FieldsV1`: the encoding of a field set in `metadata.managedFields`.
//!
//! Each level is an object with keys `f:NAME`, `k:{"KEY":VALUE,…}`, `v:VALUE` or `i:POSITION`. The key `.` means that the path to this
//! level is itself in the set. An empty object means that the path is in the set and nothing below it is.

use value::{Map, Str, Value, json, write};

use super::element::Element;
use super::set::{FieldSet, FieldSetEntry};

/// Returns an error message if the encoding is invalid.
pub fn decode(fields: &Value) -> Result<FieldSet, String> {
    match fields {
        Value::Null => Ok(FieldSet::EMPTY),
        Value::Map(map) => level(map).map(|(set, _)| set),
        other => Err(format!("ReadMapCB: expect {{ or n, but found {}", other.json_type())),
    }
}

/// Decodes one level: the set below it, and whether the path to this level is in the set.
fn level(map: &Map) -> Result<(FieldSet, bool), String> {
    let mut entries = Vec::with_capacity(map.len());
    let mut owned = false;
    for (key, value) in map.iter() {
        if key == "." {
            owned = true;
            continue;
        }
        // Unknown kinds of keys, which later versions may add, are dropped.
        let Some(element) = element(key)? else { continue };
        let (below, ends) = match value {
            Value::Map(map) => level(map)?,
            Value::Null => (FieldSet::EMPTY, true),
            other => return Err(format!("ReadMapCB: expect {{ or n, but found {}", other.json_type())),
        };
        entries.push(FieldSetEntry { element, owned: ends, below });
    }
    // The keys are sorted as text, which differs from the order of elements: `v:10` comes before `v:2`.
    let set = FieldSet::of_entries(entries);
    let ends = owned || set.is_empty();
    Ok((set, ends))
}

fn element(key: &str) -> Result<Option<Element>, String> {
    let Some((kind, content)) = key.split_at_checked(2) else {
        return Err("parsing key as path element: key must be 2 characters long:".to_owned());
    };
    let json = || json::parse(content.as_bytes()).map_err(|e| format!("parsing key as path element: {e}"));
    Ok(Some(match kind {
        "f:" => Element::Field(content.into()),
        "v:" => Element::Value(json()?),
        "k:" => match json()? {
            Value::Map(map) => Element::Key(map.into_iter().collect()),
            other => {
                return Err(format!(
                    "parsing key as path element: expected an object, but found {}",
                    other.json_type()
                ));
            }
        },
        "i:" => Element::Index(content.parse().map_err(|e| format!("parsing key as path element: {e}"))?),
        _ if kind.ends_with(':') => return Ok(None),
        _ => return Err(format!("parsing key as path element: missing colon: {key}")),
    }))
}

pub fn encode(set: &FieldSet) -> Value {
    Value::Map(object(set, false))
}

fn object(set: &FieldSet, owned: bool) -> Map {
    let own = (owned && !set.is_empty()).then(|| (Str::new_static("."), Value::Map(Map::new())));
    let entries = set
        .entries()
        .iter()
        .map(|FieldSetEntry { element, owned, below }| (key(element), Value::Map(object(below, *owned))));
    own.into_iter().chain(entries).collect()
}

fn key(element: &Element) -> Str {
    match element {
        Element::Field(name) => value::format_smolstr!("f:{name}"),
        Element::Key(fields) => {
            let mut out = b"k:{".to_vec();
            for (i, (name, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write::string(&mut out, name);
                out.push(b':');
                write::write(&mut out, value);
            }
            out.push(b'}');
            String::from_utf8(out).unwrap_or_default().into()
        }
        Element::Value(value) => value::format_smolstr!("v:{}", write::to_string(value)),
        Element::Index(at) => value::format_smolstr!("i:{at}"),
    }
}
