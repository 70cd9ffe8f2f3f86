//! The objects of requests and responses, as events contain them.

use value::{Value, write};

/// Encodes an object for the event, without managed fields if the policy omits them.
pub(crate) fn encode(object: &Value, omit_managed_fields: bool) -> Vec<u8> {
    if !omit_managed_fields {
        return compact(object);
    }
    let mut object = object.clone();
    object.remove_at(&["metadata", "managedFields"]);
    for (list, inside) in [("items", None), ("rows", Some("object"))] {
        let Some(Value::List(items)) = object.as_map_mut().and_then(|map| map.get_mut(list)) else {
            continue;
        };
        for item in items {
            match inside {
                None => item.remove_at(&["metadata", "managedFields"]),
                Some(inside) => item.remove_at(&[inside, "metadata", "managedFields"]),
            };
        }
    }
    compact(&object)
}

/// Encodes an object on one line, with `kind` and `apiVersion` first.
fn compact(object: &Value) -> Vec<u8> {
    let mut out = vec![b'{'];
    let mut field = |key: &str, value: &Value| {
        if out.len() > 1 {
            out.push(b',');
        }
        write::string(&mut out, key);
        out.push(b':');
        write::write(&mut out, value);
    };
    for key in ["kind", "apiVersion"] {
        if let Some(value) = object.get(key) {
            field(key, value);
        }
    }
    for (key, value) in object.as_map().into_iter().flat_map(value::Map::iter) {
        if !matches!(key.as_str(), "apiVersion" | "kind") {
            field(key, value);
        }
    }
    out.push(b'}');
    out
}
