//! An object's metadata, read from and written to its tree.

use value::{Str, Value};

use crate::GroupVersionKind;

/// `apiVersion` and `kind` of an object; empty where absent.
pub fn gvk(object: &Value) -> GroupVersionKind {
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::new(group, version, object.str_at(&["kind"]).unwrap_or_default())
}

/// `metadata.FIELD` as text; empty where absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.str_at(&["metadata", field]).unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// Whether deletion has begun.
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object.list_at(&["metadata", "finalizers"]).iter().filter_map(Value::as_str)
}

/// The labels, in key order.
pub fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    string_map(object, "labels")
}

/// The annotations, in key order.
pub fn annotations(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    string_map(object, "annotations")
}

fn string_map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    object
        .at(&["metadata", field])
        .and_then(Value::as_map)
        .into_iter()
        .flat_map(|map| map.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))))
}

/// Sets `metadata.FIELD`.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    object.set_at(&["metadata", field], value);
}

/// One owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    /// `apiVersion` of the owner.
    pub api_version: Str,
    /// Its kind.
    pub kind: Str,
    /// Its name.
    pub name: Str,
    /// Its uid.
    pub uid: Str,
    /// Whether it is the managing controller.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// `metadata.ownerReferences`.
pub fn owner_references(object: &Value) -> impl Iterator<Item = OwnerReference> {
    object.list_at(&["metadata", "ownerReferences"]).iter().map(|reference| {
        let text = |field: &str| Str::from(reference.str_at(&[field]).unwrap_or_default());
        OwnerReference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: reference.bool_at(&["controller"]).unwrap_or(false),
            block_owner_deletion: reference.bool_at(&["blockOwnerDeletion"]).unwrap_or(false),
        }
    })
}
