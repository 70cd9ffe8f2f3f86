//! Decodes a message into the map that its struct is in JSON.
//!
//! Protobuf allows a message to be split: several occurrences of a message field form one message with the fields of all. The parts are
//! therefore collected while the enclosing message is read and decoded together at its end, in linear time even if a client repeats a
//! field a million times.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use value::{Map, Str, Value, json};

use super::layout::{self, Layout, MessageField, ProtobufScalar, ProtobufType};
use super::special;
use super::wire::{self, Datum, Wire};

/// Decodes the message formed by `parts` into `map`, which is at `depth` in the result (the object itself is at 1).
pub(super) fn read(
    layout: &'static Layout,
    parts: &[&[u8]],
    map: &mut Map,
    depth: usize,
) -> Result<(), String> {
    check_depth(depth)?;
    let mut messages: Vec<(&'static MessageField, Vec<&[u8]>)> = Vec::new();
    let mut maps: Vec<(&'static MessageField, Vec<(Str, Value)>)> = Vec::new();
    for part in parts {
        let mut wire = Wire::new(part);
        while let Some(wire::WireField { number, datum }) = wire.next(layout.message)? {
            let Some(field) = layout.field(number) else { continue };
            match &field.shape {
                ProtobufType::Scalar(kind) => {
                    map.insert(field.name.clone(), scalar(*kind, datum, &field.name)?);
                }
                ProtobufType::Struct(_) | ProtobufType::Special(_) | ProtobufType::Embedded(_) => match datum
                {
                    Datum::Bytes(bytes) => gather(&mut messages, field, bytes),
                    _ => return Err(datum.wrong(&field.name)),
                },
                ProtobufType::Map(values) => match datum {
                    Datum::Bytes(bytes) => {
                        check_depth(depth + 1)?;
                        gather(&mut maps, field, entry(values, bytes, &field.name, depth + 2)?);
                    }
                    _ => return Err(datum.wrong(&field.name)),
                },
                ProtobufType::List(items) => {
                    check_depth(depth + 1)?;
                    let list = map.entry_or_insert_with(&field.name, || Value::List(Vec::new()));
                    if let Some(list) = list.as_list_mut() {
                        add(list, items, datum, &field.name, depth + 2)?;
                    }
                }
            }
        }
    }
    for (field, parts) in messages {
        if let ProtobufType::Embedded(layout) = &field.shape {
            read(layout, &parts, map, depth)?;
        } else {
            map.insert(field.name.clone(), whole(&field.shape, &parts, depth + 1)?);
        }
    }
    for (field, entries) in maps {
        map.insert(field.name.clone(), Map::from_entries(entries).0);
    }
    Ok(())
}

/// Adds an item to those collected for `field`. A linear search suffices because a message has few fields.
fn gather<T>(gathered: &mut Vec<(&'static MessageField, Vec<T>)>, field: &'static MessageField, item: T) {
    match gathered.iter_mut().find(|(known, _)| std::ptr::eq(*known, field)) {
        Some((_, items)) => items.push(item),
        None => gathered.push((field, vec![item])),
    }
}

/// Adds one occurrence of a repeated field to a list: an item, or packed numbers.
fn add(
    list: &mut Vec<Value>,
    items: &ProtobufType,
    datum: Datum<'_>,
    name: &str,
    depth: usize,
) -> Result<(), String> {
    match (items, datum) {
        (
            ProtobufType::Scalar(
                kind @ (ProtobufScalar::Int32 | ProtobufScalar::Int64 | ProtobufScalar::Bool),
            ),
            Datum::Bytes(bytes),
        ) => {
            let mut numbers = Wire::new(bytes);
            while let Some(number) = numbers.packed()? {
                list.push(scalar(*kind, Datum::Varint(number), name)?);
            }
        }
        _ => list.push(element(items, datum, name, depth)?),
    }
    Ok(())
}

/// Decodes a map entry. A missing key or value is the zero value.
fn entry(values: &ProtobufType, bytes: &[u8], name: &str, depth: usize) -> Result<(Str, Value), String> {
    let mut key = Str::new_static("");
    let mut value = None;
    let mut wire = Wire::new(bytes);
    while let Some(field) = wire.next(name)? {
        match field.number {
            1 => key = json::lossy(field.bytes(name)?).into(),
            2 => value = Some(field.datum),
            _ => {}
        }
    }
    let value = match value {
        Some(datum) => element(values, datum, name, depth)?,
        None => zero(values, depth)?,
    };
    Ok((key, value))
}

/// Decodes a list item or the value of a map entry.
fn element(shape: &ProtobufType, datum: Datum<'_>, name: &str, depth: usize) -> Result<Value, String> {
    match (shape, datum) {
        (ProtobufType::Scalar(kind), _) => scalar(*kind, datum, name),
        (_, Datum::Bytes(bytes)) => whole(shape, &[bytes], depth),
        _ => Err(datum.wrong(name)),
    }
}

/// Decodes a message that is a complete value.
pub(super) fn whole(shape: &ProtobufType, parts: &[&[u8]], depth: usize) -> Result<Value, String> {
    match shape {
        ProtobufType::Struct(position) => {
            let mut map = Map::new();
            if let Some(layout) = layout::at(*position) {
                read(layout, parts, &mut map, depth)?;
            }
            Ok(Value::Map(map))
        }
        ProtobufType::Special(kind) => special::read(*kind, parts, depth),
        // Protobuf has no lists of lists or maps of lists, and embedded structs are handled by the caller.
        ProtobufType::Scalar(_)
        | ProtobufType::List(_)
        | ProtobufType::Map(_)
        | ProtobufType::Embedded(_) => Ok(Value::Null),
    }
}

fn scalar(kind: ProtobufScalar, datum: Datum<'_>, name: &str) -> Result<Value, String> {
    Ok(match (kind, datum) {
        (ProtobufScalar::Text, Datum::Bytes(bytes)) => Value::String(json::lossy(bytes).into()),
        (ProtobufScalar::Bytes, Datum::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (ProtobufScalar::Bool, Datum::Varint(number)) => Value::Bool(number != 0),
        (ProtobufScalar::Int32, Datum::Varint(number)) => wire::int32(number).into(),
        (ProtobufScalar::Int64, Datum::Varint(number)) => Value::Int(number.cast_signed()),
        (ProtobufScalar::Double, Datum::Fixed64(bits)) => double(f64::from_bits(bits))?,
        _ => return Err(datum.wrong(name)),
    })
}

/// Converts a float to JSON, where whole numbers have no fraction and are therefore integers.
fn double(number: f64) -> Result<Value, String> {
    /// 2⁵³, up to which floats represent every integer exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.is_nan() {
        return Err("json: unsupported value: NaN".to_owned());
    }
    if number.is_infinite() {
        let sign = if number > 0.0 { '+' } else { '-' };
        return Err(format!("json: unsupported value: {sign}Inf"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "used only where it is exact")]
    let whole = number as i64;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT;
    Ok(if is_whole { Value::Int(whole) } else { Value::Float(number) })
}

/// The value of a map entry without a value.
fn zero(shape: &ProtobufType, depth: usize) -> Result<Value, String> {
    match shape {
        ProtobufType::Scalar(ProtobufScalar::Text | ProtobufScalar::Bytes) => {
            Ok(Value::String(Str::new_static("")))
        }
        ProtobufType::Scalar(ProtobufScalar::Bool) => Ok(Value::Bool(false)),
        ProtobufType::Scalar(ProtobufScalar::Int32 | ProtobufScalar::Int64 | ProtobufScalar::Double) => {
            Ok(Value::Int(0))
        }
        _ => whole(shape, &[], depth),
    }
}

/// Limits the depth to that of parsed JSON, on which later stages rely.
pub(super) fn check_depth(depth: usize) -> Result<(), String> {
    if depth > json::MAX_DEPTH { Err("exceeded max depth".to_owned()) } else { Ok(()) }
}
