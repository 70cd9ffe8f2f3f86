//! What the converter says that Kubernetes makes objects of maps with, where a strategic merge patch never was JSON.

use value::Value;

use crate::schema::{Format, Kind, Schema};

/// Why a value cannot become what the schema says.
pub(super) fn why(value: &Value, schema: &Schema) -> String {
    let from = go_kind(value);
    match &schema.kind {
        Kind::Object(_) => format!("cannot restore struct from: {from}"),
        Kind::Map(_) => format!("cannot restore map from {from}"),
        Kind::List(_) | Kind::String(Format::Bytes) => format!("cannot restore slice from {from}"),
        _ => {
            let to = scalar(schema);
            // Go could convert between these, which is why it says that it does not.
            let convertible = matches!(
                (value, to),
                (Value::Int(_) | Value::UInt(_), "string") | (Value::Float(_), "int32" | "int64")
            );
            if convertible {
                format!("cannot convert {from} to {}", schema.go_type())
            } else {
                format!("unrecognized type: {to}")
            }
        }
    }
}

/// What Go keeps a value of a map in.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::UInt(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
    }
}

fn scalar(schema: &Schema) -> &'static str {
    match schema.kind {
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Float => "float64",
        Kind::Bool => "bool",
        _ => "string",
    }
}
