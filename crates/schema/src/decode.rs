//! Normalizes an object as sent by a client into the form that a typed Go decoder would produce.
//!
//! Kubernetes decodes a body into Go structs and encodes those again. Clients see the effects: values of the wrong type are rejected
//! with the messages of Go's decoder; unknown fields are dropped (and listed in strict errors); `null`, `false`, `0`, `""` and empty
//! lists are dropped if the field is not a pointer and `omitempty`; quantities and times are returned in canonical form. [`normalize`]
//! does all that in one walk along the schema. [`fill`] adds the fields that Go writes even when they are absent (`resources: {}`,
//! `containers: null`). It runs last, so that defaulting and validation see absent fields as absent.

mod empty;
mod fill;
mod path;
mod strict;
#[cfg(test)]
mod tests;
mod type_mismatch;
mod unconvertible;

use api::time::Timestamp;
use value::quantity::Quantity;
use value::{Map, Str, Value, go, write};

use crate::{Object, Schema, SchemaOr, StringEncoding, ValueType};

pub use empty::empty_lists;
use empty::{DropContext, is_dropped};
pub use fill::fill;
use path::{DecodeStep, Stack};
pub use strict::{strict_errors, strict_errors_of};
pub use type_mismatch::TypeMismatch;

/// Result of [`normalize`] and [`convert`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NormalizeOutcome {
    /// Values of the wrong type. The object must not be used if there are any.
    pub mismatches: Vec<TypeMismatch>,
    /// The paths of unknown fields, which were dropped.
    pub unknown: Vec<String>,
}

impl NormalizeOutcome {
    /// The error of Go's decoder about values of the wrong type. `text` is the JSON source, or empty if there is none.
    pub fn type_error(&self, text: &[u8]) -> Option<String> {
        type_mismatch::first_error(&self.mismatches, text)
    }
}

/// The type of schemas in a CRD.
const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// Checks types against the schema, drops unknown fields and empty values, and converts quantities and times to their canonical form.
pub fn normalize(value: &mut Value, schema: &Schema) -> NormalizeOutcome {
    walk(value, schema, ErrorWording::Decoder)
}

/// Like [`normalize`], for the result of a strategic merge patch, which Kubernetes converts instead of decoding.
pub fn convert(value: &mut Value, schema: &Schema) -> NormalizeOutcome {
    walk(value, schema, ErrorWording::Converter)
}

/// Source of the wording of errors.
#[derive(Clone, Copy, PartialEq)]
enum ErrorWording {
    /// Wording of Go's JSON decoder.
    Decoder,
    /// Wording of Kubernetes' converter from unstructured maps.
    Converter,
}

fn walk(value: &mut Value, schema: &Schema, words: ErrorWording) -> NormalizeOutcome {
    let mut walk = Normalizer {
        words,
        stack: Stack::default(),
        mismatches: Vec::new(),
        unknown: Vec::new(),
        lenient: 0,
        preserves_empty: ["apiextensions.", "apiregistration."]
            .iter()
            .any(|group| schema.name.starts_with(group)),
    };
    walk.value(value, schema);
    NormalizeOutcome { mismatches: walk.mismatches, unknown: walk.unknown }
}

/// Selects the duplicate keys that a typed decoder would notice. It does not look into unknown fields and raw JSON.
pub fn decoded_duplicates(schema: &Schema, duplicates: Vec<String>) -> Vec<String> {
    duplicates.into_iter().filter(|path| path::is_decoded(schema, path)).collect()
}

struct Normalizer<'a> {
    words: ErrorWording,
    stack: Stack<'a>,
    mismatches: Vec<TypeMismatch>,
    unknown: Vec<String>,
    /// Depth of types with their own decoder, inside which unknown fields are not reported.
    lenient: u32,
    /// The group is stored as JSON, which preserves empty lists that protobuf drops.
    preserves_empty: bool,
}

impl<'a> Normalizer<'a> {
    /// Normalizes a value that is not null.
    fn value(&mut self, value: &mut Value, schema: &'a Schema) {
        if self.mismatches.len() == type_mismatch::MAX_MISMATCHES {
            return;
        }
        match (&schema.value_type, &mut *value) {
            (ValueType::Object(object), Value::Map(map)) => self.object(map, object, schema),
            (ValueType::Map(map_of), Value::Map(map)) => {
                let values = map_of.values.get();
                let mut entries = std::mem::take(map);
                for (key, value) in entries.iter_mut() {
                    if is_leaf(values) {
                        self.element(value, values);
                    } else {
                        self.stack.push(DecodeStep::Key(key.clone()));
                        self.element(value, values);
                        self.stack.pop();
                    }
                }
                *map = entries;
            }
            (ValueType::List(list), Value::List(items)) => {
                let schema = list.items.get();
                for (index, item) in items.iter_mut().enumerate() {
                    self.stack.push(DecodeStep::Index(index));
                    self.element(item, schema);
                    self.stack.pop();
                }
            }
            (ValueType::String(StringEncoding::Plain), Value::String(_))
            | (ValueType::Bool, Value::Bool(_))
            | (ValueType::Int64, Value::Int(_))
            | (ValueType::Float, Value::Int(_) | Value::UInt(_) | Value::Float(_))
            | (ValueType::Any, _) => {}
            (ValueType::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => {}
            (
                ValueType::Int32 | ValueType::Int64,
                number @ (Value::Int(_) | Value::UInt(_) | Value::Float(_)),
            ) if self.words == ErrorWording::Converter && unconvertible::is_whole(number) => {
                unconvertible::wrap(number, schema);
            }
            _ if self.words == ErrorWording::Converter && is_plain(schema) => {
                self.save(|| unconvertible::why(value, schema));
            }
            (ValueType::Int32 | ValueType::Int64, Value::Int(_) | Value::UInt(_) | Value::Float(_)) => {
                let text = format!("number {}", literal(value));
                self.type_error(&text, &schema.go_type());
            }
            (ValueType::String(StringEncoding::Bytes), Value::String(text)) => {
                match go::base64::canonical(text) {
                    Ok(None) => {}
                    Ok(Some(canonical)) => *text = canonical.into(),
                    Err(error) => self.save(|| error.to_string()),
                }
            }
            (ValueType::String(StringEncoding::Bytes), Value::List(items)) => {
                // Go also accepts a list of numbers as bytes.
                match items.iter().map(byte).collect::<Result<Vec<u8>, _>>() {
                    Ok(bytes) => *value = go::base64::STD.encode(&bytes).into(),
                    Err(found) => self.type_error(&found, "uint8"),
                }
            }
            (ValueType::String(StringEncoding::Time | StringEncoding::MicroTime), _) => {
                self.time(value, schema);
            }
            (ValueType::String(StringEncoding::IntOrString), _) => self.int_or_string(value),
            (ValueType::String(StringEncoding::Quantity), _) => self.quantity(value),
            (ValueType::SchemaOr(or), _) => self.schema_or(value, *or),
            (_, value) => self.type_error(value.json_type(), &schema.go_type()),
        }
    }

    /// Normalizes a list item or map value, for which null means the zero value of its type.
    fn element(&mut self, value: &mut Value, schema: &'a Schema) {
        if !value.is_null() {
            return self.value(value, schema);
        }
        *value = match &schema.value_type {
            ValueType::Object(_) => Value::Map(Map::new()),
            ValueType::String(StringEncoding::Plain | StringEncoding::Bytes) => {
                Value::String(Str::new_static(""))
            }
            ValueType::String(StringEncoding::Quantity) => Value::String(Str::new_static("0")),
            ValueType::String(StringEncoding::IntOrString) | ValueType::Int32 | ValueType::Int64 => {
                Value::Int(0)
            }
            ValueType::Float => Value::Float(0.0),
            ValueType::Bool => Value::Bool(false),
            ValueType::SchemaOr(SchemaOr::Bool) => {
                return self.abort("boolean or JSON schema expected".to_owned());
            }
            ValueType::String(StringEncoding::Time | StringEncoding::MicroTime)
            | ValueType::Map(_)
            | ValueType::List(_)
            | ValueType::Any
            | ValueType::SchemaOr(_) => Value::Null,
        };
    }

    fn object(&mut self, map: &mut Map, object: &'a Object, schema: &'a Schema) {
        // Both are sorted, so one pass over the two of them finds every field.
        let mut properties = object.properties.iter().peekable();
        let never_dropped = empty::rejected_lists(schema, map);
        // CRD validation distinguishes empty from absent values; `fill` drops the empty ones later.
        let is_schema = schema.name == SCHEMA;
        let context = DropContext { preserves_empty: self.preserves_empty, is_root: self.stack.is_root() };
        map.retain(|key, value| {
            while properties.next_if(|property| property.name < *key).is_some() {}
            let Some(property) = properties.next_if(|property| property.name == *key) else {
                if self.lenient == 0 && self.unknown.len() < strict::MAX_STRICT_ERRORS {
                    self.unknown.push(self.stack.strict_path(key));
                }
                return false;
            };
            if value.is_null() {
                return false;
            }
            self.stack.push(DecodeStep::Field(property, schema));
            self.value(value, property.schema.get());
            self.stack.pop();
            never_dropped.contains(&key.as_str())
                || is_schema && empty::is_empty_container(value, property)
                || !is_dropped(value, property, context)
        });
    }

    fn time(&mut self, value: &mut Value, schema: &Schema) {
        let Value::String(text) = value else {
            let name = value.json_type();
            return self.abort_type(name, "string");
        };
        let micro = matches!(schema.value_type, ValueType::String(StringEncoding::MicroTime));
        let parsed = if micro { Timestamp::parse_micro(text) } else { Timestamp::parse(text) };
        match parsed {
            Err(error) => self.abort(error),
            Ok(time) if time.is_zero() => *value = Value::Null,
            Ok(time) => {
                let canonical = if micro { time.micro_time() } else { time.time() };
                if *text != canonical {
                    *text = canonical.into();
                }
            }
        }
    }

    fn int_or_string(&mut self, value: &mut Value) {
        match value {
            Value::String(_) => {}
            Value::Int(number) if i32::try_from(*number).is_ok() => {}
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
                let text = format!("number {}", literal(value));
                self.abort_type(&text, "int32");
            }
            other => {
                let name = other.json_type();
                self.abort_type(name, "int32");
            }
        }
    }

    fn quantity(&mut self, value: &mut Value) {
        let written;
        let text = match &*value {
            Value::String(text) => text.as_str(),
            other => {
                written = literal(other);
                &written
            }
        };
        match Quantity::parse_json(text) {
            Err(error) => self.abort(error.to_string()),
            Ok(quantity) => {
                let canonical = quantity.to_string();
                if !matches!(value, Value::String(text) if *text == canonical) {
                    *value = canonical.into();
                }
            }
        }
    }

    fn schema_or(&mut self, value: &mut Value, or: SchemaOr) {
        let Some(props) = crate::named(SCHEMA) else { return };
        let before = self.mismatches.len();
        self.lenient += 1;
        match (or, &mut *value) {
            (_, Value::Map(_)) => self.value(value, props),
            (SchemaOr::Bool, Value::Bool(_)) => {}
            (SchemaOr::Bool, _) => self.abort("boolean or JSON schema expected".to_owned()),
            (SchemaOr::Array, Value::List(items)) if !items.is_empty() => {
                for item in items {
                    self.element(item, props);
                }
            }
            (SchemaOr::Strings, Value::List(items)) if !items.is_empty() => {
                for item in items {
                    match item {
                        Value::String(_) => {}
                        Value::Null => *item = Value::String(Str::new_static("")),
                        other => {
                            let name = other.json_type();
                            self.abort_type(name, "string");
                        }
                    }
                }
            }
            // Any other value is silently dropped.
            (SchemaOr::Array | SchemaOr::Strings, _) => *value = Value::Null,
        }
        self.lenient -= 1;
        // Errors inside a type's own decoder stop the decoding.
        if self.lenient == 0 {
            self.mismatches.iter_mut().skip(before).for_each(|mismatch| mismatch.ends = true);
        }
    }

    /// Records a value of the wrong type. Go remembers the first one and continues.
    fn type_error(&mut self, found: &str, go_type: &str) {
        self.remember(self.stack.type_error(found, go_type), false);
    }

    fn save(&mut self, error: impl FnOnce() -> String) {
        self.remember(error(), false);
    }

    /// Records an error of a type's own decoder. Go stops and discards what it remembered.
    fn abort(&mut self, error: String) {
        self.remember(error, true);
    }

    fn remember(&mut self, message: String, ends: bool) {
        if self.mismatches.len() < type_mismatch::MAX_MISMATCHES {
            self.mismatches.push(TypeMismatch { path: self.stack.path(), message, ends });
        }
    }

    fn abort_type(&mut self, found: &str, go_type: &str) {
        let error = match self.words {
            ErrorWording::Decoder => self.stack.type_error(found, go_type),
            // A type's own decoder receives only the value and does not know its path.
            ErrorWording::Converter => {
                format!("json: cannot unmarshal {found} into Go value of type {go_type}")
            }
        };
        self.abort(error);
    }
}

/// Whether the Go type of this schema has no decoder of its own.
fn is_plain(schema: &Schema) -> bool {
    !matches!(
        schema.value_type,
        ValueType::String(
            StringEncoding::Bytes
                | StringEncoding::Time
                | StringEncoding::MicroTime
                | StringEncoding::IntOrString
                | StringEncoding::Quantity
        ) | ValueType::SchemaOr(_)
    )
}

/// Whether values of this schema contain no other values.
fn is_leaf(schema: &Schema) -> bool {
    matches!(
        schema.value_type,
        ValueType::String(_)
            | ValueType::Int32
            | ValueType::Int64
            | ValueType::Float
            | ValueType::Bool
            | ValueType::Any
    )
}

/// A byte in a list of numbers, or the description of the value in Go's error.
fn byte(value: &Value) -> Result<u8, String> {
    match value {
        Value::Null => Ok(0),
        Value::Int(number) => u8::try_from(*number).map_err(|_| format!("number {number}")),
        Value::UInt(_) | Value::Float(_) => Err(format!("number {}", literal(value))),
        other => Err(other.json_type().to_owned()),
    }
}

/// Reconstructs the literal of a number for error messages. Floats without a fraction were written with one, or were too large for
/// integers.
fn literal(value: &Value) -> String {
    match value {
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.1}"),
        _ => write::to_string(value),
    }
}
