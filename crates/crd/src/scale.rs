//! The `scale` subresource of custom resources, which reads and writes replicas at the paths given in the CRD.

use api::Status;
use api::field::quote;
use api::validation::fields::Read;
use value::Value;

use super::crd::ScalePaths;

fn steps(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

/// The number at a path; `Ok(None)` if the path does not exist.
pub(super) fn number_at(object: &Value, path: &str) -> Result<Option<i64>, String> {
    match nested(object, path)? {
        None => Ok(None),
        Some(Value::Int(number)) => Ok(Some(*number)),
        Some(other) => Err(accessor(path, other, "int64")),
    }
}

/// The string at a path; `Ok(None)` if the path does not exist.
pub(super) fn text_at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a str>, String> {
    match nested(object, path)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(accessor(path, other, "string")),
    }
}

fn accessor(path: &str, found: &Value, wanted: &str) -> String {
    format!(
        ".{} accessor error: {} is of the type {}, expected {wanted}",
        steps(path).join("."),
        printed(found),
        go_type(found)
    )
}

/// The value at a path of map keys. The error has the wording of Kubernetes' `unstructured` accessors.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut here = object;
    let steps = steps(path);
    for (depth, step) in steps.iter().enumerate() {
        match here {
            Value::Map(map) => match map.get(step) {
                Some(value) => here = value,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => {
                let upto = steps.get(..=depth).unwrap_or_default().join(".");
                return Err(format!(
                    ".{upto} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                    printed(other),
                    go_type(other)
                ));
            }
        }
    }
    Ok(Some(here))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::UInt(_) => "uint64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
    }
}

/// Formats a value as Go's `%v` does.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::List(items) => {
            format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(" "))
        }
        Value::Map(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", printed(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => value::write::to_string(other),
    }
}

/// The `Scale` of an object, and whether the object sets its spec replicas.
pub fn from_object(paths: &ScalePaths, object: &Value) -> Result<(Value, bool), String> {
    let wanted = number_at(object, &paths.spec_replicas)?;
    let current = number_at(object, &paths.status_replicas)?.unwrap_or(0);
    let selector = match &paths.label_selector {
        Some(path) if !path.is_empty() => text_at(object, path)?.unwrap_or_default(),
        _ => "",
    };
    #[expect(clippy::cast_possible_truncation, reason = "Go keeps the lower bits, too")]
    let narrow = |number: i64| i64::from(number as i32);
    let scale = api::scale::build(object, narrow(wanted.unwrap_or(0)), narrow(current), selector);
    Ok((scale, wanted.is_some()))
}

/// The response to GET of the `scale` subresource; an error if the object does not set its spec replicas.
pub fn get(paths: &ScalePaths, object: &Value) -> Result<Value, Status> {
    let (scale, found) = from_object(paths, object).map_err(Status::plain)?;
    if found {
        return Ok(scale);
    }
    let path = quote(&paths.spec_replicas);
    Err(Status::internal(format!("the spec replicas field {path} does not exist")))
}

/// Marks absent spec replicas while a scale is changed. A change that leaves this value is rejected.
const UNSAID: i64 = i32::MIN as i64;

/// The `Scale` that a patch or update starts from.
pub fn patch_base(paths: &ScalePaths, object: &Value) -> Result<Value, String> {
    let (mut scale, found) = from_object(paths, object)?;
    if !found {
        scale.set_at(&["spec", "replicas"], UNSAID);
    }
    Ok(scale)
}

/// Returns the object with the replicas requested by `scale`, in which absent replicas mean 0.
pub fn apply(paths: &ScalePaths, object: &Value, scale: &Value) -> Result<Value, Status> {
    let mut changed = object.clone();
    let steps = steps(&paths.spec_replicas);
    number_at(object, &paths.spec_replicas).map_err(Status::plain)?;
    let sent = scale.part("spec").number("replicas");
    if sent == UNSAID {
        let path = quote(&paths.spec_replicas);
        return Err(Status::bad_request(format!("the spec replicas field {path} cannot be empty")));
    }
    changed.set_at(&steps, sent);
    let version = api::meta::resource_version(scale);
    if !version.is_empty() {
        api::meta::set(&mut changed, "resourceVersion", version);
    }
    Ok(changed)
}
