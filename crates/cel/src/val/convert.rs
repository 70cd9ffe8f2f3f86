//! Conversions between value types, and to JSON trees.

use base64::Engine as _;
use value::Value;
use value::time::parse_duration;

use super::{Val, number, time};
use crate::eval::{Error, EvalResult};
use crate::types::Type;

/// Converts an integer to the nearest double.
#[expect(clippy::cast_precision_loss, reason = "CEL's conversion rounds")]
pub(crate) fn int_to_double(i: i64) -> f64 {
    i as f64
}

/// Converts an unsigned integer to the nearest double.
#[expect(clippy::cast_precision_loss, reason = "CEL's conversion rounds")]
pub(crate) fn uint_to_double(u: u64) -> f64 {
    u as f64
}

/// Converts a value to another type, as `int()`, `string()` and the other conversion functions do.
pub(crate) fn convert<'a>(val: &Val<'a>, to: &Type) -> EvalResult<'a> {
    let converted = match (to, val) {
        (Type::Bool, Val::Bool(_))
        | (Type::Int, Val::Int(_))
        | (Type::Uint, Val::Uint(_))
        | (Type::Double, Val::Double(_))
        | (Type::String, Val::String(_))
        | (Type::Bytes, Val::Bytes(_))
        | (Type::Duration, Val::Duration(_))
        | (Type::Timestamp, Val::Timestamp(_)) => Some(val.clone()),
        (Type::Bool, Val::String(s)) => match s.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(Val::Bool(false)),
            _ => None,
        },
        (Type::Int, Val::Double(d)) => {
            // The bounds themselves are refused, because doubles cannot distinguish them from their neighbors.
            const END: f64 = 9_223_372_036_854_775_808.0;
            if !d.is_finite() || *d <= -END || *d >= END {
                return Err(Error::new("integer overflow"));
            }
            number::double_as_int(d.trunc()).map(Val::Int)
        }
        (Type::Int, Val::Uint(u)) => {
            Some(Val::Int(i64::try_from(*u).map_err(|_| Error::new("integer overflow"))?))
        }
        (Type::Int, Val::String(s)) => s.parse().ok().map(Val::Int),
        (Type::Int, Val::Duration(nanos)) => Some(Val::Int(*nanos)),
        (Type::Int, Val::Timestamp(t)) => Some(Val::Int(t.seconds)),
        (Type::Uint, Val::Double(d)) => {
            if !d.is_finite() || *d < 0.0 || *d >= 18_446_744_073_709_551_616.0 {
                return Err(Error::new("unsigned integer overflow"));
            }
            number::double_as_uint(d.trunc()).map(Val::Uint)
        }
        (Type::Uint, Val::Int(i)) => {
            Some(Val::Uint(u64::try_from(*i).map_err(|_| Error::new("unsigned integer overflow"))?))
        }
        (Type::Uint, Val::String(s)) => s.parse().ok().filter(|_| !s.starts_with('+')).map(Val::Uint),
        (Type::Double, Val::Int(i)) => Some(Val::Double(int_to_double(*i))),
        (Type::Double, Val::Uint(u)) => Some(Val::Double(uint_to_double(*u))),
        (Type::Double, Val::String(s)) => go_float(s).map(Val::Double),
        (Type::String, _) => text(val)?.map(Val::string),
        (Type::Bytes, Val::String(s)) => Some(Val::Bytes(s.as_bytes().into())),
        (Type::Duration, Val::String(s)) => parse_duration(s).ok().map(Val::Duration),
        (Type::Timestamp, Val::Int(seconds)) => {
            if !(time::EARLIEST..=time::LATEST).contains(seconds) {
                return Err(Error::new("timestamp overflow"));
            }
            Some(Val::Timestamp(time::CelTimestamp { seconds: *seconds, nanos: 0, offset: 0 }))
        }
        (Type::Timestamp, Val::String(s)) => match time::CelTimestamp::read(s) {
            Some(t) if !(time::EARLIEST..=time::LATEST).contains(&t.seconds) => {
                return Err(Error::new("timestamp overflow"));
            }
            read => read.map(Val::Timestamp),
        },
        _ => None,
    };
    converted.ok_or_else(|| {
        Error::new(format!("type conversion error from '{}' to '{}'", val.type_name(), to.name()))
    })
}

/// The result of `string()`; `None` if the type has no string conversion.
pub(crate) fn text(val: &Val<'_>) -> Result<Option<String>, Error> {
    Ok(Some(match val {
        Val::Null => "null".to_owned(),
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::Uint(u) => u.to_string(),
        Val::Double(d) => number::shortest(*d),
        Val::String(s) => s.as_str().to_owned(),
        Val::Bytes(b) => String::from_utf8(b.to_vec())
            .map_err(|_| Error::new("invalid UTF-8 in bytes, cannot convert to string"))?,
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::Timestamp(t) => t.rfc3339(),
        Val::Type(name) => name.to_string(),
        Val::Ext(ext) => return Ok(ext.text()),
        Val::List(_) | Val::Map(_) | Val::Optional(_) | Val::Object(_) => return Ok(None),
    }))
}

/// Parses a float as Go's `strconv.ParseFloat`.
pub(crate) fn go_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut lower = unsigned.to_ascii_lowercase();
    if lower.contains('_') {
        if !underscores_separate_digits(&lower) {
            return None;
        }
        lower.retain(|c| c != '_');
    }
    let magnitude = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => return (unsigned.len() == text.len()).then_some(f64::NAN),
        _ if lower.starts_with("0x") => hexadecimal(&lower)?,
        _ => {
            if !lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                return None;
            }
            lower.parse::<f64>().ok().filter(|f| f.is_finite())?
        }
    };
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// True if every underscore is between digits, or between a hexadecimal prefix and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let hexadecimal = text.starts_with("0x");
    let digit = |c: char| c.is_ascii_digit() || (hexadecimal && c.is_ascii_hexdigit());
    let mut before = None;
    let mut chars = text.strip_prefix("0x").unwrap_or(text).chars().peekable();
    if hexadecimal {
        before = Some('0');
    }
    while let Some(c) = chars.next() {
        if c == '_' && !(before.is_some_and(digit) && chars.peek().copied().is_some_and(digit)) {
            return false;
        }
        before = Some(c);
    }
    true
}

/// Parses a hexadecimal float such as `0x1.8p3`; the exponent is required.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.strip_prefix("0x")?.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let digits = i32::try_from(fraction.len()).ok()?;
    let number = number * 2f64.powi(exponent.checked_sub(digits.checked_mul(4)?)?);
    number.is_finite().then_some(number)
}

/// The largest integer that a JSON number represents exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Upper bound of a converted tree in bytes. Only values that share parts exceed it.
const MAX_TREE_BYTES: usize = 16 << 20;
pub(crate) const TOO_LARGE: &str = "the value is too large";

/// Converts a value to a JSON tree.
pub(crate) fn to_value(val: &Val<'_>) -> Result<Value, String> {
    tree(val, &mut { MAX_TREE_BYTES })
}

fn tree(val: &Val<'_>, left: &mut usize) -> Result<Value, String> {
    let size = match val {
        Val::String(s) => 8 + s.len(),
        Val::Bytes(b) => 8 + b.len(),
        _ => 8,
    };
    *left = left.checked_sub(size).ok_or(TOO_LARGE)?;
    Ok(match val {
        Val::Bool(b) => Value::Bool(*b),
        Val::Int(i) => Value::Int(*i),
        Val::Uint(u) => i64::try_from(*u).map_or(Value::UInt(*u), Value::Int),
        Val::Double(d) => Value::Float(*d),
        Val::String(s) => Value::String(s.as_str().into()),
        Val::Bytes(b) => Value::String(base64::engine::general_purpose::STANDARD.encode(b).into()),
        Val::List(list) => Value::List(list.iter().map(|item| tree(&item, left)).collect::<Result<_, _>>()?),
        Val::Map(map) => Value::Map(
            map.iter()
                .map(|(key, val)| {
                    let key = match &key {
                        Val::String(s) => s.as_str().to_owned(),
                        Val::Bool(_) | Val::Int(_) | Val::Uint(_) => key.to_string(),
                        other => return Err(format!("unsupported map key type {}", other.type_name())),
                    };
                    Ok((key.into(), tree(&val, left)?))
                })
                .collect::<Result<_, String>>()?,
        ),
        Val::Duration(nanos) => Value::String(time::duration_text(*nanos).into()),
        Val::Timestamp(t) => Value::String(t.rfc3339().into()),
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Optional(Some(inner)) => tree(inner, left)?,
        Val::Object(object) => Value::Map(
            object
                .fields
                .iter()
                .map(|(name, val)| Ok((name.clone(), tree(val, left)?)))
                .collect::<Result<_, String>>()?,
        ),
        Val::Type(name) => return Err(format!("type conversion not supported for 'type' {name}")),
        Val::Ext(ext) => match ext.text() {
            Some(text) => Value::String(text.into()),
            None => return Err(format!("type conversion error from '{}'", ext.type_name())),
        },
    })
}

/// Converts a value to a JSON tree in which large integers are strings, as in cel-go.
pub(crate) fn to_json(val: &Val<'_>) -> Result<Value, String> {
    fn safe(value: &mut Value) {
        match value {
            Value::Int(i) if i.unsigned_abs() > MAX_SAFE_INTEGER => {
                *value = Value::String(i.to_string().into());
            }
            Value::Float(f) if f.is_nan() => *value = Value::String("NaN".into()),
            Value::Float(f) if f.is_infinite() => {
                *value = Value::String(if *f > 0.0 { "Infinity" } else { "-Infinity" }.into());
            }
            Value::UInt(u) if *u > MAX_SAFE_INTEGER => *value = Value::String(u.to_string().into()),
            Value::List(items) => items.iter_mut().for_each(safe),
            Value::Map(map) => map.iter_mut().for_each(|(_, item)| safe(item)),
            _ => {}
        }
    }
    let mut value = to_value(val)?;
    safe(&mut value);
    Ok(value)
}
