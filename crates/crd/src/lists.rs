//! Rejects duplicates in lists of type `set` and `map`.

use std::collections::HashMap;

use api::FieldErrors;
use api::validation::fields::{At, Report};
use value::{Map, Value, write};

use super::node::SchemaNode;
use super::validation_result::is_full;

/// Reports duplicates in all sets and keyed lists of a value.
pub(super) fn check(value: &Value, node: &SchemaNode, at: &At<'_>, errors: &mut FieldErrors) {
    match value {
        Value::Map(map) => {
            if let Some(values) = node.values() {
                for (key, value) in map.iter() {
                    check(value, values, &at.key(key), errors);
                }
            }
            for (key, value) in map.iter() {
                if let Some(property) = node.property(key) {
                    check(value, property, &at.field(key), errors);
                }
            }
        }
        Value::List(items) => {
            match node.list_type.as_deref() {
                Some("set") => set(items, items, at, errors),
                Some("map") => keyed(items, node, at, errors),
                _ => {}
            }
            if let Some(below) = node.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    check(item, below, &at.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Reports the second occurrence of each value. `shown` has the values to print in errors, in the same order.
fn set(values: &[Value], shown: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(values.len());
    for (index, (value, shown)) in values.iter().zip(shown).enumerate() {
        let times = seen.entry(identity(value)).or_default();
        *times += 1;
        if *times == 2 {
            if is_full(errors) {
                return;
            }
            errors.duplicate(&at.index(index), shown.clone());
        }
    }
}

/// Two values are equal if their JSON and their types are: 1 and 1.0 differ, as they do in Go.
fn identity(value: &Value) -> String {
    let tag = match value {
        Value::Float(_) => "f",
        _ => "",
    };
    format!("{tag}{}", write::to_string(value))
}

fn keyed(items: &[Value], node: &SchemaNode, at: &At<'_>, errors: &mut FieldErrors) {
    for (index, item) in items.iter().enumerate() {
        if !matches!(item, Value::Map(_) | Value::Null) {
            let detail = "must be an object for an array of list-type map";
            errors.invalid(&at.index(index), item.clone(), detail);
            return;
        }
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let mut keys = Map::new();
            for key in &node.list_map_keys {
                if let Some(value) = item.get(key) {
                    keys.insert(key.clone(), value.clone());
                }
            }
            Value::Map(keys)
        })
        .collect();
    set(&keys, &keys, at, errors);
}
