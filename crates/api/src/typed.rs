//! A document of a file → its version and kind, refused in the words of Kubernetes' decoder where it does not say them.

use value::Value;

use crate::GroupVersionKind;

/// How Go prints the type it reads an object's kind with.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Why a document does not say what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untyped {
    /// Kubernetes' words.
    pub message: String,
    /// The field that is wrong or missing; empty for the document itself.
    pub field: &'static str,
}

/// The version and kind that a document says. `text` is the document, which some messages show whole.
pub fn version_kind(root: &Value, text: &[u8]) -> Result<GroupVersionKind, Untyped> {
    let untyped = |message: String, field: &'static str| Untyped { message, field };
    if !matches!(root, Value::Map(_) | Value::Null) {
        let message = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {META}",
            root.json_type()
        );
        return Err(untyped(message, ""));
    }
    let meta = |field: &'static str| match root.at(&[field]) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => {
            let message = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
                other.json_type()
            );
            Err(untyped(message, field))
        }
    };
    let (api_version, kind) = (meta("apiVersion")?, meta("kind")?);
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
