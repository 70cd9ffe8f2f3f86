//! Reads OpenAPI schemas into [`CelSchema`].

use std::collections::BTreeMap;
use std::sync::Arc;

use value::{Str, Value};

use super::{CelSchema, ListKind, SchemaKind, SchemaProperty, StringFormat, escape};

/// Kubernetes' request size limit. It bounds lists, maps and strings that the schema leaves unbounded.
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;
/// Nesting depth at which reading a schema stops.
const MAX_DEPTH: usize = 200;

/// Reads a schema; `None` if expressions cannot access the value (for example, preserved unknown fields).
pub(super) fn read(schema: &Value, type_name: &str, root: bool, depth: usize) -> Option<CelSchema> {
    if depth > MAX_DEPTH {
        return None;
    }
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
    let count = |name: &str| schema.get(name).and_then(Value::as_int).map(|n| u64::try_from(n).unwrap_or(0));
    let simple = |kind: SchemaKind, max_elements: u64, min_serialized: u64| {
        Some(CelSchema { kind, max_elements, min_serialized })
    };
    if flag("x-kubernetes-int-or-string") {
        let most = count("maxLength").map_or(MAX_REQUEST_BYTES - 2, |length| length.saturating_mul(4));
        return simple(SchemaKind::Dyn, most, 1);
    }
    match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
        "array" => {
            let items = schema.get("items")?;
            let items = read(items, &format!("{type_name}.@idx"), is_embedded(items), depth + 1)?;
            let most = count("maxItems").unwrap_or((MAX_REQUEST_BYTES - 2) / (items.min_serialized + 1));
            let keys = || {
                let keys = schema.list_at(&["x-kubernetes-list-map-keys"]);
                keys.iter().filter_map(Value::as_str).map(Str::from).collect()
            };
            let kind = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => ListKind::Set,
                Some("map") => ListKind::Map(keys()),
                _ => ListKind::Atomic,
            };
            simple(SchemaKind::List { items: Arc::new(items), kind }, most, 2)
        }
        "object" => {
            if let Some(values @ Value::Map(_)) = schema.get("additionalProperties") {
                let values = read(values, &format!("{type_name}.@elem"), is_embedded(values), depth + 1)?;
                let most =
                    count("maxProperties").unwrap_or((MAX_REQUEST_BYTES - 2) / (values.min_serialized + 6));
                return simple(SchemaKind::Map(Arc::new(values)), most, 2);
            }
            Some(object(schema, type_name, root, depth))
        }
        "string" => {
            let length = count("maxLength");
            match schema.get("format").and_then(Value::as_str) {
                Some("byte") => {
                    simple(SchemaKind::String(StringFormat::Byte), length.unwrap_or(MAX_REQUEST_BYTES - 2), 2)
                }
                Some("duration") => simple(SchemaKind::String(StringFormat::Duration), 32, 3),
                Some("date") => simple(SchemaKind::String(StringFormat::Date), 12, 12),
                Some("date-time") => simple(SchemaKind::String(StringFormat::DateTime), 32, 21),
                _ => {
                    let values = schema.list_at(&["enum"]);
                    let longest = || {
                        let lengths = values.iter().filter_map(Value::as_str).map(|value| value.len() as u64);
                        lengths.max().unwrap_or(0)
                    };
                    let most = match length {
                        Some(length) => length.saturating_mul(4),
                        None if values.is_empty() => MAX_REQUEST_BYTES - 2,
                        None => longest(),
                    };
                    simple(SchemaKind::String(StringFormat::Plain), most, 2)
                }
            }
        }
        "boolean" => simple(SchemaKind::Bool, 0, 4),
        "number" => simple(SchemaKind::Number, 0, 1),
        "integer" => simple(SchemaKind::Int, 0, 1),
        _ => None,
    }
}

fn is_embedded(schema: &Value) -> bool {
    schema.get("x-kubernetes-embedded-resource").and_then(Value::as_bool) == Some(true)
}

fn object(schema: &Value, type_name: &str, root: bool, depth: usize) -> CelSchema {
    let required: Vec<&str> = schema.list_at(&["required"]).iter().filter_map(Value::as_str).collect();
    let mut declared: Vec<(Str, Value)> = Vec::new();
    if let Some(Value::Map(properties)) = schema.get("properties") {
        declared.extend(properties.iter().map(|(name, property)| (name.clone(), property.clone())));
    }
    if root {
        with_object_meta(&mut declared);
    }
    // An object serializes to at least its two braces.
    let mut min_serialized = 2;
    let mut properties = BTreeMap::new();
    for (name, property) in &declared {
        // Nested types are named by the escaped names of their properties.
        let escaped = escape(name);
        let inner = format!("{type_name}.{}", escaped.as_deref().unwrap_or(name));
        let Some(read) = read(property, &inner, is_embedded(property), depth + 1) else { continue };
        if required.contains(&name.as_str()) && property.get("default").is_none() {
            min_serialized += name.len() as u64 + read.min_serialized + 4;
        }
        if let Some(escaped) = escaped {
            properties.insert(escaped, SchemaProperty { name: name.clone(), schema: Arc::new(read) });
        }
    }
    let kind = SchemaKind::Object { type_name: type_name.into(), properties };
    CelSchema { kind, max_elements: 0, min_serialized }
}

/// Declares `kind`, `apiVersion` and `metadata.name`/`generateName`, which every resource has whether or not its
/// schema says so.
fn with_object_meta(declared: &mut Vec<(Str, Value)>) {
    let string = || Value::map([("type", "string")]);
    let is = |name: &str, wanted: &str, declared: &[(Str, Value)]| {
        declared.iter().any(|(declared, schema)| {
            declared == name && schema.get("type").and_then(Value::as_str) == Some(wanted)
        })
    };
    let named = declared.iter().any(|(name, schema)| {
        name == "metadata"
            && schema.at(&["properties", "name"]).is_some()
            && schema.at(&["properties", "generateName"]).is_some()
    });
    if is("kind", "string", declared) && is("apiVersion", "string", declared) && named {
        return;
    }
    declared.retain(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
    declared.push(("kind".into(), string()));
    declared.push(("apiVersion".into(), string()));
    let inner = Value::map([("name", string()), ("generateName", string())]);
    let metadata = Value::map([("type", Value::from("object")), ("properties", inner)]);
    declared.push(("metadata".into(), metadata));
}
