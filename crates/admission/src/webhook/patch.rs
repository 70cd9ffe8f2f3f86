//! Applies a webhook's patch to the object.

use api::field::quote;
use api::{GroupVersionKind, Status};
use schema::patch::json_patch::{self, JsonPatchOperation};
use value::{Value, json, write};

use crate::patched::{check_size, complete_kind, to_stored, unreadable_as};
use crate::webhook::response::JSON_PATCH;
use crate::{AdmissionAttributes, ClusterView, Operation};

pub(super) struct PatchedObject {
    /// In the storage version, with defaults.
    pub(super) object: Value,
    /// Whether the patch changed it.
    pub(super) changed: bool,
}

/// Decodes the operations of a JSON patch. The error is that of Go's decoder.
pub(super) fn decode(patch: &[u8]) -> Result<Vec<JsonPatchOperation>, String> {
    let value = json::parse_wrapped(patch).map_err(|error| error.to_string())?;
    json_patch::decode(value)
}

/// Applies a patch to `shown`, the object as the webhook saw it, in the version of `kind`.
pub(super) async fn apply(
    shown: &Value,
    kind: &GroupVersionKind,
    operations: &[JsonPatchOperation],
    attributes: &AdmissionAttributes<'_>,
    cluster: &dyn ClusterView,
) -> Result<PatchedObject, Status> {
    let mut patched = json_patch::apply(shown.clone(), operations).map_err(Status::internal)?;
    if !matches!(patched, Value::Map(_)) {
        return Err(Status::internal(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            patched.json_type()
        )));
    }
    check_size(&patched)?;
    check_kind_unchanged(&mut patched, kind, cluster)?;
    let changed = differs(shown, &patched, kind);
    let object = to_stored(patched, kind, false, attributes, cluster).await.map_err(Status::internal)?;
    Ok(PatchedObject { object, changed })
}

/// A patch may remove `apiVersion` and `kind`, but not change them.
fn check_kind_unchanged(
    patched: &mut Value,
    kind: &GroupVersionKind,
    cluster: &dyn ClusterView,
) -> Result<(), Status> {
    let became = complete_kind(patched, kind);
    if became != *kind {
        if cluster.rest_mapping(&became).is_none() {
            let version = became.group_version().to_string();
            return Err(Status::internal(format!(
                "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                quote(&became.kind),
                quote(&version)
            )));
        }
        if let Some(error) = unreadable_as(patched, &became) {
            return Err(Status::internal(error));
        }
        let package =
            if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or_default() };
        return Err(Status::plain(format!(
            "converting ({}.{}) to ({package}.{}): unknown conversion",
            became.version, became.kind, kind.kind
        )));
    }
    Ok(())
}

/// Whether two objects differ after decoding, which drops unknown fields.
fn differs(before: &Value, after: &Value, kind: &GroupVersionKind) -> bool {
    if before == after {
        return false;
    }
    let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) else { return true };
    let decoded = |object: &Value| {
        let mut object = object.clone();
        schema::decode::normalize(&mut object, schema);
        object
    };
    decoded(before) != decoded(after)
}

/// Whether the request sets a time in the object's managed fields. kube-apiserver keeps that time with
/// nanoseconds until the object is first encoded as JSON, so that the first patch counts as a change even if
/// it changes nothing.
pub(super) fn sets_managed_time(attributes: &AdmissionAttributes<'_>, object: &Value) -> bool {
    let kind = &attributes.stored_kind;
    let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) else { return false };
    match (attributes.operation, attributes.old_object.stored()) {
        (Operation::Create, _) => true,
        (Operation::Update, Some(old)) => {
            let managed = |object: &Value| {
                let mut object = object.clone();
                schema::decode::normalize(&mut object, schema);
                for field in UNMANAGED {
                    object.remove_at(&["metadata", field]);
                }
                object
            };
            managed(old) != managed(object)
        }
        _ => false,
    }
}

/// Metadata that no field manager owns.
const UNMANAGED: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// The value of the audit annotation that says whether a webhook changed the object.
pub(super) fn mutation_annotation(configuration: &str, webhook: &str, mutated: bool) -> String {
    let mut out = Vec::new();
    begin_annotation(&mut out, configuration, webhook);
    out.extend_from_slice(b",\"mutated\":");
    out.extend_from_slice(if mutated { b"true" } else { b"false" });
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

/// The value of the audit annotation with a webhook's patch.
pub(super) fn patch_annotation(configuration: &str, webhook: &str, patch: &[u8]) -> String {
    let mut out = Vec::new();
    begin_annotation(&mut out, configuration, webhook);
    out.extend_from_slice(b",\"patch\":");
    write::write(&mut out, &json::parse_wrapped(patch).unwrap_or_default());
    out.extend_from_slice(b",\"patchType\":");
    write::string(&mut out, JSON_PATCH);
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

fn begin_annotation(out: &mut Vec<u8>, configuration: &str, webhook: &str) {
    out.extend_from_slice(b"{\"configuration\":");
    write::string(out, configuration);
    out.extend_from_slice(b",\"webhook\":");
    write::string(out, webhook);
}

#[cfg(test)]
mod tests;
