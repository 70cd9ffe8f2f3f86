//! What a mutation expression gives, applied to an object in the shape that clients of its version see.

use api::{GroupVersionKind, field};
use cel::{List, Val};
use schema::apply;
use schema::patch::json_patch;
use schema::{Kind, Schema};
use value::{Map, Str, Value};

use super::natives;
use crate::patched::{complete_kind, unreadable_as};

/// How many parts what a mutation gives may have, and how many bytes of text may be in them: several times as many as the largest
/// object. `[x, x]` of `[x, x]` of … is cheap to make and has twice as many with every level, and everything below walks through
/// all of them, and writes them.
const MOST_PARTS: usize = 1 << 21;
const MOST_BYTES: usize = 1 << 24;

fn is_bounded(val: &Val<'_>) -> Result<(), String> {
    let mut room = Room { parts: MOST_PARTS, bytes: MOST_BYTES };
    room.take(val).ok_or_else(|| "what the mutation gives is too large".to_owned())
}

/// What is left of what there may be.
struct Room {
    parts: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, val: &Val<'_>) -> Option<()> {
        self.parts = self.parts.checked_sub(1)?;
        match val {
            Val::String(text) => self.text(text.len()),
            Val::Bytes(bytes) => self.text(bytes.len()),
            Val::Optional(Some(inner)) => self.take(inner),
            Val::List(list) => list.iter().try_for_each(|item| self.take(&item)),
            Val::Map(map) => map.iter().try_for_each(|(key, item)| {
                self.take(&key)?;
                self.take(&item)
            }),
            Val::Object(object) => object.fields.iter().try_for_each(|(name, item)| {
                self.text(name.len())?;
                self.take(item)
            }),
            _ => Some(()),
        }
    }

    fn text(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(())
    }
}

/// Merges an apply configuration. The schema is `None` for kinds that cannot be applied.
pub(super) fn configure(
    config: &Val<'_>,
    object: &Value,
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
) -> Result<Value, String> {
    if !matches!(config, Val::Object(_)) {
        let name = config.type_name();
        return Err(format!("unsupported return type from ApplyConfiguration expression: {name}"));
    }
    is_bounded(config)?;
    check_type_names(config)?;
    let misfit = schema.and_then(|schema| natives::misfit(config, schema, &mut String::new()));
    let mut config = natives::tree(config).ok_or("invalid return type: *dynamic.ObjectVal")?;
    for field in ["apiVersion", "kind"] {
        config.set_at(&[field], object.get(field).cloned().unwrap_or_default());
    }
    let merge = || -> Result<Value, String> {
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("{what}: {why}");
        let Some(schema) = schema else {
            let why = format!("no corresponding type for {kind}");
            return Err(failed("failed to convert patch object to typed object", &why));
        };
        if let Some(why) = misfit {
            return Err(failed("failed to convert patch object to typed object", &why));
        }
        apply::check(&config, schema, false)
            .map_err(|why| failed("failed to convert patch object to typed object", &why))?;
        let atomics = apply::atomics(&config, schema);
        if !atomics.is_empty() {
            let why = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
            return Err(failed("invalid ApplyConfiguration", &why));
        }
        apply::check(object, schema, true)
            .map_err(|why| failed("failed to convert original object to typed object", &why))?;
        apply::merge(object, &config, schema).map_err(|why| failed("failed to merge patch", &why))
    };
    let mut merged = merge().map_err(|why| format!("error applying patch: {why}"))?;
    if let Some(schema) = schema {
        let built_in = schema::of(&kind.group, &kind.version, &kind.kind).is_some();
        whole_numbers(&mut merged, schema, built_in)
            .map_err(|why| format!("unable to convert unstructured object to {kind}: {why}"))?;
    }
    Ok(merged)
}

/// Doubles without a fraction become integers where the schema wants those: expressions make doubles easily. Of integers that are
/// too large for a field of a built-in kind, which is a Go type to Kubernetes, the lower bits are left, as they are there.
fn whole_numbers(value: &mut Value, schema: &Schema, built_in: bool) -> Result<(), String> {
    match (value, &schema.kind) {
        (Value::Int(number), Kind::Int32) if built_in => {
            #[expect(clippy::cast_possible_truncation, reason = "this is what Kubernetes does")]
            let lower = *number as i32;
            *number = i64::from(lower);
            Ok(())
        }
        (value @ Value::Float(_), Kind::Int32 | Kind::Int64) => {
            let Value::Float(float) = *value else { return Ok(()) };
            if float.fract() != 0.0 || float.abs() >= EXACT {
                return Err(format!("cannot convert float64 to {}", schema.go_type()));
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it is within the bounds and has no fraction"
            )]
            let whole = float as i64;
            *value = Value::Int(whole);
            Ok(())
        }
        (Value::List(items), Kind::List(list)) => {
            items.iter_mut().try_for_each(|item| whole_numbers(item, list.items.get(), built_in))
        }
        (Value::Map(map), Kind::Map(of)) => {
            map.iter_mut().try_for_each(|(_, value)| whole_numbers(value, of.values.get(), built_in))
        }
        (Value::Map(map), Kind::Object(object)) => {
            map.iter_mut().try_for_each(|(name, value)| match object.property(name) {
                Some(property) => whole_numbers(value, property.schema.get(), built_in),
                None => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

/// Doubles below this that have no fraction are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Applies a JSON patch; one whose test fails changes nothing.
pub(super) fn patch(operations: &Val<'_>, object: &Value) -> Result<Value, String> {
    is_bounded(operations)?;
    let Val::List(operations) = operations else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let operations = json_patch::decode(Value::List(read_operations(operations)?))?;
    match json_patch::apply(object.clone(), &operations) {
        Ok(patched) => Ok(patched),
        Err(error) if is_failed_test(&error) => Ok(object.clone()),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}

/// Sees to it that a patched object is still of the kind that it was; the error says what else it is.
pub(super) fn same_kind(patched: &mut Value, kind: &GroupVersionKind) -> Result<(), String> {
    let now = complete_kind(patched, kind);
    if now == *kind {
        return Ok(());
    }
    Err(match schema::of(&now.group, &now.version, &now.kind) {
        None => format!(
            "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            field::quote(&now.kind),
            field::quote(&now.api_version())
        ),
        Some(_) => {
            unreadable_as(patched, &now).unwrap_or_else(|| format!("{now} cannot be converted to {kind}"))
        }
    })
}

/// Why what was merged is no object of its kind, in the words of the conversion that built-in kinds go through.
pub(super) fn unconverted(kind: &GroupVersionKind, why: String) -> String {
    match schema::of(&kind.group, &kind.version, &kind.kind) {
        Some(_) => format!("unable to convert unstructured object to {kind}: {why}"),
        None => why,
    }
}

fn is_failed_test(error: &str) -> bool {
    error.starts_with("testing value ") && error.ends_with(" failed: test failed")
}

fn read_operations(operations: &List<'_>) -> Result<Vec<Value>, String> {
    let read = |operation: Val<'_>| {
        let Val::Object(operation) = operation else {
            let name = operation.type_name().to_owned();
            return Err(format!(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {name}"
            ));
        };
        let mut map = Map::with_capacity(4);
        for field in ["from", "op", "path"] {
            let text = operation.get(field).and_then(Val::as_str).unwrap_or_default();
            if !text.is_empty() || field != "from" {
                map.insert(field, text);
            }
        }
        if let Some(value) = operation.get("value") {
            if matches!(value, Val::Object(_)) {
                check_type_names(value)?;
            }
            let value = json(value).map_err(|why| {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
            })?;
            map.insert("value", value);
        }
        Ok(Value::Map(map))
    };
    operations.iter().map(read).collect()
}

/// A value as a patch carries it.
fn json(value: &Val<'_>) -> Result<Value, String> {
    let mut number = None;
    is_json(value, &mut number)?;
    match number {
        None => value.to_json(),
        Some(number) => Err(format!(
            "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: invalid {number} value"
        )),
    }
}

/// Whether JSON has something for a value and all that is in it; `number` is the first number that it has nothing for, which is
/// found out only afterwards.
fn is_json(value: &Val<'_>, number: &mut Option<&'static str>) -> Result<(), String> {
    match value {
        Val::Optional(None) => return Err("optional.none() dereference".to_owned()),
        Val::Optional(Some(inner)) => is_json(inner, number)?,
        Val::Type(_) => return Err("type conversion not supported for 'type'".to_owned()),
        Val::Ext(_) => {
            let name = value.type_name();
            // The name of the type in the library, but for what the authorizer gives, which has only one.
            let name = match name.rsplit_once('.') {
                Some((_, last)) if !name.starts_with("kubernetes.authorization.") => last,
                _ => name,
            };
            return Err(format!("type conversion error from '{name}' to '*structpb.Value'"));
        }
        Val::Double(double) if !double.is_finite() => {
            let text = if double.is_nan() {
                "NaN"
            } else if *double > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            number.get_or_insert(text);
        }
        Val::List(list) => {
            for item in list.iter() {
                is_json(&item, number)?;
            }
        }
        Val::Map(map) => {
            for (key, item) in map {
                match key {
                    Val::String(_) => {}
                    Val::Bool(_) => return Err("type conversion error from bool to 'string'".to_owned()),
                    other => {
                        let from = other.type_name();
                        return Err(format!("unsupported type conversion from '{from}' to string"));
                    }
                }
                is_json(&item, number)?;
            }
        }
        Val::Object(object) => {
            for (_, item) in &object.fields {
                is_json(item, number)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The name of an object's type must be that of its place: `Object.spec.template` at `spec.template`.
fn check_type_names(val: &Val<'_>) -> Result<(), String> {
    let Val::Object(root) = val else { return Ok(()) };
    let mut errors = Vec::new();
    check_names(val, &mut vec![root.type_name.clone()], &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", errors.join("\n"))) }
}

fn check_names(val: &Val<'_>, way: &mut Vec<Str>, errors: &mut Vec<String>) {
    match val {
        Val::Object(object) => {
            let expected = way.join(".");
            if object.type_name != expected {
                errors.push(format!(
                    "unexpected type name {}, expected {}, which matches field name path from root Object type",
                    field::quote(&object.type_name),
                    field::quote(&expected)
                ));
            }
            for (name, val) in &object.fields {
                way.push(name.clone());
                check_names(val, way, errors);
                way.pop();
            }
        }
        Val::List(List::Owned(items)) => items.iter().for_each(|item| check_names(item, way, errors)),
        Val::Map(map @ cel::Map::Owned(_)) => map.iter().for_each(|(_, val)| check_names(&val, way, errors)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
