//! Adds absent fields that Go always writes and drops empty ones that it omits.

use value::{Map, Str, Value};

use super::{SCHEMA, is_empty_container};
use crate::{Format, Kind, Object, Omit, Property, Schema};

/// Adds the fields that a typed encoder never omits: `status: {}`, `resources: {}`, `containers: null`. Drops empty lists and maps in
/// CRD schemas, which were preserved only for validation.
pub fn fill(value: &mut Value, schema: &Schema) {
    match (&schema.kind, value) {
        (Kind::Object(object), Value::Map(map)) => fill_object(map, object),
        (Kind::List(list), Value::List(items)) => {
            let schema = list.items.get();
            if is_container(schema) {
                for item in items {
                    fill(item, schema);
                }
            }
        }
        (Kind::Map(map_of), Value::Map(map)) => {
            let schema = map_of.values.get();
            if is_container(schema) {
                for (_, value) in map.iter_mut() {
                    fill(value, schema);
                }
            }
        }
        // A schema or a list of schemas in a CRD.
        (Kind::SchemaOr(_), value @ (Value::Map(_) | Value::List(_))) => {
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
    matches!(schema.kind, Kind::Object(_) | Kind::List(_) | Kind::Map(_) | Kind::SchemaOr(_))
}

/// The value that is written for an absent field.
fn zero(property: &Property, schema: &Schema) -> Value {
    if property.pointer {
        return Value::Null;
    }
    match &schema.kind {
        Kind::Object(object) => {
            let mut map = Map::new();
            fill_object(&mut map, object);
            Value::Map(map)
        }
        Kind::String(Format::Plain) => Value::String(Str::new_static("")),
        Kind::String(Format::Quantity) => Value::String(Str::new_static("0")),
        Kind::String(Format::IntOrString) | Kind::Int32 | Kind::Int64 => Value::Int(0),
        Kind::Float => Value::Float(0.0),
        Kind::Bool => Value::Bool(false),
        Kind::String(Format::Bytes | Format::Time | Format::MicroTime)
        | Kind::Map(_)
        | Kind::List(_)
        | Kind::Any
        | Kind::SchemaOr(_) => Value::Null,
    }
}
