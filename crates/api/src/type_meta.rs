//! Reads `apiVersion` and `kind` of a document, with the error messages of Kubernetes' decoder.

use value::Value;

use crate::GroupVersionKind;

/// Go's name of the type that `apiVersion` and `kind` are decoded into.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The error for a document without a valid `apiVersion` or `kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMetaError {
    /// The message of Kubernetes' decoder.
    pub message: String,
    /// The invalid or missing field; empty for the document itself.
    pub field: &'static str,
}

/// Reads `apiVersion` and `kind`, which must be set. `text` is the whole document, which some messages quote.
pub fn require(root: &Value, text: &[u8]) -> Result<GroupVersionKind, TypeMetaError> {
    let error = |message: String, field: &'static str| TypeMetaError { message, field };
    let (api_version, kind) = read(root)?;
    let version = crate::GroupVersion::parse(api_version).map_err(|m| error(m, "apiVersion"))?;
    let text = String::from_utf8_lossy(text);
    if kind.is_empty() {
        return Err(error(format!("Object 'Kind' is missing in '{text}'"), ""));
    }
    if version.version.is_empty() {
        return Err(error(format!("Object 'apiVersion' is missing in '{text}'"), ""));
    }
    Ok(version.kind(kind))
}

/// Reads `apiVersion` and `kind`; empty strings where they are missing.
///
/// Field names are matched ignoring case, as Go's decoder does. A strict reader refuses other spellings later.
pub fn read(root: &Value) -> Result<(&str, &str), TypeMetaError> {
    let map = match root {
        Value::Map(map) => map,
        Value::Null => return Ok(("", "")),
        other => {
            let message = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {META}",
                other.json_type()
            );
            return Err(TypeMetaError { message, field: "" });
        }
    };
    let (mut api_version, mut kind) = ("", "");
    for (name, value) in map.iter() {
        let (field, target) = if name.eq_ignore_ascii_case("apiVersion") {
            ("apiVersion", &mut api_version)
        } else if name.eq_ignore_ascii_case("kind") {
            ("kind", &mut kind)
        } else {
            continue;
        };
        match value {
            Value::Null => {}
            Value::String(text) => *target = text.as_str(),
            other => {
                let message = format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
                    other.json_type()
                );
                return Err(TypeMetaError { message, field });
            }
        }
    }
    Ok((api_version, kind))
}

#[cfg(test)]
mod tests;
