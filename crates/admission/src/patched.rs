//! Turns patched objects of policies and webhooks back into objects in the storage version.

use api::{GroupVersionKind, Status, meta};
use value::Value;

use crate::{AdmissionAttributes, ClusterView};

/// The size of an object that a mutation may yield, as JSON. It is twice that of the largest stored object, so that later
/// mutations can make the object smaller; the store checks the final size.
const MAX_OBJECT_BYTES: usize = 8 << 20;

/// Fails with 413 if a mutation made the object so large that it cannot be stored. Called after every mutation, because
/// each one can multiply the object.
pub(crate) fn check_size(patched: &Value) -> Result<(), Status> {
    if patched.size_up_to(MAX_OBJECT_BYTES + 1) <= MAX_OBJECT_BYTES {
        return Ok(());
    }
    Err(Status::too_large(format!("admission makes the object larger than {MAX_OBJECT_BYTES} bytes")))
}

/// Converts a patched object from `kind`, the version that the policy or webhook saw, to the storage version
/// and applies defaults. The error is the decoder's or the converter's message.
pub(crate) async fn to_stored(
    patched: Value,
    kind: &GroupVersionKind,
    strict: bool,
    attributes: &AdmissionAttributes<'_>,
    cluster: &dyn ClusterView,
) -> Result<Value, String> {
    let object = cluster.to_stored(patched, kind, &attributes.stored_kind, strict).await?;
    // A custom resource that matched in another version of its CRD is still in that version.
    if cluster.is_custom(&attributes.resource, &attributes.version)
        && attributes.stored_kind != *kind
        && meta::gvk(&object) == *kind
    {
        return cluster.convert(&object, &attributes.stored_kind).await;
    }
    Ok(object)
}

/// The kind of a patched object. `apiVersion` and `kind` that the patch removed are restored from `kind`.
pub(crate) fn complete_kind(patched: &mut Value, kind: &GroupVersionKind) -> GroupVersionKind {
    let sent = meta::gvk(patched);
    let mut became = sent.clone();
    if became.kind.is_empty() {
        became.kind = kind.kind.clone();
    }
    if became.version.is_empty() {
        (became.group, became.version) = (kind.group.clone(), kind.version.clone());
    }
    if sent != became && matches!(patched, Value::Map(_)) {
        patched.set_at(&["apiVersion"], became.api_version());
        patched.set_at(&["kind"], became.kind.clone());
    }
    became
}

/// The decoding error of an object under the kind that it claims. kube-apiserver reports it before the change
/// of kind itself.
pub(crate) fn unreadable_as(object: &Value, kind: &GroupVersionKind) -> Option<String> {
    let schema = schema::of(&kind.group, &kind.version, &kind.kind)?;
    schema::decode::normalize(&mut object.clone(), schema).type_error(&[])
}
