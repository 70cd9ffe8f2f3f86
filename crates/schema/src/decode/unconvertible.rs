//! Error messages of the converter that Kubernetes uses for the result of a strategic merge patch, which is never encoded as JSON.

use value::Value;

use crate::{Schema, StringEncoding, ValueType};

/// Why a value cannot be converted to the type of the schema.
pub(super) fn why(value: &Value, schema: &Schema) -> String {
    let from = go_kind(value);
    match &schema.value_type {
        ValueType::Object(_) => format!("cannot restore struct from: {from}"),
        ValueType::Map(_) => format!("cannot restore map from {from}"),
        ValueType::List(_) | ValueType::String(StringEncoding::Bytes) => {
            format!("cannot restore slice from {from}")
        }
        _ => {
            let to = scalar(schema);
            // Go could convert between these types, and has its own message for refusing to.
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

pub(super) fn is_whole(number: &Value) -> bool {
    !matches!(number, Value::Float(number) if number.fract() != 0.0 || !number.is_finite())
}

/// Truncates an integer to the width of its field, as Go does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "Go converts between these types in the same way"
)]
pub(super) fn wrap(value: &mut Value, schema: &Schema) {
    // A number outside the range of integers becomes the smallest one.
    let of_float =
        |number: f64| if number.abs() < 9_223_372_036_854_775_808.0 { number as i64 } else { i64::MIN };
    let number = match value {
        Value::Int(number) => *number,
        Value::UInt(number) => of_float(*number as f64),
        Value::Float(number) => of_float(*number),
        _ => return,
    };
    *value = Value::Int(if matches!(schema.value_type, ValueType::Int32) {
        i64::from(number as i32)
    } else {
        number
    });
}

/// The Go kind of a value in an unstructured map.
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
    match schema.value_type {
        ValueType::Int32 => "int32",
        ValueType::Int64 => "int64",
        ValueType::Float => "float64",
        ValueType::Bool => "bool",
        _ => "string",
    }
}
