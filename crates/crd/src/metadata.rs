//! Decodes and validates the metadata of custom resources and of the resources embedded in them, independently of the schema.

use api::field::FieldError;
use api::gvk::GroupVersion;
use api::validation::fields::{At, Report};
use api::validation::meta;
use api::{FieldErrors, names};
use value::{Map, Str, Value};

use super::node::SchemaNode;

/// Result of decoding metadata as `ObjectMeta`.
#[derive(Debug, Default)]
pub(super) struct DecodedMetadata {
    /// Paths of unknown fields, including the path of the metadata.
    pub(super) unknown: Vec<String>,
    pub(super) error: Option<String>,
}

/// Decodes the `metadata` in `map` as `ObjectMeta` and drops unknown fields. `object_path` is the path of the object.
pub(super) fn type_metadata(map: &mut Map, object_path: &str) -> DecodedMetadata {
    let Some(metadata) = map.get_mut("metadata") else { return DecodedMetadata::default() };
    let Some(schema) = schema::named("meta.v1.ObjectMeta") else { return DecodedMetadata::default() };
    if metadata.is_null() {
        *metadata = Value::Map(Map::new());
        return DecodedMetadata::default();
    }
    if !matches!(metadata, Value::Map(_)) {
        let error =
            format!("json: cannot unmarshal {} into Go value of type v1.ObjectMeta", metadata.json_type());
        return DecodedMetadata { unknown: Vec::new(), error: Some(error) };
    }
    let outcome = schema::decode::normalize(metadata, schema);
    let prefix =
        if object_path.is_empty() { "metadata".to_owned() } else { format!("{object_path}.metadata") };
    DecodedMetadata {
        unknown: outcome.unknown.iter().map(|path| format!("{prefix}.{path}")).collect(),
        error: outcome.type_error(&[]),
    }
}

/// Decodes the metadata of embedded resources in a value and adds the paths of unknown fields to `unknown`.
pub(super) fn coerce(
    value: &mut Value,
    node: &SchemaNode,
    at: &At<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Map(map) => {
            if node.embedded {
                for key in ["apiVersion", "kind"] {
                    if let Some(value) = map.get(key).filter(|value| !matches!(value, Value::String(_))) {
                        let mut errors = FieldErrors::new();
                        errors.invalid(&at.field(key), value.clone(), "must be a string");
                        return errors.into_iter().next_back().map_or(Ok(()), Err);
                    }
                }
                let sent = map.get("metadata").cloned();
                let read = type_metadata(map, &at.to_string());
                unknown.extend(read.unknown);
                if let Some(error) = read.error {
                    let mut errors = FieldErrors::new();
                    errors.invalid(&at.field("metadata"), sent.unwrap_or_default(), error);
                    return errors.into_iter().next_back().map_or(Ok(()), Err);
                }
            }
            let keys: Vec<Str> = map.keys().cloned().collect();
            for key in keys {
                let Some(value) = map.get_mut(&key) else { continue };
                if let Some(property) = node.property(&key) {
                    coerce(value, property, &at.field(&key), unknown)?;
                } else if let Some(values) = node.values() {
                    coerce(value, values, &at.key(&key), unknown)?;
                }
            }
        }
        Value::List(items) => {
            let Some(below) = node.items.as_deref() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                coerce(item, below, &at.index(index), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn has_embedded(node: &SchemaNode) -> bool {
    node.embedded
        || node.items.as_deref().is_some_and(has_embedded)
        || node.values().is_some_and(has_embedded)
        || node.properties.iter().any(|(_, node)| has_embedded(node))
}

/// Validates the embedded resources in a value.
pub(super) fn check(value: &Value, node: &SchemaNode, at: &At<'_>, errors: &mut FieldErrors) {
    match value {
        Value::Map(map) => {
            if node.embedded {
                embedded(value, map, at, errors);
            }
            for (key, value) in map.iter() {
                if let Some(property) = node.property(key) {
                    check(value, property, &at.field(key), errors);
                } else if let Some(values) = node.values() {
                    check(value, values, &at.key(key), errors);
                }
            }
        }
        Value::List(items) => {
            let Some(below) = node.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                check(item, below, &at.index(index), errors);
            }
        }
        _ => {}
    }
}

pub(super) fn embedded(value: &Value, map: &Map, at: &At<'_>, errors: &mut FieldErrors) {
    for key in ["apiVersion", "kind"] {
        let field_at = at.field(key);
        match map.get(key) {
            None => errors.required(&field_at, ""),
            Some(Value::String(text)) if text.is_empty() => {
                errors.invalid(&field_at, "", "must not be empty");
            }
            Some(Value::String(text)) if key == "apiVersion" => {
                if let Err(error) = GroupVersion::parse(text) {
                    errors.invalid(&field_at, text.clone(), error);
                }
            }
            Some(Value::String(text)) => {
                let wrong = names::is_dns1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let detail =
                        format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                    errors.invalid(&field_at, text.clone(), detail);
                }
            }
            Some(other) => errors.invalid(&field_at, other.clone(), "must be a string"),
        }
    }
    if !map.contains_key("metadata") {
        return;
    }
    let mut named = value.clone();
    if api::meta::name(&named).is_empty() {
        api::meta::set(&mut named, "name", "fakename");
    }
    let namespaced = !api::meta::namespace(&named).is_empty();
    for mut error in meta::create(&named, namespaced, meta::path_segment) {
        error.field = format!("{}{}{}", at, if at.is_root() { "" } else { "." }, error.field);
        errors.push(error);
    }
}

/// Validates the resources embedded in a default value.
pub(crate) fn default_errors(default: &Value, node: &SchemaNode, at: &At<'_>) -> FieldErrors {
    let mut typed = default.clone();
    if let Err(error) = coerce(&mut typed, node, at, &mut Vec::new()) {
        return FieldErrors::from([error]);
    }
    let mut errors = FieldErrors::new();
    check(&typed, node, at, &mut errors);
    errors
}

/// Why an embedded resource is invalid, as one text.
pub(crate) fn resource_errors(object: &Value) -> Option<String> {
    let mut typed = object.clone();
    let Value::Map(map) = &mut typed else { return None };
    let sent = map.get("metadata").cloned();
    let read = type_metadata(map, "");
    if let Some(error) = read.error {
        let mut errors = FieldErrors::new();
        errors.invalid(&At::new("metadata"), sent.unwrap_or_default(), error);
        return Some(api::field::aggregate(&errors));
    }
    let map = map.clone();
    let mut errors = FieldErrors::new();
    embedded(&typed, &map, &At::ROOT, &mut errors);
    (!errors.is_empty()).then(|| api::field::aggregate(&errors))
}
