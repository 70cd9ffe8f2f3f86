//! Equality and ordering of values.

use std::cmp::Ordering;

use super::{ListVal, MapVal, Steps, Val};
use crate::eval::Error;
use crate::lib::messages;
use crate::schema::is_object;

/// CEL's `==`. Values of different types are not equal, except that numbers compare by value. Some library values
/// return an error for other types.
pub(crate) fn equal(steps: &Steps<'_>, a: &Val<'_>, b: &Val<'_>) -> Result<bool, Error> {
    Ok(match (a, b) {
        (Val::Null, Val::Null) => true,
        (Val::Null, _) | (_, Val::Null) => false,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::String(a), Val::String(b)) => return same_texts(steps, a, b),
        (Val::Int(a), Val::Int(b)) | (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            numbers(a, b) == Some(Ordering::Equal)
        }
        (Val::Bytes(a), Val::Bytes(b)) => {
            steps.take_bytes(a.len().min(b.len()))?;
            a == b
        }
        (Val::Timestamp(a), Val::Timestamp(b)) => a.same_instant(b),
        (Val::Type(a), Val::Type(b)) => a == b,
        (Val::List(a), Val::List(b)) => return lists(steps, a, b),
        (Val::Map(a), Val::Map(b)) => return maps(steps, a, b),
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => return equal(steps, a, b),
            _ => false,
        },
        (Val::Object(a), Val::Object(b)) if is_object(&a.type_name) => {
            return messages::same_objects(steps, a, b);
        }
        (Val::Object(a), Val::Object(b)) => {
            if a.type_name != b.type_name || a.fields.len() != b.fields.len() {
                return Ok(false);
            }
            for (at, (name, val)) in a.fields.iter().enumerate() {
                steps.take(1)?;
                match b.get_near(steps, at, name)? {
                    Some(other) if equal_nested(steps, val, other, true)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Val::Ext(a), _) => {
            steps.take_bytes(a.bytes())?;
            return a.equal(b);
        }
        _ => false,
    })
}

/// Compares two strings. The bytes count as steps, because inside of lists they are not part of the cost.
fn same_texts(steps: &Steps<'_>, a: &str, b: &str) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    steps.take_bytes(a.len())?;
    Ok(a == b)
}

/// Like [`equal`] for nested values: returns `unknown` for values that cannot be compared, and fails only with fatal
/// errors.
pub(crate) fn equal_nested(
    steps: &Steps<'_>,
    a: &Val<'_>,
    b: &Val<'_>,
    unknown: bool,
) -> Result<bool, Error> {
    match equal(steps, a, b) {
        Err(error) if !error.is_fatal() => Ok(unknown),
        outcome => outcome,
    }
}

fn lists(steps: &Steps<'_>, a: &ListVal<'_>, b: &ListVal<'_>) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let ListVal::Data(a_items, Some(schema)) = a
        && let Some(same) = schema.equal_lists(steps, a_items, b)?
    {
        return Ok(same);
    }
    if let ListVal::Data(b_items, Some(schema)) = b
        && let Some(same) = schema.equal_lists(steps, b_items, a)?
    {
        return Ok(same);
    }
    for (a, b) in a.iter().zip(b.iter()) {
        steps.take(1)?;
        // As in cel-go, elements that cannot be compared do not make lists differ.
        if !equal_nested(steps, &a, &b, true)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps(steps: &Steps<'_>, a: &MapVal<'_>, b: &MapVal<'_>) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, val) in a {
        steps.take(1)?;
        match b.find(&key) {
            Some(Ok(other)) if equal_nested(steps, &val, &other, true)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Orders two numbers of any types; `None` if one is not a number or is NaN.
fn numbers(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Int(a), Val::Double(b)) => double_int(*b, *a).map(Ordering::reverse),
        (Val::Double(a), Val::Int(b)) => double_int(*a, *b),
        (Val::Uint(a), Val::Double(b)) => double_uint(*b, *a).map(Ordering::reverse),
        (Val::Double(a), Val::Uint(b)) => double_uint(*a, *b),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "cel-go compares as doubles inside the integers' range")]
fn double_int(d: f64, i: i64) -> Option<Ordering> {
    if d < i64::MIN as f64 {
        Some(Ordering::Less)
    } else if d > i64::MAX as f64 {
        Some(Ordering::Greater)
    } else {
        d.partial_cmp(&(i as f64))
    }
}

#[expect(clippy::cast_precision_loss, reason = "cel-go compares as doubles inside the integers' range")]
fn double_uint(d: f64, u: u64) -> Option<Ordering> {
    if d < 0.0 {
        Some(Ordering::Less)
    } else if d > u64::MAX as f64 {
        Some(Ordering::Greater)
    } else {
        d.partial_cmp(&(u as f64))
    }
}

/// Orders two values of an ordered type.
pub(crate) fn compare(a: &Val<'_>, b: &Val<'_>) -> Result<Ordering, Error> {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) | (Val::Duration(a), Val::Duration(b)) => Ok(a.cmp(b)),
        (Val::String(a), Val::String(b)) => Ok(a.as_str().cmp(b.as_str())),
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            numbers(a, b).ok_or_else(|| Error::new("NaN values cannot be ordered"))
        }
        (Val::Bool(a), Val::Bool(b)) => Ok(a.cmp(b)),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(a.cmp(b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => Ok(a.compare(b)),
        // cel-go checks a double for NaN before it looks at the other operand.
        (Val::Double(a), _) if a.is_nan() => Err(Error::new("NaN values cannot be ordered")),
        _ => Err(Error::no_such_overload()),
    }
}

/// True if the list contains an equal value.
pub(crate) fn contains(steps: &Steps<'_>, list: &ListVal<'_>, val: &Val<'_>) -> Result<bool, Error> {
    if let (ListVal::Data(items, None), Val::String(wanted)) = (list, val) {
        for text in items.iter().filter_map(value::Value::as_str) {
            if same_texts(steps, text, wanted)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    for item in list.iter() {
        if equal_nested(steps, val, &item, false)? {
            return Ok(true);
        }
    }
    Ok(false)
}
