//! The decode stage: turns a request body into a [`Draft`] of the requested resource.

mod patch;
mod posted;

use std::sync::Arc;

use api::field::quote;
use api::{GroupVersion, GroupVersionKind, Status, groups, meta};
use bytes::Bytes;
use catalog::{CustomResourceVersion, Sent, ServedResource, Subresource, Working};
use crd::CompiledVersion;
use data_encoding::HEXLOWER;
use requests::negotiate::{self, BodyMedia};
use requests::options::FieldValidation;
use value::{Str, Value, json, yaml};

use crate::call::Call;

pub use patch::{configuration, configured, patched};
pub use posted::{posted, scale};

/// A decoded request body without unknown fields, not yet admitted.
#[derive(Clone, Debug)]
pub enum Draft {
    Object(DraftObject),
    /// A `Scale` for an object of the resource.
    Scale(Sent),
}

#[derive(Clone, Debug)]
pub struct DraftObject {
    pub object: Working,
    /// Fields that were sent as empty lists and that the kind writes even when they are empty: unlike omitted fields, the client owns them.
    pub(crate) empty: Vec<Vec<Str>>,
}

impl From<Working> for DraftObject {
    fn from(object: Working) -> Self {
        DraftObject { object, empty: Vec::new() }
    }
}

impl Draft {
    /// Wraps a `Scale` for the `scale` subresource; otherwise converts to the working shape, with defaults.
    fn of_subresource(
        kind: &ServedResource,
        subresource: Subresource,
        object: Value,
    ) -> Result<Self, Status> {
        let sent = Sent::decoded(object);
        match subresource {
            Subresource::Scale => Ok(Draft::Scale(sent)),
            _ => Ok(Draft::Object(kind.shapes().to_working(sent)?.into())),
        }
    }

    pub fn object(&self) -> &Value {
        match self {
            Draft::Object(decoded) => &decoded.object,
            Draft::Scale(scale) => scale,
        }
    }

    /// Access for the checks of name and namespace.
    pub(crate) fn object_mut(&mut self) -> &mut Value {
        match self {
            Draft::Object(decoded) => &mut decoded.object,
            Draft::Scale(scale) => scale,
        }
    }
}

/// A parsed body whose kind is not yet checked.
#[derive(Debug)]
pub struct Tree {
    pub value: Value,
    /// Paths of duplicate keys.
    pub duplicates: Vec<String>,
    /// The strict YAML decoder's message about duplicate keys.
    pub strict_yaml: Option<String>,
    /// The JSON text, to report errors in its order; empty for other media types.
    pub json: Bytes,
}

/// Parses a body. `expected` is the kind of a protobuf body that does not name one. Errors have the text of Kubernetes' decoder.
pub fn tree(body: &Bytes, media: BodyMedia, expected: Option<&GroupVersionKind>) -> Result<Tree, String> {
    match media {
        BodyMedia::Json => {
            let read = json::read(body).map_err(|e| format!("json parse error: {e}"))?;
            Ok(Tree { value: read.value, duplicates: read.duplicates, strict_yaml: None, json: body.clone() })
        }
        BodyMedia::Protobuf => {
            let value = schema::protobuf::read_as(body, expected)?;
            Ok(Tree { value, duplicates: Vec::new(), strict_yaml: None, json: Bytes::new() })
        }
        BodyMedia::Yaml => {
            let read = yaml::body(body).map_err(|e| e.to_string())?;
            Ok(Tree {
                value: read.value,
                duplicates: Vec::new(),
                strict_yaml: read.strict,
                json: Bytes::new(),
            })
        }
    }
}

/// Versions that Kubernetes no longer serves but still has registered.
const LEGACY: &[(&str, &str)] = &[
    ("apps", "v1beta1"),
    ("apps", "v1beta2"),
    ("authentication.k8s.io", "v1alpha1"),
    ("authentication.k8s.io", "v1beta1"),
    ("authorization.k8s.io", "v1beta1"),
    ("autoscaling", "v2beta1"),
    ("autoscaling", "v2beta2"),
    ("batch", "v1beta1"),
    ("extensions", "v1beta1"),
    ("networking.k8s.io", "v1beta1"),
    ("policy", "v1beta1"),
    (groups::RBAC, "v1alpha1"),
    (groups::RBAC, "v1beta1"),
    ("storage.k8s.io", "v1beta1"),
];

/// The Go package of a group's internal types, as it occurs in some error messages of kube-apiserver.
pub fn internal_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) }
}

/// The error for a body that cannot be parsed as an object.
fn unrecognized(expected: &str, body: &[u8], why: &str) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {expected}): {why} ({})",
        summary(body)
    ))
}

/// Error text for a body whose top level is not a map.
pub fn no_object(tree: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        tree.json_type()
    )
}

/// Bytes of a body in JSON from which its objects are charged. They take at most 16 times as much memory.
const SMALL_JSON: usize = 8 * 1024;

/// Reads the body and parses it.
async fn read(call: &mut Call, expected: &GroupVersionKind) -> Result<(Bytes, BodyMedia, Tree), Status> {
    let media = negotiate::body_media(&call.headers)?;
    let body = call.read_body().await?;
    let refused = |why: &str| unrecognized(&expected.kind, &body, why);
    let tree = tree(&body, media, Some(expected)).map_err(|e| match media {
        BodyMedia::Json => refused(&format!("couldn't get version/kind; {e}")),
        BodyMedia::Yaml | BodyMedia::Protobuf => refused(&e),
    })?;
    // Less text in JSON cannot take so much memory that it is charged.
    if media != BodyMedia::Json || body.len() > SMALL_JSON {
        call.charge_objects([&tree.value])?;
    }
    Ok((body, media, tree))
}

/// Reads and decodes the body of a create or update.
pub async fn object(
    call: &mut Call,
    kind: &ServedResource,
    validation: FieldValidation,
) -> Result<DraftObject, Status> {
    let (body, media, mut tree) = read(call, &kind.gvk).await?;
    if tree.value.is_null() && kind.row().is_some() {
        tree.value = Value::Map(value::Map::new());
    }
    if tree.value.is_null() && media == BodyMedia::Yaml {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&body));
        return Err(unrecognized(&kind.gvk.kind, &body, &why));
    }
    if !matches!(tree.value, Value::Map(_)) {
        return Err(unrecognized(&kind.gvk.kind, &body, &no_object(&tree.value)));
    }
    if let Some(why) = unreadable_kind(&tree.value, kind.row().is_some()) {
        return Err(unrecognized(&kind.gvk.kind, &body, &why));
    }
    if kind.as_custom().is_some() && tree.value.str_at(&["kind"]).unwrap_or_default().is_empty() {
        let body = String::from_utf8_lossy(&body);
        return Err(unrecognized(
            &kind.gvk.kind,
            body.as_bytes(),
            &format!("Object 'Kind' is missing in '{body}'"),
        ));
    }
    let effort = call.effort.clone();
    effort.run(|| from_tree(call, kind, tree, validation))?
}

/// Error text for an object whose `apiVersion` or `kind` cannot be parsed; `None` if both can.
fn unreadable_kind(object: &Value, is_typed: bool) -> Option<String> {
    for field in ["apiVersion", "kind"] {
        match object.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Some(format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
                    other.json_type()
                ));
            }
        }
    }
    let version = object.str_at(&["apiVersion"]).filter(|text| is_typed && !text.is_empty())?;
    GroupVersion::parse(version).err()
}

/// The schema of the version that an object names; an empty schema if the CRD does not have that version.
fn custom_schema(custom: &CustomResourceVersion, sent: &GroupVersionKind) -> Arc<CompiledVersion> {
    match custom.crd.version(&sent.version) {
        Some(version) => Arc::clone(version.compiled()),
        None => Arc::new(CompiledVersion::of_nothing()),
    }
}

/// Turns a tree into a custom resource: coerces its metadata, drops unknown fields, fills in defaults. An object of another kind passes
/// unchecked; validation refuses it.
fn from_custom_tree(
    call: &mut Call,
    kind: &ServedResource,
    custom: &CustomResourceVersion,
    tree: Tree,
    validation: FieldValidation,
) -> Result<DraftObject, Status> {
    let Tree { value: mut object, duplicates, strict_yaml, .. } = tree;
    let sent = meta::gvk(&object);
    let refused = |why: String| {
        Status::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {why}",
            sent.kind,
            quote(&sent.version),
            kind.gvk.kind
        ))
    };
    let of_this_kind = sent.group == kind.gvk.group && sent.kind == kind.gvk.kind;
    let compiled = of_this_kind.then(|| custom_schema(custom, &sent));
    let mut strict: Vec<String> = strict_yaml.into_iter().collect();
    strict.extend(schema::decode::strict_errors(&[], &duplicates));
    if let Some(compiled) = compiled {
        let unknown = compiled.coerce(&mut object, validation != FieldValidation::Ignore).map_err(refused)?;
        strict.extend(schema::decode::strict_errors(&unknown, &[]));
    }
    report_strict_errors(call, validation, &strict).map_err(refused)?;
    let group_version = sent.group_version();
    if group_version != kind.gvk.group_version() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({group_version}) does not match the expected API version ({})",
            kind.gvk.group_version()
        )));
    }
    let object = kind.shapes().to_working(Sent::decoded(object))?;
    call.audit_record().request_object(&object);
    Ok(object.into())
}

/// Decodes the fields of a tree by its schema, and reports unknown and duplicate ones. The error is the reason to refuse the object.
fn decode_fields(
    call: &mut Call,
    tree: &mut Tree,
    schema: &schema::Schema,
    validation: FieldValidation,
) -> Result<(), String> {
    let duplicates = schema::decode::decoded_duplicates(schema, std::mem::take(&mut tree.duplicates));
    let outcome = schema::decode::normalize(&mut tree.value, schema);
    if let Some(error) = outcome.type_error(&tree.json) {
        return Err(error);
    }
    let mut strict: Vec<String> = tree.strict_yaml.take().into_iter().collect();
    strict.extend(schema::decode::strict_errors_of(&tree.json, &outcome.unknown, &duplicates));
    report_strict_errors(call, validation, &strict)
}

/// Turns a tree into an object of `kind`: checks its version and kind, then its fields, and fills in defaults.
pub fn from_tree(
    call: &mut Call,
    kind: &ServedResource,
    mut tree: Tree,
    validation: FieldValidation,
) -> Result<DraftObject, Status> {
    if let Some(custom) = kind.as_custom() {
        return from_custom_tree(call, kind, custom, tree, validation);
    }
    let sent = meta::gvk(&tree.value);
    let version = match tree.value.str_at(&["apiVersion"]) {
        None | Some("") => kind.gvk.group_version(),
        Some(text) => GroupVersion::parse(text).map_err(Status::bad_request)?,
    };
    let sent_kind = if sent.kind.is_empty() { kind.gvk.kind.clone() } else { sent.kind };
    let refused = |why: String| {
        Status::bad_request(format!(
            "{sent_kind} in version {} cannot be handled as a {}: {why}",
            quote(&version.version),
            kind.gvk.kind
        ))
    };
    let expected = kind.gvk.group_version();
    let other_version = || {
        Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        ))
    };
    // An object of another version is decoded by its own schema before it is refused, so that errors in its fields come first.
    let schema = if sent_kind != kind.gvk.kind {
        return Err(refused(unregistered(&version.kind(sent_kind.clone()), &kind.gvk)));
    } else if version == expected {
        kind.schema()
    } else if let Some(schema) = schema::of(&version.group, &version.version, &sent_kind) {
        schema
    } else if LEGACY.contains(&(version.group.as_str(), version.version.as_str())) {
        return Err(other_version());
    } else {
        return Err(refused(unregistered(&version.kind(sent_kind.clone()), &kind.gvk)));
    };
    schema::apply::mark_reset(&mut tree.value);
    let empty = schema::decode::empty_lists(&tree.value, schema);
    decode_fields(call, &mut tree, schema, validation).map_err(refused)?;
    if version != expected {
        return Err(other_version());
    }
    let mut object = tree.value;
    object.set_at(&["apiVersion"], kind.gvk.api_version());
    object.set_at(&["kind"], kind.gvk.kind.clone());
    let object = kind.shapes().to_working(Sent::decoded(object))?;
    if call.audit_record().wants_request() {
        let mut sent = kind.shapes().to_sent(object.clone());
        kind.shapes().fill_sent(&mut sent);
        call.audit_record().request_object(&sent);
    } else {
        call.audit_record().request_object(&object);
    }
    Ok(DraftObject { object, empty })
}

/// Error text for an object of the kind `sent` where `expected` is required.
fn unregistered(sent: &GroupVersionKind, expected: &GroupVersionKind) -> String {
    if catalog::is_known(sent) {
        return format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            sent.version,
            sent.kind,
            internal_package(&expected.group),
            expected.kind
        );
    }
    // kube-apiserver is a chain of three servers, and each names the Go file that registers its kinds.
    let scheme = match expected.group.as_str() {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:56",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    };
    format!(
        "no kind {} is registered for version {} in scheme {}",
        quote(&sent.kind),
        quote(&sent.group_version().to_string()),
        quote(scheme)
    )
}

/// Handles unknown and duplicate fields as the request's `fieldValidation` demands: ignores them, warns about them, or returns the error
/// that refuses the object.
fn report_strict_errors(
    call: &mut Call,
    validation: FieldValidation,
    errors: &[String],
) -> Result<(), String> {
    match validation {
        FieldValidation::Strict if !errors.is_empty() => {
            return Err(format!("strict decoding error: {}", errors.join(", ")));
        }
        FieldValidation::Warn => errors.iter().for_each(|error| warn(call, error)),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    Ok(())
}

/// Adds a warning for each strict error; the YAML decoder reports several in one text.
pub fn warn(call: &mut Call, error: &str) {
    match error.strip_prefix("yaml: unmarshal errors:\n") {
        Some(lines) => lines.lines().for_each(|line| call.warn(line.trim())),
        None => call.warn(error),
    }
}

/// The beginning of a body for error messages: text if it looks like a JSON object, otherwise hex.
fn summary(body: &[u8]) -> String {
    const MAX: usize = 30;
    let head = body.get(..MAX.min(body.len())).unwrap_or_default();
    let dots = if body.len() > MAX { " ..." } else { "" };
    match head {
        [] => "<empty>".to_owned(),
        [b'{', ..] => format!("{}{dots}", String::from_utf8_lossy(head)),
        _ => HEXLOWER.encode(head) + dots,
    }
}
