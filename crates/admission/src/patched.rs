//! What patches, of policies and of webhooks, make of an object's kind.

use api::{GroupVersionKind, meta};
use value::Value;

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
    let schema = resources::schema::of(&kind.group, &kind.version, &kind.kind)?;
    resources::decode::normalise(&mut object.clone(), schema).type_error(&[])
}
