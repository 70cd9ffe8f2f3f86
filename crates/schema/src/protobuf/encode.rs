//! Encodes an object as `application/vnd.kubernetes.protobuf`, byte for byte like Kubernetes' generated encoders.
//!
//! They write the fields in the order of their numbers, maps sorted by key, and every field that is not a pointer even if it has its zero
//! value; lists, maps and byte slices have no field if they are empty or nil.

use api::gvk::GroupVersionKind;
use api::time::{GO_ZERO_SECONDS, Timestamp};
use value::{Map, Value, go, write};

use super::MAGIC;
use super::layout::{self, Layout, MessageField, ProtobufScalar, ProtobufType, Special};
use super::special::{INT_KIND, STRING_KIND, schema_number};
use super::write::{bytes, double, int, nested};
use crate::SchemaOr;

/// Encodes an object of a built-in kind. The fields of `object` must be normalized ([`crate::decode::normalize`]).
///
/// # Errors
/// The kind has no protobuf encoding, or a value does not have the type of its field; the text names the field.
pub fn encode(gvk: &GroupVersionKind, object: &Value) -> Result<Vec<u8>, String> {
    encode_as(gvk, gvk, object)
}

/// Like [`encode`], for an object in the version `gvk` that is to be labeled with another version, whose messages have the same layout.
///
/// # Errors
/// As for [`encode`].
pub fn encode_as(
    label: &GroupVersionKind,
    gvk: &GroupVersionKind,
    object: &Value,
) -> Result<Vec<u8>, String> {
    let layout = crate::of(&gvk.group, &gvk.version, &gvk.kind).and_then(layout::of);
    let layout = layout.ok_or_else(|| format!("{gvk} has no protobuf encoding"))?;
    let mut raw = Vec::with_capacity(1024);
    message(&mut raw, layout, object.as_map())?;
    let mut type_meta = Vec::new();
    bytes(&mut type_meta, 1, label.api_version().as_bytes());
    bytes(&mut type_meta, 2, label.kind.as_bytes());
    let mut out = Vec::with_capacity(raw.len() + type_meta.len() + 32);
    out.extend_from_slice(MAGIC);
    bytes(&mut out, 1, &type_meta);
    bytes(&mut out, 2, &raw);
    // The content encoding and the content type are always empty.
    bytes(&mut out, 3, b"");
    bytes(&mut out, 4, b"");
    Ok(out)
}

/// Encodes the fields of a struct; `None` is the zero value.
fn message(out: &mut Vec<u8>, layout: &Layout, map: Option<&Map>) -> Result<(), String> {
    for (number, field) in layout.numbered_fields() {
        if let ProtobufType::Embedded(layout) = &field.shape {
            nested(out, number, |out| message(out, layout, map))?;
            continue;
        }
        let value = map.and_then(|map| map.get(&field.name)).filter(|value| !value.is_null());
        if value.is_some() || !field.is_pointer {
            self::field(out, number, field, value).map_err(|error| below(&field.name, &error))?;
        }
    }
    Ok(())
}

/// Adds a field to the path in an error: `spec.replicas: …`.
fn below(name: &str, error: &str) -> String {
    if error.starts_with(':') { format!("{name}{error}") } else { format!("{name}.{error}") }
}

/// The error for a value of another type than its field; [`below`] puts the path before it.
fn wrong(value: &Value) -> String {
    format!(": {} cannot be encoded", value.json_type())
}

fn field(
    out: &mut Vec<u8>,
    number: usize,
    field: &MessageField,
    value: Option<&Value>,
) -> Result<(), String> {
    match &field.shape {
        ProtobufType::List(items) => {
            for item in list(value)? {
                element(out, number, items, Some(item))?;
            }
            Ok(())
        }
        ProtobufType::Map(values) => {
            let entries = match value {
                None => return Ok(()),
                Some(Value::Map(map)) => map.iter(),
                Some(other) => return Err(wrong(other)),
            };
            for (key, value) in entries {
                nested(out, number, |out| {
                    bytes(out, 1, key.as_bytes());
                    // Only a nil byte slice has no value.
                    let is_nil =
                        value.is_null() && matches!(**values, ProtobufType::Scalar(ProtobufScalar::Bytes));
                    if is_nil {
                        Ok(())
                    } else {
                        element(out, 2, values, Some(value).filter(|value| !value.is_null()))
                    }
                })?;
            }
            Ok(())
        }
        // A nil byte slice has no field, an empty one has.
        ProtobufType::Scalar(ProtobufScalar::Bytes) if value.is_none() => Ok(()),
        shape => element(out, number, shape, value),
    }
}

/// Encodes one occurrence of a field; `None` is the zero value.
fn element(
    out: &mut Vec<u8>,
    number: usize,
    shape: &ProtobufType,
    value: Option<&Value>,
) -> Result<(), String> {
    match shape {
        ProtobufType::Scalar(kind) => scalar(out, number, *kind, value),
        ProtobufType::Struct(position) => nested(out, number, |out| {
            let map = match value {
                None => None,
                Some(Value::Map(map)) => Some(map),
                Some(other) => return Err(wrong(other)),
            };
            layout::at(*position).map_or(Ok(()), |layout| message(out, layout, map))
        }),
        ProtobufType::Special(kind) => nested(out, number, |out| special(out, *kind, value)),
        // Protobuf has no lists of lists or maps of lists, and embedded structs are handled by the caller.
        ProtobufType::List(_) | ProtobufType::Map(_) | ProtobufType::Embedded(_) => Ok(()),
    }
}

fn scalar(
    out: &mut Vec<u8>,
    number: usize,
    kind: ProtobufScalar,
    value: Option<&Value>,
) -> Result<(), String> {
    match (kind, value) {
        (ProtobufScalar::Text | ProtobufScalar::Bytes, None) => bytes(out, number, b""),
        (ProtobufScalar::Text, Some(Value::String(text))) => bytes(out, number, text.as_bytes()),
        (ProtobufScalar::Bytes, Some(Value::String(text))) => {
            let decoded = go::base64::STD.decode(text).map_err(|error| format!(": {error}"))?;
            bytes(out, number, &decoded);
        }
        (ProtobufScalar::Bool | ProtobufScalar::Int32 | ProtobufScalar::Int64, None) => int(out, number, 0),
        (ProtobufScalar::Bool, Some(Value::Bool(is_true))) => int(out, number, i64::from(*is_true)),
        (ProtobufScalar::Int32 | ProtobufScalar::Int64, Some(Value::Int(value))) => int(out, number, *value),
        (ProtobufScalar::Double, None) => double(out, number, 0.0),
        (ProtobufScalar::Double, Some(Value::Float(value))) => double(out, number, *value),
        #[expect(clippy::cast_precision_loss, reason = "Go converts in the same way")]
        (ProtobufScalar::Double, Some(Value::Int(value))) => double(out, number, *value as f64),
        (_, Some(other)) => return Err(wrong(other)),
    }
    Ok(())
}

/// Encodes the content of a message with a custom JSON encoding; `None` is the zero value.
fn special(out: &mut Vec<u8>, kind: Special, value: Option<&Value>) -> Result<(), String> {
    match kind {
        Special::Time | Special::MicroTime => time(out, matches!(kind, Special::MicroTime), value),
        Special::Quantity => {
            match value {
                None => bytes(out, 1, b"0"),
                Some(Value::String(text)) => bytes(out, 1, text.as_bytes()),
                Some(other) => return Err(wrong(other)),
            }
            Ok(())
        }
        Special::IntOrString => {
            let (kind, number, text) = match value {
                None => (INT_KIND, 0, ""),
                Some(Value::Int(number)) => (INT_KIND, *number, ""),
                Some(Value::String(text)) => (STRING_KIND, 0, text.as_str()),
                Some(other) => return Err(wrong(other)),
            };
            int(out, 1, kind);
            int(out, 2, number);
            bytes(out, 3, text.as_bytes());
            Ok(())
        }
        Special::Raw => {
            if let Some(value) = value {
                let mut json = Vec::new();
                write::write(&mut json, value);
                bytes(out, 1, &json);
            }
            Ok(())
        }
        Special::Items => {
            for item in list(value)? {
                scalar(out, 1, ProtobufScalar::Text, Some(item))?;
            }
            Ok(())
        }
        Special::SchemaOr(or) => schema_or(out, or, value),
    }
}

/// The zero time has no content. Only a micro time has a fraction.
fn time(out: &mut Vec<u8>, is_micro: bool, value: Option<&Value>) -> Result<(), String> {
    let text = match value {
        None => return Ok(()),
        Some(Value::String(text)) => text,
        Some(other) => return Err(wrong(other)),
    };
    let parse = if is_micro { Timestamp::parse_micro } else { Timestamp::parse };
    let time = parse(text).map_err(|error| format!(": {error}"))?;
    if time == Timestamp::from_seconds(GO_ZERO_SECONDS) {
        return Ok(());
    }
    int(out, 1, time.seconds);
    int(out, 2, if is_micro { i64::from(time.nanos / 1000 * 1000) } else { 0 });
    Ok(())
}

fn schema_or(out: &mut Vec<u8>, or: SchemaOr, value: Option<&Value>) -> Result<(), String> {
    let props = crate::named("apiextensions.v1.JSONSchemaProps").and_then(layout::of);
    let schema = |out: &mut Vec<u8>, number: usize, value: &Value| {
        nested(out, number, |out| props.map_or(Ok(()), |layout| message(out, layout, value.as_map())))
    };
    match (or, value) {
        (SchemaOr::Bool, Some(Value::Bool(allows))) => int(out, 1, i64::from(*allows)),
        (SchemaOr::Bool, Some(value @ Value::Map(_))) => {
            int(out, 1, 1);
            schema(out, schema_number(or), value)?;
        }
        (SchemaOr::Bool, None) => int(out, 1, 0),
        (_, None) => {}
        (_, Some(value @ Value::Map(_))) => schema(out, schema_number(or), value)?,
        (SchemaOr::Array, Some(Value::List(items))) => {
            for item in items {
                schema(out, 2, item)?;
            }
        }
        (SchemaOr::Strings, Some(Value::List(items))) => {
            for item in items {
                scalar(out, 2, ProtobufScalar::Text, Some(item))?;
            }
        }
        (_, Some(other)) => return Err(wrong(other)),
    }
    Ok(())
}

fn list(value: Option<&Value>) -> Result<&[Value], String> {
    match value {
        None => Ok(&[]),
        Some(Value::List(items)) => Ok(items),
        Some(other) => Err(wrong(other)),
    }
}
