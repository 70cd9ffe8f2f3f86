//! JSON Merge Patch (RFC 7386) as implemented by kube-apiserver's library, which also drops null fields of objects inside new lists.

use value::Value;

use super::edited::Edited;

/// Merges `patch` into `current`. Null and scalars are not valid patches; a list replaces the whole object, which then fails to decode.
pub fn apply(current: Value, patch: Value) -> Result<Value, String> {
    match (current, patch) {
        (mut current @ Value::Map(_), patch @ Value::Map(_)) => {
            merge(&mut current, patch);
            Ok(current)
        }
        (_, mut patch @ (Value::Map(_) | Value::List(_))) => {
            prune(&mut patch);
            Ok(patch)
        }
        _ => Err("Invalid JSON Patch".to_owned()),
    }
}

fn merge(current: &mut Value, mut patch: Value) {
    match (current, patch) {
        (Value::Map(current), Value::Map(patch)) => {
            let mut edited = Edited::of(std::mem::take(current));
            for (key, mut value) in patch {
                if value.is_null() {
                    edited.remove(key);
                    continue;
                }
                match edited.get_mut(&key) {
                    Some(old) if !old.is_null() => merge(old, value),
                    _ => {
                        prune(&mut value);
                        edited.insert(key, value);
                    }
                }
            }
            *current = edited.finish();
        }
        // The library preserves nulls in a value that replaces an object.
        (current @ Value::Map(_), other) => *current = other,
        (current, other) => {
            patch = other;
            prune(&mut patch);
            *current = patch;
        }
    }
}

/// Drops null fields at every depth.
fn prune(value: &mut Value) {
    match value {
        Value::Map(map) => map.retain(|_, item| {
            prune(item);
            !item.is_null()
        }),
        Value::List(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}
