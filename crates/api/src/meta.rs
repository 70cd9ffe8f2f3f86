//! Reads and writes an object's `metadata`. Missing strings read as empty.

use value::{Str, Value};

use crate::{GroupVersion, GroupVersionKind};

/// The annotation of a mirror pod, which a kubelet creates for a static pod.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The annotation that named the storage class of a claim or volume before the field existed.
pub const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// `apiVersion` and `kind` of an object; empty if absent.
pub fn gvk(object: &Value) -> GroupVersionKind {
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let (group, version) = GroupVersion::split(api_version);
    GroupVersionKind::new(group, version, object.str_at(&["kind"]).unwrap_or_default())
}

/// `metadata.FIELD` as a string; empty if absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.str_at(&["metadata", field]).unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    text(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// True if `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

pub fn is_mirror_pod(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR_POD]).is_some()
}

/// The storage class that a claim names in its annotation or else in its spec; empty if it names none.
pub fn storage_class(claim: &Value) -> &str {
    claim
        .str_at(&["metadata", "annotations", STORAGE_CLASS])
        .or_else(|| claim.str_at(&["spec", "storageClassName"]))
        .unwrap_or_default()
}

/// True if two versions of an object differ only in fields that the garbage collector changes, or not at all.
pub fn differ_only_in_gc_fields(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
            object.remove_at(&["metadata", field]);
        }
        object
    };
    without(new) == without(old)
}

pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object.list_at(&["metadata", "finalizers"]).iter().filter_map(Value::as_str)
}

/// The labels in key order.
pub fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    string_map(object, "labels")
}

/// The annotations in key order.
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

pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    object.set_at(&["metadata", field], value);
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    pub api_version: Str,
    pub kind: Str,
    pub name: Str,
    pub uid: Str,
    /// True if the owner is the managing controller.
    pub controller: bool,
    /// True if foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

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
