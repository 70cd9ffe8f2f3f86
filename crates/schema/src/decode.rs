//! Normalises an object as sent by a client into the form that a typed Go decoder would produce.
//!
//! Kubernetes decodes a body into Go structs and encodes those again. Clients see the effects: values of the wrong type are rejected
//! with the messages of Go's decoder; unknown fields are dropped (and listed in strict errors); `null`, `false`, `0`, `""` and empty
//! lists are dropped if the field is not a pointer and `omitempty`; quantities and times are returned in canonical form. [`normalise`]
//! does all that in one walk along the schema. [`fill`] adds the fields that Go writes even when they are absent (`resources: {}`,
//! `containers: null`). It runs last, so that defaulting and validation see absent fields as absent.

mod fill;
mod misfit;
mod path;
#[cfg(test)]
mod tests;
mod unconvertible;

use api::field::quote;
use api::time::Timestamp;
use value::quantity::Quantity;
use value::{Map, Str, Value, go, write};

use crate::{Format, Kind, Object, Omit, Property, Schema, SchemaOr};

pub use fill::fill;
pub use misfit::Misfit;
use path::{Stack, Step};

/// Limit on the reported strict errors.
const MAX_STRICT_ERRORS: usize = 100;

/// Result of [`normalise`] and [`convert`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Values of the wrong type. The object must not be used if there are any.
    pub misfits: Vec<Misfit>,
    /// The paths of unknown fields, which were dropped.
    pub unknown: Vec<String>,
}

impl Outcome {
    /// The error of Go's decoder about values of the wrong type. `text` is the JSON source, or empty if there is none.
    pub fn type_error(&self, text: &[u8]) -> Option<String> {
        misfit::told(&self.misfits, text)
    }
}

/// The type of schemas in a CRD.
const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// Lists and maps that validation rejects when empty but accepts when absent, so they must not be dropped here.
const NEVER_STORED_EMPTY: [&str; 3] = ["nodeSelectorTerms", "attestations", "attestationClaims"];

/// Lists that validation rejects in combination with other fields even if they are empty: the struct, its lists, and the condition.
type Beside = (&'static str, &'static [&'static str], fn(&Map) -> bool);

const REFUSED_EMPTY: [Beside; 4] = [
    ("resource.v1.ResourceSliceSpec", SLICE_PARTS, has_both_parts),
    ("resource.v1beta1.ResourceSliceSpec", SLICE_PARTS, has_both_parts),
    ("resource.v1beta2.ResourceSliceSpec", SLICE_PARTS, has_both_parts),
    // These belong to an exact request, which must name a device class and cannot have alternatives.
    ("resource.v1beta1.DeviceRequest", &["derivedAttributes", "selectors", "tolerations"], |request| {
        request.get("firstAvailable").and_then(Value::as_list).is_some_and(|list| !list.is_empty())
            || request.get("deviceClassName").and_then(Value::as_str).is_none_or(str::is_empty)
    }),
];

const SLICE_PARTS: &[&str] = &["devices", "sharedCounters"];

fn has_both_parts(spec: &Map) -> bool {
    SLICE_PARTS.iter().all(|part| spec.get(part).is_some_and(|part| !part.is_null()))
}

/// Checks types against the schema, drops unknown fields and empty values, and converts quantities and times to their canonical form.
pub fn normalise(value: &mut Value, schema: &Schema) -> Outcome {
    walk(value, schema, Words::Decoder)
}

/// Like [`normalise`], for the result of a strategic merge patch, which Kubernetes converts instead of decoding.
pub fn convert(value: &mut Value, schema: &Schema) -> Outcome {
    walk(value, schema, Words::Converter)
}

/// Source of the wording of errors.
#[derive(Clone, Copy, PartialEq)]
enum Words {
    /// Wording of Go's JSON decoder.
    Decoder,
    /// Wording of Kubernetes' converter from unstructured maps.
    Converter,
}

fn walk(value: &mut Value, schema: &Schema, words: Words) -> Outcome {
    let mut walk = Walk {
        words,
        stack: Stack::default(),
        misfits: Vec::new(),
        unknown: Vec::new(),
        lenient: 0,
        keeps_empty: ["apiextensions.", "apiregistration."]
            .iter()
            .any(|group| schema.name.starts_with(group)),
    };
    walk.value(value, schema);
    Outcome { misfits: walk.misfits, unknown: walk.unknown }
}

/// The paths of empty lists in fields that are always written. [`normalise`] drops them as if they were absent, but for field ownership
/// the difference matters.
pub fn empty_lists(object: &Value, schema: &Schema) -> Vec<Vec<Str>> {
    let (Some(map), Kind::Object(of)) = (object.as_map(), &schema.kind) else { return Vec::new() };
    let mut found = Vec::new();
    for (key, value) in map.iter() {
        let Some(property) = of.property(key) else { continue };
        match value {
            Value::List(items) if items.is_empty() && property.omit == Omit::Never => {
                found.push(vec![key.clone()]);
            }
            Value::Map(_) => {
                for mut path in empty_lists(value, property.schema.get()) {
                    path.insert(0, key.clone());
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    found
}

/// The strict errors for unknown and duplicate fields, formatted as in Kubernetes.
pub fn strict_errors(unknown: &[String], duplicates: &[String]) -> Vec<String> {
    strict_errors_of(&[], unknown, duplicates)
}

/// Like [`strict_errors`], in the order in which the fields occur in the JSON `text`.
pub fn strict_errors_of(text: &[u8], unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let unknown = unknown.iter().map(|path| (path.as_str(), "unknown field"));
    let mut found: Vec<(&str, &str)> =
        unknown.chain(duplicates.iter().map(|path| (path.as_str(), "duplicate field"))).collect();
    if found.len() > 1 && !text.is_empty() {
        let paths: Vec<&str> = found.iter().map(|(path, _)| *path).collect();
        let mut placed: Vec<_> = value::json::offsets(text, &paths).into_iter().zip(found).collect();
        placed.sort_by_key(|(offset, _)| *offset);
        found = placed.into_iter().map(|(_, complaint)| complaint).collect();
    }
    let mut errors: Vec<String> = Vec::new();
    for (path, what) in found {
        let error = format!("{what} {}", quote(path));
        if errors.len() < MAX_STRICT_ERRORS && !errors.contains(&error) {
            errors.push(error);
        }
    }
    errors
}

/// Selects the duplicate keys that a typed decoder would notice. It does not look into unknown fields and raw JSON.
pub fn met_duplicates(schema: &Schema, duplicates: Vec<String>) -> Vec<String> {
    duplicates.into_iter().filter(|path| path::is_met(schema, path)).collect()
}

struct Walk<'a> {
    words: Words,
    stack: Stack<'a>,
    misfits: Vec<Misfit>,
    unknown: Vec<String>,
    /// Depth of types with their own decoder, inside which unknown fields are not reported.
    lenient: u32,
    /// The group is stored as JSON, which preserves empty lists that protobuf drops.
    keeps_empty: bool,
}

impl<'a> Walk<'a> {
    /// Normalises a value that is not null.
    fn value(&mut self, value: &mut Value, schema: &'a Schema) {
        if self.misfits.len() == misfit::MOST {
            return;
        }
        match (&schema.kind, &mut *value) {
            (Kind::Object(object), Value::Map(map)) => self.object(map, object, schema),
            (Kind::Map(map_of), Value::Map(map)) => {
                let values = map_of.values.get();
                let mut entries = std::mem::take(map);
                for (key, value) in entries.iter_mut() {
                    if is_leaf(values) {
                        self.element(value, values);
                    } else {
                        self.stack.push(Step::Key(key.clone()));
                        self.element(value, values);
                        self.stack.pop();
                    }
                }
                *map = entries;
            }
            (Kind::List(list), Value::List(items)) => {
                let schema = list.items.get();
                for (index, item) in items.iter_mut().enumerate() {
                    self.stack.push(Step::Index(index));
                    self.element(item, schema);
                    self.stack.pop();
                }
            }
            (Kind::String(Format::Plain), Value::String(_))
            | (Kind::Bool, Value::Bool(_))
            | (Kind::Int64, Value::Int(_))
            | (Kind::Float, Value::Int(_) | Value::UInt(_) | Value::Float(_))
            | (Kind::Any, _) => {}
            (Kind::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => {}
            (Kind::Int32 | Kind::Int64, number @ (Value::Int(_) | Value::UInt(_) | Value::Float(_)))
                if self.words == Words::Converter && unconvertible::is_whole(number) =>
            {
                unconvertible::wrap(number, schema);
            }
            _ if self.words == Words::Converter && is_plain(schema) => {
                self.save(|| unconvertible::why(value, schema));
            }
            (Kind::Int32 | Kind::Int64, Value::Int(_) | Value::UInt(_) | Value::Float(_)) => {
                let text = format!("number {}", literal(value));
                self.type_error(&text, &schema.go_type());
            }
            (Kind::String(Format::Bytes), Value::String(text)) => match go::base64::canonical(text) {
                Ok(None) => {}
                Ok(Some(canonical)) => *text = canonical.into(),
                Err(error) => self.save(|| error.to_string()),
            },
            (Kind::String(Format::Bytes), Value::List(items)) => {
                // Go also accepts a list of numbers as bytes.
                match items.iter().map(byte).collect::<Result<Vec<u8>, _>>() {
                    Ok(bytes) => *value = go::base64::STD.encode(&bytes).into(),
                    Err(found) => self.type_error(&found, "uint8"),
                }
            }
            (Kind::String(Format::Time | Format::MicroTime), _) => self.time(value, schema),
            (Kind::String(Format::IntOrString), _) => self.int_or_string(value),
            (Kind::String(Format::Quantity), _) => self.quantity(value),
            (Kind::SchemaOr(or), _) => self.schema_or(value, *or),
            (_, value) => self.type_error(value.json_type(), &schema.go_type()),
        }
    }

    /// Normalises a list item or map value, for which null means the zero value of its type.
    fn element(&mut self, value: &mut Value, schema: &'a Schema) {
        if !value.is_null() {
            return self.value(value, schema);
        }
        *value = match &schema.kind {
            Kind::Object(_) => Value::Map(Map::new()),
            Kind::String(Format::Plain | Format::Bytes) => Value::String(Str::new_static("")),
            Kind::String(Format::Quantity) => Value::String(Str::new_static("0")),
            Kind::String(Format::IntOrString) | Kind::Int32 | Kind::Int64 => Value::Int(0),
            Kind::Float => Value::Float(0.0),
            Kind::Bool => Value::Bool(false),
            Kind::SchemaOr(SchemaOr::Bool) => {
                return self.abort("boolean or JSON schema expected".to_owned());
            }
            Kind::String(Format::Time | Format::MicroTime)
            | Kind::Map(_)
            | Kind::List(_)
            | Kind::Any
            | Kind::SchemaOr(_) => Value::Null,
        };
    }

    fn object(&mut self, map: &mut Map, object: &'a Object, schema: &'a Schema) {
        // Both are sorted, so one pass over the two of them finds every field.
        let mut properties = object.properties.iter().peekable();
        let kept = REFUSED_EMPTY.iter().find(|(name, _, refused)| *name == schema.name && refused(map));
        let kept = kept.map_or(&[][..], |(_, lists, _)| *lists);
        // CRD validation distinguishes empty from absent values; `fill` drops the empty ones later.
        let is_schema = schema.name == SCHEMA;
        map.retain(|key, value| {
            while properties.next_if(|property| property.name < *key).is_some() {}
            let Some(property) = properties.next_if(|property| property.name == *key) else {
                if self.lenient == 0 && self.unknown.len() < MAX_STRICT_ERRORS {
                    self.unknown.push(self.stack.strict_path(key));
                }
                return false;
            };
            if value.is_null() {
                return false;
            }
            self.stack.push(Step::Field(property, schema));
            self.value(value, property.schema.get());
            self.stack.pop();
            kept.contains(&key.as_str())
                || is_schema && is_empty_container(value, property)
                || !self.vanishes(value, property)
        });
    }

    /// Whether a typed round trip drops the field.
    fn vanishes(&self, value: &Value, property: &Property) -> bool {
        // Raw JSON is opaque bytes, so it is never empty.
        if matches!(property.schema.get().kind, Kind::Any) && !value.is_null() {
            return false;
        }
        match value {
            Value::Null => !property.pointer,
            Value::List(list) => {
                list.is_empty()
                    && (property.omit == Omit::Empty || !self.keeps_empty)
                    && !NEVER_STORED_EMPTY.contains(&&*property.name)
            }
            // An empty struct behind a pointer is significant. An empty struct that is always written is equivalent to an absent one,
            // and is dropped so that sent and stored objects compare equal; `fill` adds it again.
            Value::Map(map) => {
                map.is_empty()
                    && match property.schema.get().kind {
                        Kind::Map(_) => {
                            property.omit == Omit::Empty && !NEVER_STORED_EMPTY.contains(&&*property.name)
                        }
                        Kind::Object(_) => {
                            property.omit == Omit::Never
                                && !property.pointer
                                && !self.keeps_empty
                                && (!self.stack.is_root() || property.name != "metadata")
                        }
                        _ => false,
                    }
            }
            _ if property.pointer || (property.omit == Omit::Never && self.keeps_empty) => false,
            Value::String(text) if matches!(property.schema.get().kind, Kind::String(Format::Quantity)) => {
                property.omit == Omit::Never && text == "0"
            }
            Value::Bool(set) => !set,
            Value::Int(number) => *number == 0,
            Value::UInt(number) => *number == 0,
            Value::Float(number) => *number == 0.0,
            // Empty bytes differ from absent ones in a field that is always written.
            Value::String(text) => {
                let is_bytes = matches!(property.schema.get().kind, Kind::String(Format::Bytes));
                text.is_empty() && !(is_bytes && property.omit == Omit::Never)
            }
        }
    }

    fn time(&mut self, value: &mut Value, schema: &Schema) {
        let Value::String(text) = value else {
            let name = value.json_type();
            return self.abort_type(name, "string");
        };
        let micro = matches!(schema.kind, Kind::String(Format::MicroTime));
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
        let before = self.misfits.len();
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
            self.misfits.iter_mut().skip(before).for_each(|misfit| misfit.ends = true);
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

    fn remember(&mut self, words: String, ends: bool) {
        if self.misfits.len() < misfit::MOST {
            self.misfits.push(Misfit { place: self.stack.place(), words, ends });
        }
    }

    fn abort_type(&mut self, found: &str, go_type: &str) {
        let error = match self.words {
            Words::Decoder => self.stack.type_error(found, go_type),
            // A type's own decoder receives only the value and does not know its path.
            Words::Converter => format!("json: cannot unmarshal {found} into Go value of type {go_type}"),
        };
        self.abort(error);
    }
}

fn is_empty_container(value: &Value, property: &Property) -> bool {
    match (value, &property.schema.get().kind) {
        (Value::List(items), Kind::List(_)) => items.is_empty(),
        (Value::Map(map), Kind::Map(_)) => map.is_empty(),
        // A value that was neither a schema nor a list of schemas.
        (Value::Null, Kind::SchemaOr(_)) => true,
        _ => false,
    }
}

/// Whether the Go type of this schema has no decoder of its own.
fn is_plain(schema: &Schema) -> bool {
    !matches!(
        schema.kind,
        Kind::String(
            Format::Bytes | Format::Time | Format::MicroTime | Format::IntOrString | Format::Quantity
        ) | Kind::SchemaOr(_)
    )
}

/// Whether values of this schema contain no other values.
fn is_leaf(schema: &Schema) -> bool {
    matches!(schema.kind, Kind::String(_) | Kind::Int32 | Kind::Int64 | Kind::Float | Kind::Bool | Kind::Any)
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
