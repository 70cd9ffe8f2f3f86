//! Adds absent fields that Go always writes and drops empty ones that it omits.

use value::{Map, Str, Value};

use super::SCHEMA;
use super::empty::is_empty_container;
use crate::{Object, Omit, Property, Schema, StringEncoding, ValueType};

/// Adds the fields that a typed encoder never omits: `status: {}`, `resources: {}`, `containers: null`. Drops empty lists and maps in
/// CRD schemas, which were preserved only for validation.
pub fn fill(value: &mut Value, schema: &Schema) {
    match (&schema.value_type, value) {
        (ValueType::Object(object), Value::Map(map)) => fill_object(map, object),
        (ValueType::List(list), Value::List(items)) => {
            let schema = list.items.get();
            if is_container(schema) {
                for item in items {
                    fill(item, schema);
                }
            }
        }
        (ValueType::Map(map_of), Value::Map(map)) => {
            let schema = map_of.values.get();
            if is_container(schema) {
                for (_, value) in map.iter_mut() {
                    fill(value, schema);
                }
            }
        }
        // A schema or a list of schemas in a CRD.
        (ValueType::SchemaOr(_), value @ (Value::Map(_) | Value::List(_))) => {
            let Some(props) = crate::named(SCHEMA) else { return };
            match value {
                Value::List(items) => {
                    for item in items {
                        fill(item, props);
                    }
                }
                schema => fill(schema, props),
            }
        }
        _ => {}
    }
}

fn fill_object(map: &mut Map, object: &Object) {
    for property in &object.properties {
        let schema = property.schema.get();
        if let Some(value) = map.get_mut(&property.name) {
            if property.omit == Omit::Empty && is_empty_container(value, property) {
                map.remove(&property.name);
            } else if is_container(schema) {
                fill(value, schema);
            }
        } else if property.omit == Omit::Never {
            map.insert(property.name.clone(), zero(property, schema));
        }
    }
}

fn is_container(schema: &Schema) -> bool {
    matches!(
        schema.value_type,
        ValueType::Object(_) | ValueType::List(_) | ValueType::Map(_) | ValueType::SchemaOr(_)
    )
}

/// The value that is written for an absent field.
fn zero(property: &Property, schema: &Schema) -> Value {
    if property.pointer {
        return Value::Null;
    }
    match &schema.value_type {
        ValueType::Object(object) => {
            let mut map = Map::new();
            fill_object(&mut map, object);
            Value::Map(map)
        }
        ValueType::String(StringEncoding::Plain) => Value::String(Str::new_static("")),
        ValueType::String(StringEncoding::Quantity) => Value::String(Str::new_static("0")),
        ValueType::String(StringEncoding::IntOrString) | ValueType::Int32 | ValueType::Int64 => Value::Int(0),
        ValueType::Float => Value::Float(0.0),
        ValueType::Bool => Value::Bool(false),
        ValueType::String(StringEncoding::Bytes | StringEncoding::Time | StringEncoding::MicroTime)
        | ValueType::Map(_)
        | ValueType::List(_)
        | ValueType::Any
        | ValueType::SchemaOr(_) => Value::Null,
    }
}
