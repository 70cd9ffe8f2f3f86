//! Decodes the results of patches and of server-side apply.

use api::{GroupVersionKind, Status, meta};
use bytes::Bytes;
use catalog::{ServedResource, Subresource};
use requests::options::FieldValidation;
use schema::patch::{Patched, undecodable};
use value::{Value, yaml};

use super::{Draft, custom_schema, unregistered};
use crate::call::Call;

/// Decodes a patched object. Errors refer to the patch, as in kube-apiserver.
pub fn patched(
    call: &mut Call,
    kind: &ServedResource,
    subresource: Subresource,
    patched: Patched,
    validation: FieldValidation,
) -> Result<Draft, Status> {
    let Patched { mut object, strict, quoted, converted } = patched;
    let expected = kind.admission_kind(subresource);
    if converted {
        object.set_at(&["apiVersion"], expected.api_version());
        object.set_at(&["kind"], expected.kind.clone());
    }
    let sent = meta::gvk(&object);
    let custom = kind.as_custom().filter(|_| subresource != Subresource::Scale);
    if sent.kind != expected.kind && custom.is_none() {
        return Err(undecodable(&quoted, &unregistered(&sent, &expected)));
    }
    if sent != expected && custom.is_none() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            sent.group_version(),
            expected.group_version()
        )));
    }
    schema::apply::mark_reset(&mut object);
    let empty = match custom {
        None if subresource != Subresource::Scale => schema::decode::empty_lists(&object, kind.schema()),
        _ => Vec::new(),
    };
    let unknown = match custom {
        // An object that the patch turned into another kind is refused by validation.
        Some(_) if sent.kind != expected.kind || sent.group != expected.group => Vec::new(),
        Some(custom) => custom_schema(custom, &sent)
            .coerce(&mut object, validation != FieldValidation::Ignore)
            .map_err(|error| undecodable(&quoted, &error))?,
        None => {
            let schema = kind.subresource_schema(subresource);
            let outcome = if converted {
                schema::decode::convert(&mut object, schema)
            } else {
                schema::decode::normalize(&mut object, schema)
            };
            if let Some(error) = outcome.type_error(&[]) {
                return Err(undecodable(&quoted, &error));
            }
            outcome.unknown
        }
    };
    let mut complaints = strict;
    complaints.extend(schema::decode::strict_errors(&unknown, &[]));
    if !complaints.is_empty() {
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => complaints.into_iter().for_each(|error| call.warn(error)),
            FieldValidation::Strict => {
                let why = format!("strict decoding error: {}", complaints.join(", "));
                return Err(undecodable(&quoted, &why));
            }
        }
    }
    let mut draft = Draft::of_subresource(kind, subresource, object)?;
    if let Draft::Object(decoded) = &mut draft {
        decoded.empty = empty;
    }
    Ok(draft)
}

/// Parses the body of a server-side apply. Also returns the strict decoder's message about duplicate keys.
pub fn configuration(body: &Bytes) -> Result<(Value, Option<String>), Status> {
    // kube-apiserver first converts a body that does not look like JSON to JSON, for its audit log; hence the different error texts.
    let what = if body.trim_ascii_start().starts_with(b"{") {
        "error decoding patch: error converting YAML to JSON"
    } else {
        "error encoding patch"
    };
    let refused = |e: yaml::Error| Status::bad_request(format!("{what}: {e}"));
    let read = yaml::body(body).map_err(refused)?;
    match read.value {
        Value::Map(_) | Value::Null => Ok((read.value, read.strict)),
        other => Err(Status::bad_request(format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.json_type()
        ))),
    }
}

/// Turns the merged object of a server-side apply into a draft. `config` provides the name and namespace for error messages.
pub fn configured(
    kind: &ServedResource,
    subresource: Subresource,
    mut object: Value,
    config: &Value,
) -> Result<Draft, Status> {
    if let Some(custom) = kind.as_custom().filter(|_| subresource != Subresource::Scale) {
        custom.version.compiled().coerce_applied(&mut object).map_err(Status::plain)?;
        return Draft::of_subresource(kind, subresource, object);
    }
    let outcome = schema::decode::convert(&mut object, kind.subresource_schema(subresource));
    if let Some(error) = outcome.type_error(&[]) {
        let GroupVersionKind { group, version, kind } = kind.admission_kind(subresource);
        let inner = if error.starts_with("illegal base64") { "error decoding from json: " } else { "" };
        return Err(Status::plain(format!(
            "failed to convert new object ({}/{}; {group}/{version}, Kind={kind}) to proper version: unable to convert unstructured object to {group}/{version}, Kind={kind}: {inner}{error}",
            meta::namespace(config),
            meta::name(config),
        )));
    }
    Draft::of_subresource(kind, subresource, object)
}
