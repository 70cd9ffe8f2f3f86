//! Patches: an object and the bytes of a patch → the patched object, refused as kube-apiserver refuses.
//!
//! [`apply`] is what a PATCH request runs. The result has been merged, not decoded: unknown fields and wrong types are
//! for the decoder to find, and [`undecodable`] says so in the words a patch has for it.

mod edited;
pub mod json_patch;
pub mod merge_patch;
pub mod strategic;
#[cfg(test)]
mod tests;

use api::{Details, FieldError, GroupKind, Reason, Status};
use value::{Path, Value, go, json};

use strategic::MergeSchema;

/// Which kind of patch the bytes are.
#[derive(Clone, Copy, Debug)]
pub enum Kind<S> {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`, with the schema of the object.
    StrategicMerge(S),
}

/// What a patch made of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Patched {
    /// The object, not yet decoded.
    pub object: Value,
    /// What strict field validation holds against the patch itself, as repeated keys. Always empty if it was not asked
    /// for.
    pub strict: Vec<String>,
    /// The text that an error about decoding the result quotes.
    pub quoted: String,
    /// Whether the object is converted, not decoded: its version and kind are those of the request whatever it says.
    pub converted: bool,
}

/// Applies a patch. `strict` says whether field validation is `Strict` or `Warn`: it changes some refusals and collects
/// [`Patched::strict`].
pub fn apply<S: MergeSchema>(
    kind: Kind<S>,
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
        Kind::Json => {
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
        Kind::Merge => {
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
        Kind::StrategicMerge(schema) => {
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

/// 422: the patched object cannot be decoded, or strict field validation refuses it; `why` says which.
pub fn undecodable(quoted: &str, why: &str) -> Status {
    let path = Path::root().field("patch");
    Status::invalid(&GroupKind::new("", ""), "", &[FieldError::invalid(&path, quoted, why)])
}

/// 422 without a reason given: kube-apiserver drops what the patch library says.
fn unprocessable() -> Status {
    Status::failure(422, Reason::Invalid, "the server rejected our request due to an error in our request")
        .with_details(Details::default())
}
