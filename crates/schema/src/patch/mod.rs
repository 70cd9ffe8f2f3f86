//! Applies patches to objects with the same results and errors as kube-apiserver.
//!
//! [`apply`] implements PATCH requests. Its result is merged but not decoded: the decoder detects unknown fields and wrong types, and
//! [`undecodable`] reports them in the form used for patches.

mod edited;
pub mod json_patch;
pub mod merge_patch;
pub mod strategic;
#[cfg(test)]
mod tests;

use api::{FieldError, GroupKind, Status, StatusDetails, StatusReason};
use value::{Path, Value, go, json};

use strategic::MergeSchema;

#[derive(Clone, Copy, Debug)]
pub enum PatchType<S> {
    /// Sent as media type `application/json-patch+json`.
    Json,
    /// Sent as media type `application/merge-patch+json`.
    Merge,
    /// Sent as media type `application/strategic-merge-patch+json`; holds the schema of the object.
    StrategicMerge(S),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Patched {
    /// The object, not yet decoded.
    pub object: Value,
    /// Strict field validation errors about the patch itself, such as duplicate keys. Empty if strict validation was not requested.
    pub strict: Vec<String>,
    /// The text to quote in an error about decoding the result.
    pub quoted: String,
    /// Whether the object is converted, not decoded: it has the version and kind of the request regardless of its content.
    pub converted: bool,
}

/// Applies a patch. `strict` means that field validation is `Strict` or `Warn`: it changes some errors and collects
/// [`Patched::strict`].
pub fn apply<S: MergeSchema>(
    kind: PatchType<S>,
    current: &Value,
    bytes: &[u8],
    strict: bool,
) -> Result<Patched, Status> {
    let read = json::read(bytes).map_err(|_| Status::bad_request("invalid JSON patch"))?;
    let mut complaints = Vec::new();
    if strict {
        complaints.extend(read.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")));
    }
    match kind {
        PatchType::Json => {
            if strict {
                let unknown = json_patch::check(&read.value)
                    .map_err(|e| Status::bad_request(format!("error decoding patch: {e}")))?;
                complaints.extend(unknown);
            }
            let operations = json_patch::decode(read.value).map_err(Status::bad_request)?;
            json_patch::bound(&operations)?;
            let object = json_patch::apply(current.clone(), &operations).map_err(|_| unprocessable())?;
            let strict = complaints.into_iter().map(|c| format!("json patch {c}")).collect();
            let quoted = value::write::to_string(&object);
            Ok(Patched { object, strict, quoted, converted: false })
        }
        PatchType::Merge => {
            if strict && !matches!(read.value, Value::Map(_) | Value::Null) {
                let kind = read.value.json_type();
                return Err(Status::bad_request(format!(
                    "error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
                )));
            }
            let object = merge_patch::apply(current.clone(), read.value).map_err(Status::bad_request)?;
            let quoted = value::write::to_string(&object);
            Ok(Patched { object, strict: complaints, quoted, converted: false })
        }
        PatchType::StrategicMerge(schema) => {
            let patch = match read.value {
                Value::Map(map) => map,
                Value::Null => value::Map::new(),
                other => {
                    let kind = other.json_type();
                    return Err(Status::bad_request(format!(
                        "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
                    )));
                }
            };
            let quoted = go::text(&Value::Map(patch.clone()));
            let original = current.as_map().cloned().unwrap_or_default();
            let object = strategic::merge(original, patch, schema).map_err(strategic::Error::into_status)?;
            Ok(Patched { object: Value::Map(object), strict: complaints, quoted, converted: true })
        }
    }
}

/// Error 422 for a patched object that cannot be decoded or fails strict field validation, with the reason `why`.
pub fn undecodable(quoted: &str, why: &str) -> Status {
    let path = Path::root().field("patch");
    Status::invalid(&GroupKind::new("", ""), "", &[FieldError::invalid(&path, quoted, why)])
}

/// Error 422 without a reason, because kube-apiserver drops the message of the patch library.
fn unprocessable() -> Status {
    Status::failure(
        422,
        StatusReason::Invalid,
        "the server rejected our request due to an error in our request",
    )
    .with_details(StatusDetails::default())
}
