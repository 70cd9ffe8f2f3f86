//! Go's representation of the values in an apply configuration, and the type errors of its merge library.

use std::fmt::Write as _;

use cel::{CelTimestamp, Val};
use schema::{Schema, StringEncoding, ValueType};
use value::Value;

/// The configuration as a tree; `None` if a map has a key that is not a string.
pub(super) fn tree(config: &Val<'_>) -> Option<Value> {
    if has_non_string_keys(config) { None } else { config.to_value().ok() }
}

fn has_non_string_keys(val: &Val<'_>) -> bool {
    match val {
        Val::Object(object) => object.fields.iter().any(|(_, val)| has_non_string_keys(val)),
        Val::List(list) => list.iter().any(|val| has_non_string_keys(&val)),
        Val::Map(map) => map.iter().any(|(key, val)| key.as_str().is_none() || has_non_string_keys(&val)),
        _ => false,
    }
}

/// The first value without a JSON equivalent, for example `.spec.replicas: expected numeric (int or float),
/// got uint64`. Must run before conversion to a tree, which would lose the type. CEL's null is among these
/// values: it is a number in Go.
pub(super) fn first_type_mismatch(val: &Val<'_>, schema: &Schema, path: &mut String) -> Option<String> {
    let mut below = |name: &str, val: &Val<'_>, schema: &Schema| {
        let length = path.len();
        path.push('.');
        path.push_str(name);
        let found = first_type_mismatch(val, schema, path);
        path.truncate(length);
        found
    };
    match (val, &schema.value_type) {
        (Val::Object(object), _) => object.fields.iter().find_map(|(name, val)| {
            let schema = schema.field(name).or_else(|| map_values(schema))?;
            below(name, val, schema)
        }),
        (Val::Map(map), _) => map.iter().find_map(|(key, val)| {
            let key = key.as_str()?.to_owned();
            let schema = schema.field(&key).or_else(|| map_values(schema))?;
            below(&key, &val, schema)
        }),
        (Val::List(list), ValueType::List(of)) => list.iter().enumerate().find_map(|(at, item)| {
            let length = path.len();
            let _ = write!(path, "[{at}]");
            let found = first_type_mismatch(&item, of.items.get(), path);
            path.truncate(length);
            found
        }),
        (Val::Null | Val::Uint(_) | Val::Bytes(_) | Val::Duration(_) | Val::Timestamp(_), kind) => {
            let (expected, got) = match kind {
                ValueType::Int32 | ValueType::Int64 | ValueType::Float => {
                    ("numeric (int or float)", go_type(val).to_owned())
                }
                ValueType::String(StringEncoding::Plain | StringEncoding::Bytes) => {
                    ("string", format!("&value.valueUnstructured{{Value:{}}}", go_syntax(val)))
                }
                ValueType::Bool => ("boolean", format!("&{{{}}}", go_value(val))),
                ValueType::String(_) => ("any scalar", format!("&{{{}}}", go_value(val))),
                ValueType::Object(_) | ValueType::Map(_) => ("map", format!("&{{{}}}", go_value(val))),
                ValueType::List(_) => ("list", format!("&{{{}}}", go_value(val))),
                ValueType::Any | ValueType::SchemaOr(_) => return None,
            };
            Some(format!("{path}: expected {expected}, got {got}"))
        }
        _ => None,
    }
}

fn map_values(schema: &Schema) -> Option<&Schema> {
    match &schema.value_type {
        ValueType::Map(map) => Some(map.values.get()),
        _ => None,
    }
}

/// Formats a value's type like Go's `%T`.
fn go_type(val: &Val<'_>) -> &'static str {
    match val {
        Val::Null => "structpb.NullValue",
        Val::Uint(_) => "uint64",
        Val::Bytes(_) => "[]uint8",
        Val::Duration(_) => "time.Duration",
        _ => "time.Time",
    }
}

/// Formats a value like Go's `%v`.
fn go_value(val: &Val<'_>) -> String {
    match val {
        Val::Null => "NULL_VALUE".to_owned(),
        Val::Uint(number) => number.to_string(),
        Val::Bytes(bytes) => {
            let numbers: Vec<String> = bytes.iter().map(ToString::to_string).collect();
            format!("[{}]", numbers.join(" "))
        }
        Val::Timestamp(time) => go_time(time),
        other => {
            other.to_value().ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        }
    }
}

/// Formats a value like Go's `%#v`.
fn go_syntax(val: &Val<'_>) -> String {
    match val {
        Val::Null => "0".to_owned(),
        Val::Uint(number) => format!("{number:#x}"),
        Val::Bytes(bytes) => {
            let numbers: Vec<String> = bytes.iter().map(|byte| format!("{byte:#x}")).collect();
            format!("[]uint8{{{}}}", numbers.join(", "))
        }
        Val::Duration(nanos) => nanos.to_string(),
        other => go_value(other),
    }
}

/// Formats a time like Go: `2020-01-01 00:00:00 +0000 UTC`.
fn go_time(time: &CelTimestamp) -> String {
    let text = Val::Timestamp(*time).to_value().ok();
    let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
    format!("{} +0000 UTC", text.replace('T', " ").trim_end_matches('Z'))
}
