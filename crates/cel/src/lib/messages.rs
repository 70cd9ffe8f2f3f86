//! Struct types: protobuf's well-known types and the types of mutating policies.

use std::sync::Arc;

use value::go;

use crate::eval::{Error, EvalResult};
use crate::schema::is_object;
use crate::types::{Type, read};
use crate::val::time::{EARLIEST, LATEST};
use crate::val::{CelTimestamp, ListVal, MapEntries, MapVal, ObjectVal, Steps, Val, equal_nested};

const PREFIX: &str = "google.protobuf.";

/// The scalar type inside a protobuf wrapper.
fn wrapped(name: &str) -> Option<Type> {
    Some(match name.strip_prefix(PREFIX)? {
        "BoolValue" => Type::Bool,
        "BytesValue" => Type::Bytes,
        "DoubleValue" | "FloatValue" => Type::Double,
        "Int64Value" | "Int32Value" => Type::Int,
        "UInt64Value" | "UInt32Value" => Type::Uint,
        "StringValue" => Type::String,
        _ => return None,
    })
}

/// The CEL type of a well-known type name.
pub(crate) fn type_called(name: &str) -> Option<Type> {
    if let Some(scalar) = wrapped(name) {
        return Some(Type::Wrapper(Arc::new(scalar)));
    }
    Some(match name.strip_prefix(PREFIX)? {
        "Any" => Type::Any,
        "Duration" => Type::Duration,
        "Timestamp" => Type::Timestamp,
        "ListValue" => Type::list(Type::Dyn),
        "Struct" => Type::map(Type::String, Type::Dyn),
        "Value" => Type::Dyn,
        "Empty" => Type::Struct(name.into()),
        _ => return None,
    })
}

/// True if the name stands for a CEL type of another name; it does not exist as a run-time type.
pub(crate) fn is_other_type(name: &str) -> bool {
    type_called(name).is_some_and(|ty| ty.name() != name || ty == Type::Any)
}

/// The type of a well-known type's field.
pub(crate) fn field_type(name: &str, field: &str) -> Option<Type> {
    if let Some(scalar) = wrapped(name) {
        return (field == "value").then_some(scalar);
    }
    let ty = match (name.strip_prefix(PREFIX)?, field) {
        ("Any", "value") => "bytes",
        ("Duration" | "Timestamp", "seconds" | "nanos") | ("Value", "null_value") => "int",
        ("Value", "number_value") => "double",
        ("Any", "type_url") | ("Value", "string_value") => "string",
        ("Value", "bool_value") => "bool",
        ("Struct", "fields") | ("Value", "struct_value") => "map(string, dyn)",
        ("ListValue", "values") | ("Value", "list_value") => "list(dyn)",
        _ => return None,
    };
    Some(read(ty))
}

/// The value of a well-known enum constant.
pub(crate) fn enum_value(name: &str) -> Option<i64> {
    (name == "google.protobuf.NullValue.NULL_VALUE").then_some(0)
}

/// Creates a struct value. Instances of well-known types become the CEL values they stand for.
pub(crate) fn make(object: ObjectVal<'_>) -> EvalResult<'_> {
    let name = object.type_name.clone();
    let int = |field: &str| object.get(field).and_then(Val::as_int).unwrap_or(0);
    if let Some(scalar) = wrapped(&name) {
        let val = object.get("value").cloned();
        return narrow(
            &name,
            val.unwrap_or(match scalar {
                Type::Bool => Val::Bool(false),
                Type::Bytes => Val::Bytes([].into()),
                Type::Double => Val::Double(0.0),
                Type::Int => Val::Int(0),
                Type::Uint => Val::Uint(0),
                _ => Val::str(""),
            }),
        );
    }
    Ok(match name.strip_prefix(PREFIX) {
        Some("Duration") => {
            let nanos = int("seconds").checked_mul(1_000_000_000).and_then(|n| n.checked_add(int("nanos")));
            Val::Duration(nanos.ok_or_else(|| Error::new("duration overflow"))?)
        }
        Some("Timestamp") => {
            let seconds = int("seconds");
            if !(EARLIEST..=LATEST).contains(&seconds) {
                return Err(Error::new("timestamp overflow"));
            }
            let start = CelTimestamp { seconds, nanos: 0, offset: 0 };
            Val::Timestamp(start.plus(int("nanos")).ok_or_else(|| Error::new("timestamp overflow"))?)
        }
        Some("ListValue") => object.get("values").cloned().unwrap_or_else(|| Val::list(Vec::new())),
        Some("Struct") => {
            object.get("fields").cloned().unwrap_or_else(|| Val::Map(MapVal::of(MapEntries::default())))
        }
        Some("Value") => match object.fields.last() {
            Some((field, _)) if field == "null_value" => Val::Null,
            Some((_, val)) => val.clone(),
            None => Val::Null,
        },
        Some("Any") => {
            let mut fields = Vec::new();
            if let Some(Val::String(url)) = object.get("type_url").filter(|url| !url.is_zero()) {
                fields.push(format!("type_url:{}", text_format(url.as_bytes())));
            }
            if let Some(Val::Bytes(bytes)) = object.get("value").filter(|bytes| !bytes.is_zero()) {
                fields.push(format!("value:{}", text_format(bytes)));
            }
            let text = fields.join(" ");
            return Err(Error::new(format!("unsupported conversion to ref.Val: (*dynamicpb.Message){text}")));
        }
        _ if name == "JSONPatch" => return patch(object),
        _ => Val::Object(Arc::new(object)),
    })
}

/// Formats bytes as protobuf's text format does.
fn text_format(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\0'..' ' | '\x7f' => go::escape_byte_to(&mut out, c as u8),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            go::escape_byte_to(&mut out, *byte);
        }
    }
    out.push('"');
    out
}

/// Checks or rounds values of 32-bit wrapper types.
fn narrow<'a>(name: &str, val: Val<'a>) -> EvalResult<'a> {
    match (name.strip_prefix(PREFIX), val) {
        (Some("Int32Value"), Val::Int(i)) if i32::try_from(i).is_err() => Err(Error::new("integer overflow")),
        (Some("UInt32Value"), Val::Uint(u)) if u32::try_from(u).is_err() => {
            Err(Error::new("unsigned integer overflow"))
        }
        #[expect(clippy::cast_possible_truncation, reason = "a float has 32 bits")]
        (Some("FloatValue"), Val::Double(d)) => Ok(Val::Double(f64::from(d as f32))),
        (_, val) => Ok(val),
    }
}

/// Reads a field. With `presence`, an unset field gives `None`. `typed` is set if the checker resolved the type: then
/// nested `Object` values are converted to maps, counted in steps.
pub(crate) fn field<'a>(
    object: &ObjectVal<'a>,
    name: &str,
    presence: bool,
    typed: Option<&Steps<'_>>,
) -> Result<Option<Val<'a>>, Error> {
    let val = object.get(name);
    if object.type_name == "JSONPatch" {
        return match (name, val) {
            ("value", Some(val)) => Ok(Some(val.clone())),
            ("value", None) => Ok((!presence).then_some(Val::Null)),
            ("op" | "path" | "from", Some(Val::String(text))) if !presence || !text.is_empty() => {
                Ok(Some(Val::String(text.clone())))
            }
            ("op" | "path" | "from", _) => Ok((!presence).then(|| Val::str(""))),
            _ if presence => Err(Error::new(format!("unsupported field: {name}"))),
            _ => Err(Error::new(format!("unsupported indexer: {name}"))),
        };
    }
    if is_object(&object.type_name) {
        // cel-go stores plain maps and lists behind a field, and without a static type finds no fields.
        return match (val, typed) {
            (Some(val), Some(steps)) => plain(steps, val).map(Some),
            _ if presence => Ok(None),
            (None, Some(_)) => Ok(Some(Val::Null)),
            _ => Err(Error::new(format!("no such key: {name}"))),
        };
    }
    match val {
        Some(val) => Ok(Some(val.clone())),
        None if presence => Ok(None),
        None => Err(Error::new(format!("no such key: {name}"))),
    }
}

/// Converts nested `Object` values to maps.
fn plain<'a>(steps: &Steps<'_>, val: &Val<'a>) -> EvalResult<'a> {
    Ok(match val {
        Val::Object(object) if is_object(&object.type_name) => {
            steps.take(object.fields.len())?;
            let mut entries = MapEntries::default();
            for (name, val) in &object.fields {
                entries.insert(Val::string(name.as_str()), plain(steps, val)?);
            }
            Val::Map(MapVal::of(entries))
        }
        Val::List(list @ (ListVal::Owned(_) | ListVal::Borrowed(_))) => {
            steps.take(list.len())?;
            Val::list(list.iter().map(|item| plain(steps, &item)).collect::<Result<_, _>>()?)
        }
        Val::Map(map @ (MapVal::Owned(_) | MapVal::Borrowed(_))) => {
            steps.take(map.len())?;
            let mut entries = MapEntries::default();
            for (key, val) in map {
                entries.insert(key, plain(steps, &val)?);
            }
            Val::Map(MapVal::of(entries))
        }
        other => other.clone(),
    })
}

/// Equality of two `Object` values. Types must be equal too, and lists are never equal, as in Kubernetes.
pub(crate) fn same_objects(steps: &Steps<'_>, a: &ObjectVal<'_>, b: &ObjectVal<'_>) -> Result<bool, Error> {
    fn same(steps: &Steps<'_>, a: &Val<'_>, b: &Val<'_>) -> Result<bool, Error> {
        match (a, b) {
            (Val::Object(a), Val::Object(b)) => same_objects(steps, a, b),
            (Val::List(_), _) => Ok(false),
            (Val::Map(a), Val::Map(b)) => {
                steps.take(a.len())?;
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, val) in a {
                    match b.find(&key) {
                        Some(Ok(other)) if same(steps, &val, &other)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            _ => Ok(a.kind() == b.kind() && equal_nested(steps, a, b, false)?),
        }
    }
    steps.take(a.fields.len())?;
    if a.type_name != b.type_name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for (at, (name, val)) in a.fields.iter().enumerate() {
        match b.get_near(steps, at, name)? {
            Some(other) if same(steps, val, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Checks that `op`, `path` and `from` of a `JSONPatch` are strings.
fn patch(object: ObjectVal<'_>) -> EvalResult<'_> {
    for (name, val) in &object.fields {
        if matches!(name.as_str(), "op" | "path" | "from") && !matches!(val, Val::String(_)) {
            let ty = native_type(val);
            return Err(Error::new(format!("unexpected type {ty} for JSONPatchType '{name}' field")));
        }
    }
    Ok(Val::Object(Arc::new(object)))
}

/// Name of the Go type that cel-go's `Value()` returns.
fn native_type(val: &Val<'_>) -> &'static str {
    match val {
        Val::Null => "structpb.NullValue",
        Val::Bool(_) => "bool",
        Val::Int(_) => "int64",
        Val::Uint(_) => "uint64",
        Val::Double(_) => "float64",
        Val::String(_) | Val::Type(_) => "string",
        Val::Bytes(_) => "[]uint8",
        Val::List(ListVal::Data(..)) => "[]interface {}",
        Val::List(_) => "[]ref.Val",
        Val::Map(MapVal::Data(..)) | Val::Object(_) => "map[string]interface {}",
        Val::Map(_) => "map[ref.Val]ref.Val",
        Val::Duration(_) => "time.Duration",
        Val::Timestamp(_) => "time.Time",
        Val::Optional(None) => "<nil>",
        Val::Optional(Some(inner)) => native_type(inner),
        Val::Ext(ext) => ext.go_type(),
    }
}
