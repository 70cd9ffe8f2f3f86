//! Decodes messages with a custom JSON encoding: times, quantities, JSON in bytes and unions.

use api::time::{GO_ZERO_SECONDS, Timestamp};
use value::quantity::Quantity;
use value::{Map, Str, Value, json};

use super::layout::{self, Special};
use super::message::{self, check_depth};
use super::wire::{self, Wire};
use crate::SchemaOr;

/// The first second of the year 10000, as Unix time.
const END_OF_TIME: i64 = 253_402_300_800;

/// `Type` of an `IntOrString` that is a number.
pub(super) const INT_KIND: i64 = 0;
/// `Type` of an `IntOrString` that is a text.
pub(super) const STRING_KIND: i64 = 1;

/// Decodes the message formed by `parts`, whose value is at `depth` in the result.
pub(super) fn read(kind: Special, parts: &[&[u8]], depth: usize) -> Result<Value, String> {
    match kind {
        // Each part replaces the whole time, so the last one wins.
        Special::Time => Ok(time(parts.last().copied().unwrap_or_default(), "Time")?.time().into()),
        Special::MicroTime => {
            Ok(time(parts.last().copied().unwrap_or_default(), "MicroTime")?.micro_time().into())
        }
        Special::Quantity => quantity(parts),
        Special::IntOrString => int_or_string(parts),
        Special::Raw => raw(parts, depth),
        Special::Items => items(parts, depth),
        Special::SchemaOr(or) => schema_or(or, parts, depth),
    }
}

/// Decodes a time. An empty message is Go's zero time.
fn time(bytes: &[u8], message: &str) -> Result<Timestamp, String> {
    if bytes.is_empty() {
        return Ok(Timestamp::from_seconds(GO_ZERO_SECONDS));
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut wire = Wire::new(bytes);
    while let Some(field) = wire.next(message)? {
        match field.number {
            1 => seconds = field.varint("Seconds")?.cast_signed(),
            2 => nanos = wire::int32(field.varint("Nanos")?),
            _ => {}
        }
    }
    // Only a micro time has a fraction, with six digits.
    let micros = if message == "Time" { 0 } else { i64::from(nanos / 1000) };
    let seconds = seconds.saturating_add(micros.div_euclid(1_000_000));
    // The text of other years could not be parsed again.
    if !(GO_ZERO_SECONDS..END_OF_TIME).contains(&seconds) {
        return Err(format!("proto: {message}: year is outside of range [1,9999]"));
    }
    let fraction = Timestamp::from_micros(micros.rem_euclid(1_000_000));
    Ok(Timestamp { seconds, nanos: fraction.nanos })
}

fn quantity(parts: &[&[u8]]) -> Result<Value, String> {
    let mut quantity = Value::String(Str::new_static("0"));
    for part in parts {
        let mut wire = Wire::new(part);
        while let Some(field) = wire.next("Quantity")? {
            if field.number == 1 {
                let text = json::lossy(field.bytes("String_")?);
                Quantity::parse(&text).map_err(|error| error.to_string())?;
                quantity = Value::String(text.into());
            }
        }
    }
    Ok(quantity)
}

fn int_or_string(parts: &[&[u8]]) -> Result<Value, String> {
    let (mut kind, mut number, mut text) = (0, 0, Str::new_static(""));
    for part in parts {
        let mut wire = Wire::new(part);
        while let Some(field) = wire.next("IntOrString")? {
            match field.number {
                1 => kind = field.varint("Type")?,
                2 => number = wire::int32(field.varint("IntVal")?),
                3 => text = json::lossy(field.bytes("StrVal")?).into(),
                _ => {}
            }
        }
    }
    match kind.cast_signed() {
        INT_KIND => Ok(number.into()),
        STRING_KIND => Ok(Value::String(text)),
        _ => Err("impossible IntOrString.Type".to_owned()),
    }
}

/// Decodes JSON in bytes; no bytes mean null.
fn raw(parts: &[&[u8]], depth: usize) -> Result<Value, String> {
    let mut bytes: &[u8] = &[];
    for part in parts {
        let mut wire = Wire::new(part);
        while let Some(field) = wire.next("RawExtension")? {
            if field.number == 1 {
                bytes = field.bytes("Raw")?;
            }
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let value = json::parse(bytes).map_err(|error| format!("json parse error: {error}"))?;
    // `value.depth()` counts the value itself, which `depth` already includes.
    check_depth((depth + value.depth()).saturating_sub(1))?;
    Ok(value)
}

fn items(parts: &[&[u8]], depth: usize) -> Result<Value, String> {
    check_depth(depth)?;
    let mut items = Vec::new();
    for part in parts {
        let mut wire = Wire::new(part);
        while let Some(field) = wire.next("Items")? {
            if field.number == 1 {
                items.push(Value::String(json::lossy(field.bytes("Items")?).into()));
            }
        }
    }
    Ok(Value::List(items))
}

/// The field number of the schema in a union.
pub(super) fn schema_number(or: SchemaOr) -> usize {
    match or {
        SchemaOr::Bool => 2,
        SchemaOr::Array | SchemaOr::Strings => 1,
    }
}

/// Decodes a schema or its alternative. If both are set, the precedence is that of Kubernetes' JSON encoder.
fn schema_or(or: SchemaOr, parts: &[&[u8]], depth: usize) -> Result<Value, String> {
    let schema_number = schema_number(or);
    let message = match or {
        SchemaOr::Array => "JSONSchemaPropsOrArray",
        SchemaOr::Bool => "JSONSchemaPropsOrBool",
        SchemaOr::Strings => "JSONSchemaPropsOrStringArray",
    };
    let mut schemas: Vec<&[u8]> = Vec::new();
    let (mut allows, mut others) = (false, Vec::new());
    for part in parts {
        let mut wire = Wire::new(part);
        while let Some(field) = wire.next(message)? {
            match (field.number, or) {
                (number, _) if number == schema_number => schemas.push(field.bytes("Schema")?),
                (1, SchemaOr::Bool) => allows = field.varint("Allows")? != 0,
                (2, SchemaOr::Array) => {
                    others.push(schema_props(&[field.bytes("JSONSchemas")?], depth + 1)?);
                }
                (2, SchemaOr::Strings) => {
                    others.push(Value::String(json::lossy(field.bytes("Property")?).into()));
                }
                _ => {}
            }
        }
    }
    if !others.is_empty() {
        check_depth(depth)?;
        return Ok(Value::List(others));
    }
    match or {
        _ if !schemas.is_empty() => schema_props(&schemas, depth),
        SchemaOr::Bool => Ok(Value::Bool(allows)),
        SchemaOr::Array | SchemaOr::Strings => Ok(Value::Null),
    }
}

fn schema_props(parts: &[&[u8]], depth: usize) -> Result<Value, String> {
    let mut map = Map::new();
    if let Some(layout) = crate::named("apiextensions.v1.JSONSchemaProps").and_then(layout::of) {
        message::read(layout, parts, &mut map, depth)?;
    }
    Ok(Value::Map(map))
}
