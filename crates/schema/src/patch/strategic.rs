//! Strategic merge patches: merge patches that merge some lists item by item, by a merge key.
//!
//! A patch may contain the directives `$patch` (delete, replace), `$retainKeys`, `$setElementOrder/LIST` and
//! `$deleteFromPrimitiveList/LIST`.

mod lists;

use std::collections::HashSet;

use api::{Status, StatusDetails, StatusReason};
use value::{Map, Str, Value, go, steps};

use self::lists::{Merged, merge_lists, merge_ordered};
use super::edited::Edited;
use crate::{Schema, ValueType};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Limit on the list items that one patch may visit. A patch can merge into the same item a hundred thousand times, and each time visit
/// a whole list in it together with the items added to that.
const MAX_WORK: usize = 1_000_000;

/// The merge rules of a type. Errors have Kubernetes' wording.
pub trait MergeSchema: Copy {
    /// The rule of a field whose value is an object.
    fn object_field(self, name: &str) -> Result<MergeRule<Self>, String>;
    /// The rule of a field whose value is a list; [`MergeRule::schema`] describes the items.
    fn list_field(self, name: &str) -> Result<MergeRule<Self>, String>;
    /// The Go kind of the type: `struct`, `map`, `string`.
    fn go_kind(self) -> &'static str;
}

#[derive(Clone, Debug)]
pub struct MergeRule<S> {
    /// The schema of the field's value or items.
    pub schema: S,
    /// Lists merge item by item.
    pub merge: bool,
    /// Objects are replaced as a whole.
    pub replace: bool,
    /// The key that identifies the items of a merged list.
    pub merge_key: Option<Str>,
}

impl MergeSchema for &Schema {
    fn object_field(self, name: &str) -> Result<MergeRule<Self>, String> {
        let property = match &self.value_type {
            ValueType::Object(object) => object.property(name),
            // These types are structs without fields in Go.
            ValueType::Any | ValueType::SchemaOr(_) => None,
            _ => {
                return Err(format!(
                    "merging an object in json but data type is not struct, instead is: {}",
                    self.go_kind()
                ));
            }
        };
        let property = property.ok_or_else(|| {
            let name = api::field::quote(name);
            format!("unable to find api field in struct {} for the json field {name}", self.struct_name())
        })?;
        Ok(MergeRule {
            schema: property.schema.get(),
            merge: property.patch.merge,
            replace: property.patch.replace,
            merge_key: property.patch.merge_key.clone(),
        })
    }

    fn list_field(self, name: &str) -> Result<MergeRule<Self>, String> {
        let rule = self.object_field(name)?;
        match &rule.schema.value_type {
            ValueType::List(list) => match list.items.get() {
                items if matches!(items.value_type, ValueType::List(_)) => {
                    Err("unexpected slice of slice".to_owned())
                }
                items => Ok(MergeRule { schema: items, ..rule }),
            },
            _ => Err(format!("expected slice or array type, but got: {}", self.go_kind())),
        }
    }

    fn go_kind(self) -> &'static str {
        match &self.value_type {
            ValueType::Object(_) | ValueType::Any | ValueType::SchemaOr(_) => "struct",
            ValueType::Map(_) => "map",
            ValueType::List(_) => "slice",
            ValueType::String(_) => "string",
            ValueType::Int32 => "int32",
            ValueType::Int64 => "int64",
            ValueType::Float => "float64",
            ValueType::Bool => "bool",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The patch is malformed: 400 with this message.
    Malformed(&'static str),
    /// The patch cannot be applied here: 422 without this message.
    Inapplicable(&'static str),
    /// Any other failure: 500 with this message, as in kube-apiserver.
    Other(String),
}

/// The Go type of a value as printed in errors, including Go's output for nil.
fn go_type(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { go::type_name(value) }
}

impl Error {
    const BAD_DELETION_LIST: Error = Error::Malformed("invalid patch format of primitive list");
    const BAD_RETAIN_KEYS: Error = Error::Malformed("invalid patch format of retainKeys");
    const BAD_ORDER: Error = Error::Malformed("invalid patch format of setElementOrder list");
    const LIST_OF_LISTS: Error = Error::Inapplicable("lists of lists are not supported");
    const TOO_MUCH_WORK: Error = Error::Inapplicable("the patch takes too much work");

    fn no_merge_key(item: &Map, key: &str) -> Self {
        let item = go::text(&Value::Map(item.clone()));
        Error::Other(format!("map: {item} does not contain declared merge key: {key}"))
    }

    fn wrong_type(expected: &Value, actual: &Value) -> Self {
        Error::Other(format!("expected a {}, but received a {}", go_type(expected), go_type(actual)))
    }

    fn bad_directive(directive: &Value, item: &Map) -> Self {
        let directive = match directive {
            Value::String(s) => s.to_string(),
            other => format!("%!s({}={})", go_type(other), go::text(other)),
        };
        let item = go::text(&Value::Map(item.clone()));
        Error::Other(format!("unknown patch type: {directive} in map: {item}"))
    }

    pub fn into_status(self) -> Status {
        match self {
            Error::Malformed(message) => Status::bad_request(message),
            Error::Inapplicable(_) => Status::failure(
                422,
                StatusReason::Invalid,
                "the server rejected our request due to an error in our request",
            )
            .with_details(StatusDetails::default()),
            Error::Other(message) => Status::failure(500, StatusReason::Unknown, message),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Malformed(message) | Error::Inapplicable(message) => f.write_str(message),
            Error::Other(message) => f.write_str(message),
        }
    }
}

pub fn merge<S: MergeSchema>(original: Map, patch: Map, schema: S) -> Result<Map, Error> {
    merge_maps(original, patch, schema, &mut MergeBudget(MAX_WORK))
}

/// How many items may still be visited.
struct MergeBudget(usize);

impl MergeBudget {
    fn on(&mut self, items: usize) -> Result<(), Error> {
        steps::count(items);
        self.0 = self.0.checked_sub(items).ok_or(Error::TOO_MUCH_WORK)?;
        Ok(())
    }
}

fn merge_maps<S: MergeSchema>(
    mut original: Map,
    mut patch: Map,
    schema: S,
    work: &mut MergeBudget,
) -> Result<Map, Error> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => {
                patch.insert(DIRECTIVE, directive.clone());
                Err(Error::bad_directive(&directive, &patch))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered(&mut original, &mut patch, schema, work)?;
    let mut original = Edited::of(original);
    for (key, value) in patch {
        let deletes = key.starts_with(DELETE_FROM_LIST);
        let key = if deletes { directive_field(&key, DELETE_FROM_LIST)? } else { key };
        if value.is_null() {
            original.remove(key);
            continue;
        }
        let Some(old) = original.get_mut(&key) else {
            if !deletes && let Some(new) = fresh(value) {
                original.insert(key, new);
            }
            continue;
        };
        match (std::mem::take(old), value) {
            (Value::Map(map), Value::Map(patch)) => {
                let rule = schema.object_field(&key).map_err(Error::Other)?;
                *old =
                    Value::Map(if rule.replace { patch } else { merge_maps(map, patch, rule.schema, work)? });
            }
            (Value::List(list), Value::List(patch)) => {
                let rule = schema.list_field(&key).map_err(Error::Other)?;
                *old = Value::List(merge_list_field(list, patch, &rule, deletes, work)?.list);
            }
            (unchanged, _) if deletes => *old = unchanged,
            (_, value) => match fresh(value) {
                Some(new) => *old = new,
                None => original.remove(key),
            },
        }
    }
    Ok(original.finish())
}

/// Merges a list field that both have. Deletion lists always merge, other lists only if the field is declared so.
fn merge_list_field<S: MergeSchema>(
    original: Vec<Value>,
    patch: Vec<Value>,
    rule: &MergeRule<S>,
    deletes: bool,
    work: &mut MergeBudget,
) -> Result<Merged, Error> {
    if rule.merge || deletes { merge_lists(original, patch, rule, deletes, work) } else { Ok(patch.into()) }
}

/// `$retainKeys`: drops the fields that are not listed. The patch may set only listed fields.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::List(keys) = keys else { return Err(Error::BAD_RETAIN_KEYS) };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_retained = |key: &str| keys.contains(key);
    for (key, value) in patch.iter() {
        let directive = key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ELEMENT_ORDER);
        if !value.is_null() && !directive && !is_retained(key) {
            return Err(Error::BAD_RETAIN_KEYS);
        }
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// The field of a directive such as `$setElementOrder/containers`.
fn directive_field(key: &str, directive: &str) -> Result<Str, Error> {
    match key.split_once('/') {
        Some((prefix, field)) if prefix == directive => Ok(field.into()),
        _ if directive == DELETE_FROM_LIST => Err(Error::BAD_DELETION_LIST),
        _ => Err(Error::BAD_ORDER),
    }
}

/// Prepares a value that replaces a field: drops nulls and objects that are directives. `None` if the value itself is one.
fn fresh(mut value: Value) -> Option<Value> {
    drop_nulls(&mut value);
    without_directives(value)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Map(map) => map.retain(|_, item| {
            drop_nulls(item);
            !item.is_null()
        }),
        Value::List(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Map(map) if map.contains_key(DIRECTIVE) => None,
        Value::Map(map) => Some(Value::Map(
            map.into_iter().filter_map(|(key, item)| Some((key, without_directives(item)?))).collect(),
        )),
        Value::List(list) => Some(Value::List(list.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
