//! Decodes `application/vnd.kubernetes.protobuf` bodies into the value that the JSON of the same object would give, and encodes them.
//!
//! A body consists of four magic bytes and a `runtime.Unknown` message with the object's version and kind and its encoded bytes. These
//! are decoded with the schema of the kind ([`crate`]) and the field numbers in `data/protobuf.txt` ([`layout`]). The result is as a
//! client would have written it in JSON, and [`crate::decode::normalize`] runs on it next.
//!
//! The bytes are untrusted: lengths are checked, the result is no deeper than parsed JSON, and the work is linear in the input even if
//! fields are repeated. Unknown field numbers are skipped, because newer clients send them; groups, which Kubernetes never writes, are
//! rejected. Errors have the wording of Kubernetes' generated decoders.

mod encode;
mod layout;
mod message;
mod special;
#[cfg(test)]
mod tests;
mod wire;
pub mod write;

use api::field::quote;
use api::gvk::{GroupVersion, GroupVersionKind};
use value::{Map, Value, json};

pub use encode::{encode, encode_as};
use wire::Wire;

/// Magic bytes at the start of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Largest accepted body, equal to the server's limit for requests.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Decodes a body that states its version and kind.
///
/// # Errors
/// Returns the message of Kubernetes' decoder.
pub fn read(bytes: &[u8]) -> Result<Value, String> {
    read_as(bytes, None)
}

/// Decodes a body. `expected` replaces a missing version or kind.
///
/// # Errors
/// Returns the message of Kubernetes' decoder.
pub fn read_as(bytes: &[u8], expected: Option<&GroupVersionKind>) -> Result<Value, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("Request entity too large: limit is {MAX_BYTES}"));
    }
    read_resolved(bytes, expected, GroupVersionKind::clone)
}

/// Decodes a stored value, whose size is not limited. `resolve` names the kind whose messages have the same layout as those of the value's
/// kind; the result has the version and kind that the value names.
///
/// # Errors
/// Returns the message of Kubernetes' decoder.
pub fn read_stored(
    bytes: &[u8],
    resolve: impl FnOnce(&GroupVersionKind) -> GroupVersionKind,
) -> Result<Value, String> {
    read_resolved(bytes, None, resolve)
}

fn read_resolved(
    bytes: &[u8],
    expected: Option<&GroupVersionKind>,
    resolve: impl FnOnce(&GroupVersionKind) -> GroupVersionKind,
) -> Result<Value, String> {
    if bytes.is_empty() {
        return Err("empty data".to_owned());
    }
    let Some(envelope) = bytes.strip_prefix(MAGIC) else {
        return Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
            .to_owned());
    };
    if envelope.is_empty() {
        return Err("empty body".to_owned());
    }
    let unknown = Unknown::read(envelope)?;
    let gvk = unknown.gvk(expected)?;
    let not_registered = || {
        format!(
            "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            quote(&gvk.kind),
            quote(&gvk.api_version())
        )
    };
    let of = resolve(&gvk);
    let schema = crate::of(&of.group, &of.version, &of.kind).ok_or_else(not_registered)?;
    let layout = layout::of(schema).ok_or_else(not_registered)?;
    let mut object = Map::new();
    message::read(layout, &[unknown.raw], &mut object, 1)?;
    object.insert("apiVersion", gvk.api_version());
    object.insert("kind", gvk.kind);
    Ok(Value::Map(object))
}

/// The `runtime.Unknown` envelope. Its content encoding and content type are ignored, as in Kubernetes.
#[derive(Default)]
struct Unknown<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Unknown<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut unknown = Unknown::default();
        let mut wire = Wire::new(bytes);
        while let Some(field) = wire.next("Unknown")? {
            match field.number {
                1 => unknown.type_meta(field.bytes("TypeMeta")?)?,
                2 => unknown.raw = field.bytes("Raw")?,
                3 => _ = field.bytes("ContentEncoding")?,
                4 => _ = field.bytes("ContentType")?,
                _ => {}
            }
        }
        Ok(unknown)
    }

    fn type_meta(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut wire = Wire::new(bytes);
        while let Some(field) = wire.next("TypeMeta")? {
            match field.number {
                1 => self.api_version = json::lossy(field.bytes("APIVersion")?).into_owned(),
                2 => self.kind = json::lossy(field.bytes("Kind")?).into_owned(),
                _ => {}
            }
        }
        Ok(())
    }

    /// The kind of the object. Like Kubernetes, treats an invalid version as absent.
    fn gvk(&self, expected: Option<&GroupVersionKind>) -> Result<GroupVersionKind, String> {
        let mut version = GroupVersion::parse(&self.api_version).unwrap_or(GroupVersion::new("", ""));
        let mut kind = self.kind.clone();
        if let Some(expected) = expected {
            if version.version.is_empty() {
                version = expected.group_version();
            }
            if kind.is_empty() {
                kind = expected.kind.to_string();
            }
        }
        let missing = |what| {
            let (version, kind) = (quote(&self.api_version), quote(&self.kind));
            format!("Object '{what}' is missing in 'runtime.TypeMeta{{APIVersion:{version}, Kind:{kind}}}'")
        };
        if kind.is_empty() {
            return Err(missing("Kind"));
        }
        if version.version.is_empty() {
            return Err(missing("apiVersion"));
        }
        Ok(version.kind(kind))
    }
}
