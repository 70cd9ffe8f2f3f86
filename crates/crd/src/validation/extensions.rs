//! Validates the `x-kubernetes-*` extensions of a schema.

use std::collections::HashSet;

use api::FieldErrors;
use api::validation::fields::{At, Read, Report};
use api::validation::repeated::Repeated;
use value::Value;

use super::quoted;
use super::strictness::Strictness;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const PRESERVE_UNKNOWN_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";

/// Limit on the keys reported per list.
const MAX_KEY_ERRORS: usize = 64;

pub(super) fn extensions(schema: &Value, strict: &Strictness, at: &At<'_>, errors: &mut FieldErrors) {
    if schema.flag_if_set(PRESERVE_UNKNOWN_FIELDS) == Some(false) {
        errors.invalid(&at.field(PRESERVE_UNKNOWN_FIELDS), false, "must be true or undefined");
    }
    let (list_type, map_type) = (schema.text_if_set(LIST_TYPE), schema.text_if_set(MAP_TYPE));
    if map_type.is_some() {
        requires_type(schema, MAP_TYPE, "object", at, errors);
    }
    if list_type.is_some() {
        requires_type(schema, LIST_TYPE, "array", at, errors);
    }
    if let Some(map_type) = map_type.filter(|found| !matches!(*found, "atomic" | "granular")) {
        errors.not_supported(&at.field(MAP_TYPE), map_type, &["atomic", "granular"]);
    }
    if list_type == Some("set") && schema.text("type") == "array" && strict.atomic_sets {
        atomic_items(schema, at, errors);
    }
    if let Some(list_type) = list_type.filter(|found| !matches!(*found, "atomic" | "set" | "map")) {
        errors.not_supported(&at.field(LIST_TYPE), list_type, &["atomic", "set", "map"]);
    }
    let keys: Vec<&str> = schema.texts(LIST_MAP_KEYS).collect();
    if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(&at.field(LIST_TYPE), detail),
            Some("map") => {}
            Some(other) => errors.invalid(&at.field(LIST_TYPE), other, detail),
        }
    }
    if list_type == Some("map") {
        keyed_list(schema, &keys, at, errors);
    }
    if strict.list_keys {
        list_keys(schema, at, errors);
    }
}

fn requires_type(schema: &Value, extension: &str, required: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let kind = schema.text("type");
    if kind == required {
        return;
    }
    let detail = format!("must be {required} if {extension} is specified");
    if kind.is_empty() {
        errors.required(&at.field("type"), detail);
    } else {
        errors.invalid(&at.field("type"), kind, detail);
    }
}

/// Requires that the items of a set are scalars or atomic.
fn atomic_items(schema: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(items) = schema.part("items").filter(|items| items.as_map().is_some()) else { return };
    let items_at = at.field("items");
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let found = || items.text_if_set(LIST_TYPE).map_or(Value::Null, Value::from);
    match items.text("type") {
        "array" if !matches!(items.text_if_set(LIST_TYPE), None | Some("atomic")) => {
            errors.invalid(&items_at.field(LIST_TYPE), found(), detail);
        }
        "object" if items.text_if_set(MAP_TYPE) != Some("atomic") => {
            errors.invalid(&items_at.field(MAP_TYPE), found(), detail);
        }
        _ => {}
    }
}

/// Validates a list of type `map`: its items are objects that have the keys as scalar properties.
fn keyed_list(schema: &Value, keys: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    let (items_at, keys_at) = (at.field("items"), at.field(LIST_MAP_KEYS));
    if keys.is_empty() {
        errors.required(&keys_at, "must not be empty if x-kubernetes-list-type is map");
    }
    let items = match schema.get("items") {
        None => return errors.required(&items_at, "must have a schema if x-kubernetes-list-type is map"),
        Some(items @ (Value::List(_) | Value::Null)) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            return errors.invalid_json(&items_at, &quoted::items(items), detail);
        }
        Some(items) if items.text("type") != "object" => {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            return errors.invalid(&items_at.field("type"), items.text("type"), detail);
        }
        Some(items) => items,
    };
    let properties_at = items_at.field("properties");
    let repeated = Repeated::earlier(keys);
    // Each error shows all keys, so reporting every error could exhaust memory.
    let mut left = MAX_KEY_ERRORS;
    for (i, key) in keys.iter().enumerate() {
        if left == 0 {
            break;
        }
        let before = errors.len();
        let shown = || Value::list(keys.iter().copied());
        match items.part("properties").part(key) {
            Some(property) if matches!(property.text("type"), "array" | "object") => {
                let key_at = properties_at.key(key);
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&key_at.field("type"), items.text("type"), detail);
            }
            Some(_) => {}
            None => errors.invalid(&keys_at, shown(), "entries must all be names of item properties"),
        }
        if repeated.at(i) {
            errors.invalid(&keys_at, shown(), "must not contain duplicate entries");
        }
        left -= usize::from(errors.len() > before);
    }
}

/// Checks that items of sets and keyed lists are not nullable and that list map keys are required or have defaults.
pub(super) fn list_keys(schema: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(items) = schema.part("items").filter(|items| items.as_map().is_some()) else { return };
    let Some(list_type @ ("set" | "map")) = schema.text_if_set("x-kubernetes-list-type") else { return };
    let items_at = at.field("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&items_at.field("nullable"), detail);
    }
    if list_type == "set" {
        return;
    }
    let properties = items_at.field("properties");
    let required: HashSet<&str> = items.texts("required").collect();
    for key in schema.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.part("properties").part(key) else { continue };
        let key_at = properties.key(key);
        if !required.contains(key) && property.part("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&key_at.field("default"), detail);
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&key_at.field("nullable"), detail);
        }
    }
}
