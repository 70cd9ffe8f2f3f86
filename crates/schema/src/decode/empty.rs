//! Decides which empty values a typed round trip drops.

use value::{Map, Str, Value};

use crate::{Omit, Property, Schema, StringEncoding, ValueType};

/// Lists and maps that validation rejects when empty but accepts when absent, so they must not be dropped here.
const NEVER_STORED_EMPTY: [&str; 3] = ["nodeSelectorTerms", "attestations", "attestationClaims"];

/// Lists that validation rejects in combination with other fields even if they are empty: the struct, its lists, and the condition.
type EmptyListRule = (&'static str, &'static [&'static str], fn(&Map) -> bool);

const REJECTED_EMPTY: [EmptyListRule; 4] = [
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

/// The lists of a struct that are preserved although they are empty, because validation rejects them beside its other fields.
pub(super) fn rejected_lists(schema: &Schema, map: &Map) -> &'static [&'static str] {
    let rule = REJECTED_EMPTY.iter().find(|(name, _, is_rejected)| *name == schema.name && is_rejected(map));
    rule.map_or(&[], |(_, lists, _)| *lists)
}

/// The facts, besides its property, that decide whether an empty field is dropped.
#[derive(Clone, Copy)]
pub(super) struct DropContext {
    /// The group is stored as JSON, which preserves empty lists that protobuf drops.
    pub(super) preserves_empty: bool,
    /// Whether it is a field of the object itself.
    pub(super) is_root: bool,
}

/// Whether a typed round trip drops the field.
pub(super) fn is_dropped(value: &Value, property: &Property, context: DropContext) -> bool {
    // Raw JSON is opaque bytes, so it is never empty.
    if matches!(property.schema.get().value_type, ValueType::Any) && !value.is_null() {
        return false;
    }
    match value {
        Value::Null => !property.pointer,
        Value::List(list) => {
            list.is_empty()
                && (property.omit == Omit::Empty || !context.preserves_empty)
                && !NEVER_STORED_EMPTY.contains(&&*property.name)
        }
        // An empty struct behind a pointer is significant. An empty struct that is always written is equivalent to an absent one,
        // and is dropped so that sent and stored objects compare equal; `fill` adds it again.
        Value::Map(map) => {
            map.is_empty()
                && match property.schema.get().value_type {
                    ValueType::Map(_) => {
                        property.omit == Omit::Empty && !NEVER_STORED_EMPTY.contains(&&*property.name)
                    }
                    ValueType::Object(_) => {
                        property.omit == Omit::Never
                            && !property.pointer
                            && !context.preserves_empty
                            && (!context.is_root || property.name != "metadata")
                    }
                    _ => false,
                }
        }
        _ if property.pointer || (property.omit == Omit::Never && context.preserves_empty) => false,
        Value::String(text)
            if matches!(property.schema.get().value_type, ValueType::String(StringEncoding::Quantity)) =>
        {
            property.omit == Omit::Never && text == "0"
        }
        Value::Bool(set) => !set,
        Value::Int(number) => *number == 0,
        Value::UInt(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        // Empty bytes differ from absent ones in a field that is always written.
        Value::String(text) => {
            let is_bytes =
                matches!(property.schema.get().value_type, ValueType::String(StringEncoding::Bytes));
            text.is_empty() && !(is_bytes && property.omit == Omit::Never)
        }
    }
}

pub(super) fn is_empty_container(value: &Value, property: &Property) -> bool {
    match (value, &property.schema.get().value_type) {
        (Value::List(items), ValueType::List(_)) => items.is_empty(),
        (Value::Map(map), ValueType::Map(_)) => map.is_empty(),
        // A value that was neither a schema nor a list of schemas.
        (Value::Null, ValueType::SchemaOr(_)) => true,
        _ => false,
    }
}

/// The paths of empty lists in fields that are always written. [`normalize`] drops them as if they were absent, but for field ownership
/// the difference matters.
pub fn empty_lists(object: &Value, schema: &Schema) -> Vec<Vec<Str>> {
    let (Some(map), ValueType::Object(of)) = (object.as_map(), &schema.value_type) else { return Vec::new() };
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
