//! Decodes bodies of the kinds that subresources take: `Scale`, `Binding`, `Eviction`, reviews and token requests.

use api::field::quote;
use api::{GroupVersionKind, Status, meta};
use catalog::{Sent, ServedResource, Subresource};
use requests::options::FieldValidation;
use value::Value;

use super::{Draft, Tree, decode_fields, no_object, read, unrecognized, unregistered};
use crate::call::Call;

pub async fn scale(
    call: &mut Call,
    kind: &ServedResource,
    validation: FieldValidation,
) -> Result<Draft, Status> {
    posted(call, &kind.admission_kind(Subresource::Scale), validation)
        .await
        .map(|scale| Draft::Scale(Sent::decoded(scale)))
}

/// Reads the body as `expected`, the kind that a subresource takes.
pub async fn posted(
    call: &mut Call,
    expected: &GroupVersionKind,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let (body, _, tree) = read(call, expected).await?;
    if !matches!(tree.value, Value::Map(_)) {
        return Err(unrecognized(&expected.kind, &body, &no_object(&tree.value)));
    }
    other_kind(call, tree, expected, validation)
}

/// Accepts `policy/v1beta1` evictions, which clients still send although that version is no longer served.
fn is_former(sent: &GroupVersionKind, expected: &GroupVersionKind) -> bool {
    let eviction = |kind: &GroupVersionKind| kind.group == "policy" && kind.kind == "Eviction";
    sent.version == "v1beta1" && eviction(sent) && eviction(expected)
}

/// Decodes a tree as `expected`, the kind that a subresource takes.
fn other_kind(
    call: &mut Call,
    mut tree: Tree,
    expected: &GroupVersionKind,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let mut sent = meta::gvk(&tree.value);
    if sent.kind.is_empty() {
        sent.kind = expected.kind.clone();
    }
    if sent.group.is_empty() && sent.version.is_empty() {
        (sent.group, sent.version) = (expected.group.clone(), expected.version.clone());
    }
    if sent != *expected && !is_former(&sent, expected) {
        return Err(Status::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {}",
            sent.kind,
            quote(&sent.version),
            expected.kind,
            unregistered(&sent, expected)
        )));
    }
    let Some(schema) = schema::of(&expected.group, &expected.version, &expected.kind) else {
        return Err(Status::no_such_resource());
    };
    let refused = |why: String| {
        Status::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {why}",
            expected.kind,
            quote(&sent.version),
            expected.kind
        ))
    };
    decode_fields(call, &mut tree, schema, validation).map_err(refused)?;
    let mut object = tree.value;
    object.set_at(&["apiVersion"], expected.api_version());
    object.set_at(&["kind"], expected.kind.clone());
    if call.audit_record().wants_request() {
        let mut sent = object.clone();
        kinds::table::behavior(&expected.group_kind()).apply_defaults(&mut sent);
        schema::decode::fill(&mut sent, schema);
        call.audit_record().request_object(&sent);
    } else {
        call.audit_record().request_object(&object);
    }
    Ok(object)
}
