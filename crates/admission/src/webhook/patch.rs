//! A webhook's patch → the changed object.

use api::field::quote;
use api::{GroupVersionKind, Status};
use schema::patch::json_patch;
use schema::patch::json_patch::Operation as Step;
use value::{Value, json, write};

use crate::patched::{adopt, complete_kind, unreadable_as};
use crate::webhook::response::JSON_PATCH;
use crate::{Attributes, Cluster, Operation};

/// What a patch made of an object.
pub(super) struct Patched {
    /// The object in its stored shape, with defaults.
    pub(super) object: Value,
    /// Whether it differs from what it was.
    pub(super) changed: bool,
}

/// Reads the operations of a patch. The error is in the words of Go's decoder.
pub(super) fn decode(patch: &[u8]) -> Result<Vec<Step>, String> {
    let value = json::parse_wrapped(patch).map_err(|error| error.to_string())?;
    json_patch::decode(value)
}

/// Applies a patch to the object as the webhook saw it, in the version `kind`.
pub(super) async fn apply(
    shown: &Value,
    kind: &GroupVersionKind,
    operations: &[Step],
    attributes: &Attributes<'_>,
    cluster: &dyn Cluster,
) -> Result<Patched, Status> {
    let mut patched = json_patch::apply(shown.clone(), operations).map_err(Status::internal)?;
    if !matches!(patched, Value::Map(_)) {
        return Err(Status::internal(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            patched.json_type()
        )));
    }
    same_kind(&mut patched, kind, cluster)?;
    let changed = differs(shown, &patched, kind);
    let object = adopt(patched, kind, false, attributes, cluster).await.map_err(Status::internal)?;
    Ok(Patched { object, changed })
}

/// A patch may leave the kind out, but not change it.
fn same_kind(patched: &mut Value, kind: &GroupVersionKind, cluster: &dyn Cluster) -> Result<(), Status> {
    let became = complete_kind(patched, kind);
    if became != *kind {
        if cluster.served(&became).is_none() {
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

/// Whether two objects would differ once decoded: what a typed decoder drops makes no difference.
fn differs(before: &Value, after: &Value, kind: &GroupVersionKind) -> bool {
    if before == after {
        return false;
    }
    let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) else { return true };
    let decoded = |object: &Value| {
        let mut object = object.clone();
        schema::decode::normalise(&mut object, schema);
        object
    };
    decoded(before) != decoded(after)
}

/// Whether the request writes a time of its own into the object's managed fields. Kubernetes' server has it there to the nanosecond until
/// the object is written as JSON for the first time, so that any patch, even one that says nothing new, counts as a change then.
pub(super) fn is_freshly_managed(attributes: &Attributes<'_>, object: &Value) -> bool {
    let kind = &attributes.stored_kind;
    let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) else { return false };
    match (attributes.operation, attributes.old_object.stored()) {
        (Operation::Create, _) => true,
        (Operation::Update, Some(old)) => {
            let managed = |object: &Value| {
                let mut object = object.clone();
                schema::decode::normalise(&mut object, schema);
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

/// Metadata that nobody manages.
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

/// The value of the audit annotation that shows a webhook's patch.
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
