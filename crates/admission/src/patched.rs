//! What patches, of policies and of webhooks, make of an object's kind.

use api::{GroupVersionKind, meta};
use value::Value;

use crate::{Attributes, Cluster};

/// Brings a patched object, in the version `kind` in which its policy or webhook saw it, back into the shape in which the request
/// is worked on, with defaults. The error is the decoder's or the converter's.
pub(crate) async fn adopt(
    patched: Value,
    kind: &GroupVersionKind,
    strict: bool,
    attributes: &Attributes<'_>,
    cluster: &dyn Cluster,
) -> Result<Value, String> {
    let object = cluster.adopt(patched, kind, &attributes.stored_kind, strict).await?;
    // A custom resource that was matched in another version of its CRD is still in that version.
    if cluster.is_custom(&attributes.resource, &attributes.version)
        && attributes.stored_kind != *kind
        && meta::gvk(&object) == *kind
    {
        return cluster.convert(&object, &attributes.stored_kind).await;
    }
    Ok(object)
}

/// What a patch made the kind; what it left out is what it was.
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

/// Why an object cannot be decoded as the kind that it says it is: that is found before it is the wrong kind.
pub(crate) fn unreadable_as(object: &Value, kind: &GroupVersionKind) -> Option<String> {
    let schema = schema::of(&kind.group, &kind.version, &kind.kind)?;
    schema::decode::normalise(&mut object.clone(), schema).type_error(&[])
}
