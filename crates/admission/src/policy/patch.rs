//! Applies the result of a mutation expression to an object.

use api::{GroupVersionKind, field};
use cel::{ListVal, Val};
use schema::apply;
use schema::patch::json_patch;
use schema::{Schema, ValueType};
use value::{Map, Str, Value};

use super::go_values;
use crate::patched::{complete_kind, unreadable_as};

/// Maximum number of values in the result of a mutation, several times that of the largest object. `[x, x]`
/// of `[x, x]` of … is cheap to compute and doubles with every level, but the code below visits every value.
/// [`MAX_BYTES`] limits the text in them likewise.
const MAX_VALUES: usize = 1 << 21;
const MAX_BYTES: usize = 1 << 24;

fn check_size(val: &Val<'_>) -> Result<(), String> {
    let mut room = SizeBudget { parts: MAX_VALUES, bytes: MAX_BYTES };
    room.take(val).ok_or_else(|| "the result of the mutation is too large".to_owned())
}

/// The remaining number of values and bytes that a result may have.
struct SizeBudget {
    parts: usize,
    bytes: usize,
}

impl SizeBudget {
    fn take(&mut self, val: &Val<'_>) -> Option<()> {
        self.parts = self.parts.checked_sub(1)?;
        match val {
            Val::String(take_text) => self.take_text(take_text.len()),
            Val::Bytes(bytes) => self.take_text(bytes.len()),
            Val::Optional(Some(inner)) => self.take(inner),
            Val::List(list) => list.iter().try_for_each(|item| self.take(&item)),
            Val::Map(map) => map.iter().try_for_each(|(key, item)| {
                self.take(&key)?;
                self.take(&item)
            }),
            Val::Object(object) => object.fields.iter().try_for_each(|(name, item)| {
                self.take_text(name.len())?;
                self.take(item)
            }),
            _ => Some(()),
        }
    }

    fn take_text(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(())
    }
}

/// Merges an apply configuration. `schema` is `None` for kinds that cannot be applied.
pub(super) fn apply_configuration(
    config: &Val<'_>,
    object: &Value,
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
) -> Result<Value, String> {
    if !matches!(config, Val::Object(_)) {
        let name = config.type_name();
        return Err(format!("unsupported return type from ApplyConfiguration expression: {name}"));
    }
    check_size(config)?;
    check_type_names(config)?;
    let first_type_mismatch =
        schema.and_then(|schema| go_values::first_type_mismatch(config, schema, &mut String::new()));
    let mut config = go_values::tree(config).ok_or("invalid return type: *dynamic.ObjectVal")?;
    for field in ["apiVersion", "kind"] {
        config.set_at(&[field], object.get(field).cloned().unwrap_or_default());
    }
    let merge = || -> Result<Value, String> {
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("{what}: {why}");
        let Some(schema) = schema else {
            let why = format!("no corresponding type for {kind}");
            return Err(failed("failed to convert patch object to typed object", &why));
        };
        if let Some(why) = first_type_mismatch {
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
        convert_whole_numbers(&mut merged, schema, built_in)
            .map_err(|why| format!("unable to convert unstructured object to {kind}: {why}"))?;
    }
    Ok(merged)
}

/// Converts doubles without a fraction to integers where the schema requires them: expressions easily yield
/// doubles. Integers that overflow a field of a built-in kind are truncated to 32 bits, as in kube-apiserver.
fn convert_whole_numbers(value: &mut Value, schema: &Schema, built_in: bool) -> Result<(), String> {
    match (value, &schema.value_type) {
        (Value::Int(number), ValueType::Int32) if built_in => {
            #[expect(clippy::cast_possible_truncation, reason = "this is what Kubernetes does")]
            let lower = *number as i32;
            *number = i64::from(lower);
            Ok(())
        }
        (value @ Value::Float(_), ValueType::Int32 | ValueType::Int64) => {
            let Value::Float(float) = *value else { return Ok(()) };
            if float.fract() != 0.0 || float.abs() >= MAX_EXACT_INTEGER {
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
        (Value::List(items), ValueType::List(list)) => {
            items.iter_mut().try_for_each(|item| convert_whole_numbers(item, list.items.get(), built_in))
        }
        (Value::Map(map), ValueType::Map(of)) => {
            map.iter_mut().try_for_each(|(_, value)| convert_whole_numbers(value, of.values.get(), built_in))
        }
        (Value::Map(map), ValueType::Object(object)) => {
            map.iter_mut().try_for_each(|(name, value)| match object.property(name) {
                Some(property) => convert_whole_numbers(value, property.schema.get(), built_in),
                None => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

/// 2^53: below it, doubles without a fraction are exact integers.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Applies a JSON patch. If a `test` operation fails, the object stays as it is.
pub(super) fn apply_json_patch(operations: &Val<'_>, object: &Value) -> Result<Value, String> {
    check_size(operations)?;
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

/// Checks that a patched object still has its kind.
pub(super) fn check_kind_unchanged(patched: &mut Value, kind: &GroupVersionKind) -> Result<(), String> {
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

/// The error message for versions of a built-in kind without a direct conversion.
pub(super) fn unknown_conversion(from: &GroupVersionKind, to: &GroupVersionKind) -> String {
    if from.group == to.group {
        return format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            from.version, from.kind, to.version, to.kind
        );
    }
    format!(
        "{}.{} is not suitable for converting to {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        from.version,
        from.kind,
        field::quote(&to.api_version())
    )
}

/// The error message for a merged object that cannot be converted to its kind.
pub(super) fn conversion_error(kind: &GroupVersionKind, why: String) -> String {
    match schema::of(&kind.group, &kind.version, &kind.kind) {
        Some(_) => format!("unable to convert unstructured object to {kind}: {why}"),
        None => why,
    }
}

fn is_failed_test(error: &str) -> bool {
    error.starts_with("testing value ") && error.ends_with(" failed: test failed")
}

fn read_operations(operations: &ListVal<'_>) -> Result<Vec<Value>, String> {
    let read = |operation: Val<'_>| {
        let Val::Object(operation) = operation else {
            let name = operation.type_name().to_owned();
            return Err(format!(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {name}"
            ));
        };
        let mut map = Map::with_capacity(4);
        for field in ["from", "op", "path"] {
            let take_text = operation.get(field).and_then(Val::as_str).unwrap_or_default();
            if !take_text.is_empty() || field != "from" {
                map.insert(field, take_text);
            }
        }
        if let Some(value) = operation.get("value") {
            if matches!(value, Val::Object(_)) {
                check_type_names(value)?;
            }
            let value = to_json(value).map_err(|why| {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
            })?;
            map.insert("value", value);
        }
        Ok(Value::Map(map))
    };
    operations.iter().map(read).collect()
}

/// A value as JSON, for the `value` of a patch operation.
fn to_json(value: &Val<'_>) -> Result<Value, String> {
    let mut number = None;
    check_json(value, &mut number)?;
    match number {
        None => value.to_json(),
        Some(number) => Err(format!(
            "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: invalid {number} value"
        )),
    }
}

/// Checks that a value can be represented in JSON. `number` is set to the first number that cannot (NaN or
/// infinity), because Kubernetes reports that error after all others.
fn check_json(value: &Val<'_>, number: &mut Option<&'static str>) -> Result<(), String> {
    match value {
        Val::Optional(None) => return Err("optional.none() dereference".to_owned()),
        Val::Optional(Some(inner)) => check_json(inner, number)?,
        Val::Type(_) => return Err("type conversion not supported for 'type'".to_owned()),
        Val::Ext(_) => {
            let name = value.type_name();
            // Go names the type without its package, except for types of the authorizer library.
            let name = match name.rsplit_once('.') {
                Some((_, last)) if !name.starts_with("kubernetes.authorization.") => last,
                _ => name,
            };
            return Err(format!("type conversion error from '{name}' to '*structpb.Value'"));
        }
        Val::Double(double) if !double.is_finite() => {
            let take_text = if double.is_nan() {
                "NaN"
            } else if *double > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            number.get_or_insert(take_text);
        }
        Val::List(list) => {
            for item in list.iter() {
                check_json(&item, number)?;
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
                check_json(&item, number)?;
            }
        }
        Val::Object(object) => {
            for (_, item) in &object.fields {
                check_json(item, number)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Checks that object types are named after their field path: `Object.spec.template` at `spec.template`.
fn check_type_names(val: &Val<'_>) -> Result<(), String> {
    let Val::Object(root) = val else { return Ok(()) };
    let mut errors = Vec::new();
    check_names(val, &mut vec![root.type_name.clone()], &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", errors.join("\n"))) }
}

fn check_names(val: &Val<'_>, path: &mut Vec<Str>, errors: &mut Vec<String>) {
    match val {
        Val::Object(object) => {
            let expected = path.join(".");
            if object.type_name != expected {
                errors.push(format!(
                    "unexpected type name {}, expected {}, which matches field name path from root Object type",
                    field::quote(&object.type_name),
                    field::quote(&expected)
                ));
            }
            for (name, val) in &object.fields {
                path.push(name.clone());
                check_names(val, path, errors);
                path.pop();
            }
        }
        Val::List(ListVal::Owned(items)) => items.iter().for_each(|item| check_names(item, path, errors)),
        Val::Map(map @ cel::MapVal::Owned(_)) => {
            map.iter().for_each(|(_, val)| check_names(&val, path, errors));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
