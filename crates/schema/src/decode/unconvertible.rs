//! What the converter says that Kubernetes makes objects of maps with, where a strategic merge patch never was JSON.

use value::Value;

use crate::{Format, Kind, Schema};

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

/// Whether a number has no fraction.
pub(super) fn is_whole(number: &Value) -> bool {
    !matches!(number, Value::Float(number) if number.fract() != 0.0 || !number.is_finite())
}

/// A whole number in a field of fewer bits: the lower ones are left, as Go leaves them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "Go converts between these types in the same way"
)]
pub(super) fn wrap(value: &mut Value, schema: &Schema) {
    // What no integer can hold becomes the least of them.
    let of_float =
        |number: f64| if number.abs() < 9_223_372_036_854_775_808.0 { number as i64 } else { i64::MIN };
    let number = match value {
        Value::Int(number) => *number,
        Value::UInt(number) => of_float(*number as f64),
        Value::Float(number) => of_float(*number),
        _ => return,
    };
    *value = Value::Int(if matches!(schema.kind, Kind::Int32) { i64::from(number as i32) } else { number });
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
