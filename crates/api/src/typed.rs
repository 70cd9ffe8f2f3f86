//! A document of a file → its version and kind, refused in the words of Kubernetes' decoder where it does not say them.

use value::Value;

use crate::GroupVersionKind;

/// How Go prints the type it reads an object's kind with.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Why a document does not say what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMetaError {
    /// Kubernetes' words.
    pub message: String,
    /// The field that is wrong or missing; empty for the document itself.
    pub field: &'static str,
}

/// The version and kind that a document says. `text` is the document, which some messages show whole.
pub fn version_kind(root: &Value, text: &[u8]) -> Result<GroupVersionKind, TypeMetaError> {
    let untyped = |message: String, field: &'static str| TypeMetaError { message, field };
    let (api_version, kind) = said(root)?;
    let version = crate::GroupVersion::parse(api_version).map_err(|m| untyped(m, "apiVersion"))?;
    let text = String::from_utf8_lossy(text);
    if kind.is_empty() {
        return Err(untyped(format!("Object 'Kind' is missing in '{text}'"), ""));
    }
    if version.version.is_empty() {
        return Err(untyped(format!("Object 'apiVersion' is missing in '{text}'"), ""));
    }
    Ok(version.kind(kind))
}

/// What a document says its version and kind are, each empty where it does not.
///
/// As Go does before it knows what it reads, names of fields count whatever their case. Whoever reads the rest strictly refuses
/// them then.
pub fn said(root: &Value) -> Result<(&str, &str), TypeMetaError> {
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
        let (field, said) = if name.eq_ignore_ascii_case("apiVersion") {
            ("apiVersion", &mut api_version)
        } else if name.eq_ignore_ascii_case("kind") {
            ("kind", &mut kind)
        } else {
            continue;
        };
        match value {
            Value::Null => {}
            Value::String(text) => *said = text.as_str(),
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
