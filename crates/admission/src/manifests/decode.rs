//! Decodes the objects of a manifest file, as kube-apiserver's strict decoder of these kinds does.

use api::GroupVersionKind;
use api::field::quote;
use api::groups;
use api::type_meta;
use value::yaml::{self, Document, Position, Spans};
use value::{Map, Value, write};

use super::problem::{ManifestProblem, Problems};
use super::{ManifestFile, ManifestSet};

/// The maximum nesting depth of lists.
pub(super) const MAX_LISTS: usize = 16;

/// Kinds of `metav1` that are registered in every group version.
const META_KINDS: &[&str] = &[
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// An object of an allowed kind with fields of the right types.
pub(super) struct DecodedObject {
    pub(super) object: Value,
    pub(super) kind: &'static str,
    pub(super) spans: ObjectSpans,
}

/// The source positions of an object's fields.
#[derive(Clone)]
pub(super) struct ObjectSpans {
    spans: std::rc::Rc<Spans>,
    /// The field path of the object in its document: empty, or `items[2]`.
    prefix: String,
}

impl ObjectSpans {
    /// The position of a field's value, or of the innermost enclosing field that is in the file.
    pub(super) fn of(&self, field: &str) -> Position {
        self.spans.nearest(&self.path(field)).value
    }

    fn key(&self, field: &str) -> Position {
        self.spans.nearest(&self.path(field)).key
    }

    fn path(&self, field: &str) -> String {
        if self.prefix.is_empty() || field.is_empty() {
            format!("{}{field}", self.prefix)
        } else {
            format!("{}.{field}", self.prefix)
        }
    }

    /// The line on which the object begins.
    pub(super) fn line(&self) -> usize {
        self.of("").line
    }

    fn item(&self, index: usize) -> ObjectSpans {
        ObjectSpans { spans: self.spans.clone(), prefix: self.path(&format!("items[{index}]")) }
    }
}

/// Passes every valid object of a file to `accept`, in order; the items of a typed list together. Everything
/// else is added to `problems`.
pub(super) fn items<'a>(
    set: ManifestSet,
    file: &ManifestFile,
    content: &[u8],
    problems: &mut Problems<'a>,
    accept: &mut dyn FnMut(Vec<DecodedObject>, &mut Problems<'a>),
) {
    let parts = match yaml::split(content) {
        Ok(parts) => parts,
        Err(error) => {
            return problems.invalid_documents(file, &error);
        }
    };
    let mut reader = FileDecoder { set, file, problems, accept };
    for part in parts {
        if is_comment(part.bytes()) {
            continue;
        }
        match part.read() {
            Ok(document) => reader.document(document, part.bytes()),
            Err(error) => {
                let report = if is_json(part.bytes()) {
                    format!("couldn't get version/kind; json parse error: {}", error.message)
                } else {
                    error.message.clone()
                };
                reader.problems.error_loading(
                    ManifestProblem::at(file, error.position, "", error.message, None),
                    || report,
                );
            }
        }
    }
}

/// Whether a document consists of comments only, like a license header. kube-apiserver rejects such a
/// document, kubectl does not.
fn is_comment(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.all(|line| line.is_empty() || line.starts_with(b"#") || line.starts_with(b"---"))
}

fn is_json(bytes: &[u8]) -> bool {
    bytes.starts_with(b"{")
}

struct FileDecoder<'r, 'a> {
    set: ManifestSet,
    file: &'r ManifestFile,
    problems: &'r mut Problems<'a>,
    accept: &'r mut dyn FnMut(Vec<DecodedObject>, &mut Problems<'a>),
}

/// The number of `v1.List`s around an object.
#[derive(Clone, Copy)]
struct ListNesting {
    depth: usize,
}

impl ListNesting {
    /// kube-apiserver's prefix for errors in list items.
    fn error_prefix(self) -> &'static str {
        if self.depth == 0 { "" } else { "failed to decode list item: " }
    }
}

impl FileDecoder<'_, '_> {
    fn document(&mut self, document: Document, text: &[u8]) {
        let Document { value, duplicates, strict, spans, .. } = document;
        let spans = ObjectSpans { spans: std::rc::Rc::new(spans), prefix: String::new() };
        let repeated = match strict {
            Some(messages) => vec![messages],
            None => duplicates.iter().map(|path| format!("duplicate field {}", quote(path))).collect(),
        };
        let positions = duplicates.iter().map(|path| spans.of(path)).collect();
        self.object(
            value,
            text,
            &spans,
            &RepeatedFields { messages: repeated, positions },
            ListNesting { depth: 0 },
        );
    }

    /// Decodes an object or an item of a list.
    fn object(
        &mut self,
        mut object: Value,
        text: &[u8],
        spans: &ObjectSpans,
        repeated: &RepeatedFields,
        nesting: ListNesting,
    ) {
        let (file, within) = (self.file, nesting.error_prefix());
        let gvk = match type_meta::require(&object, text) {
            Ok(gvk) => gvk,
            Err(untyped) => {
                let message = without_document(&untyped.message);
                let hint = "each document is one object with `apiVersion: admissionregistration.k8s.io/v1` and a `kind`";
                let report = format!("{within}{}", untyped.message);
                let at = spans.of(untyped.field);
                return self.problems.error_loading(
                    ManifestProblem::at(file, at, untyped.field, message, Some(hint)),
                    || report,
                );
            }
        };
        if gvk.group.is_empty() && gvk.version == "v1" && gvk.kind == "List" {
            return self.list(&object, spans, repeated, nesting);
        }
        let Some(kind) = registered(&gvk) else {
            let message = format!(
                "no kind {} is registered for version {}",
                quote(&gvk.kind),
                quote(&gvk.api_version())
            );
            let hint = format!("the kinds of this directory are {}", self.set.kinds().join(", "));
            let report = format!("{within}{message} in scheme {}", quote(self.scheme()));
            return self.problems.error_loading(
                ManifestProblem::at(file, spans.of("kind"), "kind", message, Some(&hint)),
                || report,
            );
        };
        // Fields are checked before the kind: an object of a wrong kind with an unknown field is rejected for
        // the field.
        let schema = schema::of(&gvk.group, &gvk.version, &gvk.kind);
        if let Some(schema) = schema {
            let outcome = schema::decode::normalize(&mut object, schema);
            if let Some(error) = outcome.type_error(&[]) {
                let field = bad_base64(&error, &object).unwrap_or_else(|| wrong_field(&error));
                let report = format!("{within}{error}");
                return self
                    .problems
                    .error_loading(ManifestProblem::at(file, spans.of(&field), &field, error, None), || {
                        report
                    });
            }
            if !self.strict(spans, &outcome.unknown, repeated, within) {
                return;
            }
        }
        self.accept_object(object, &gvk, kind, spans);
    }

    /// Accepts an object of one of the directory's kinds, or the items of a list of them.
    fn accept_object(&mut self, mut object: Value, gvk: &GroupVersionKind, kind: &str, spans: &ObjectSpans) {
        let file = self.file;
        let single = self.set.kinds().iter().find(|k| **k == kind);
        let listed = self
            .set
            .kinds()
            .iter()
            .find(|k| kind.strip_suffix("List") == Some(**k))
            .filter(|_| single.is_none());
        match (gvk.version == "v1" && gvk.group == groups::ADMISSION_REGISTRATION, single, listed) {
            (true, Some(kind), _) => {
                (self.accept)(vec![DecodedObject { object, kind, spans: spans.clone() }], self.problems);
            }
            (true, None, Some(kind)) => {
                let items = match object.remove_at(&["items"]) {
                    Some(Value::List(items)) => items,
                    _ => Vec::new(),
                };
                let typed = |(index, mut object): (usize, Value)| {
                    object.set_at(&["apiVersion"], "admissionregistration.k8s.io/v1");
                    object.set_at(&["kind"], *kind);
                    DecodedObject { object, kind, spans: spans.item(index) }
                };
                (self.accept)(items.into_iter().enumerate().map(typed).collect(), self.problems);
            }
            _ => {
                let message = format!("unsupported resource type *{}.{kind}", gvk.version);
                let hint = if gvk.group == groups::ADMISSION_REGISTRATION && gvk.version != "v1" {
                    "only admissionregistration.k8s.io/v1 is read from files".to_owned()
                } else {
                    format!("the kinds of this directory are {}", self.set.kinds().join(", "))
                };
                let report = message.clone();
                self.problems.error_loading(
                    ManifestProblem::at(file, spans.of("kind"), "kind", message, Some(&hint)),
                    || report,
                );
            }
        }
    }

    /// Decodes the items of a `v1.List`.
    fn list(&mut self, list: &Value, spans: &ObjectSpans, repeated: &RepeatedFields, nesting: ListNesting) {
        let (file, within) = (self.file, nesting.error_prefix());
        if nesting.depth >= MAX_LISTS {
            let message = "lists are nested too deeply".to_owned();
            let report = message.clone();
            return self
                .problems
                .error_loading(ManifestProblem::at(file, spans.of(""), "", message, None), || report);
        }
        let empty = Map::new();
        let fields = list.as_map().unwrap_or(&empty);
        let mut unknown: Vec<String> = fields
            .iter()
            .map(|(name, _)| name.to_string())
            .filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "items"))
            .collect();
        if let Some((schema, metadata)) = schema::named("meta.v1.ListMeta").zip(fields.get("metadata")) {
            let outcome = schema::decode::normalize(&mut metadata.clone(), schema);
            if let Some(error) = outcome.type_error(&[]) {
                let report = format!("{within}{error}");
                return self.problems.error_loading(
                    ManifestProblem::at(file, spans.of("metadata"), "metadata", error, None),
                    || report,
                );
            }
            unknown.extend(outcome.unknown.iter().map(|path| format!("metadata.{path}")));
        }
        let items = match fields.get("items") {
            None | Some(Value::Null) => &[],
            Some(Value::List(items)) => items.as_slice(),
            Some(other) => {
                let message = format!(
                    "json: cannot unmarshal {} into Go struct field List.items of type []runtime.RawExtension",
                    other.json_type()
                );
                let report = format!("{within}{message}");
                return self.problems.error_loading(
                    ManifestProblem::at(file, spans.of("items"), "items", message, None),
                    || report,
                );
            }
        };
        if !self.strict(spans, &unknown, repeated, within) {
            return;
        }
        for (index, item) in items.iter().enumerate() {
            let text = if item.is_null() { Vec::new() } else { write::to_vec(item) };
            let spans = spans.item(index);
            self.object(
                item.clone(),
                &text,
                &spans,
                &RepeatedFields::default(),
                ListNesting { depth: nesting.depth + 1 },
            );
        }
    }

    /// Reports unknown and repeated fields. Returns whether there are none.
    fn strict(
        &mut self,
        spans: &ObjectSpans,
        unknown: &[String],
        repeated: &RepeatedFields,
        within: &str,
    ) -> bool {
        if unknown.is_empty() && repeated.messages.is_empty() {
            return true;
        }
        let mut messages = repeated.messages.clone();
        messages.extend(schema::decode::strict_errors(unknown, &[]));
        let report = format!("{within}strict decoding error: {}", messages.join(", "));
        for (index, word) in repeated.messages.iter().enumerate() {
            let at = repeated.positions.get(index).copied().unwrap_or_else(|| spans.of(""));
            self.problems.error_loading(
                ManifestProblem::at(self.file, at, "", word.clone(), Some("say each field once")),
                || report.clone(),
            );
        }
        for path in unknown {
            let message = format!("unknown field {}", quote(path));
            let hint = "check the spelling and the indentation";
            self.problems.error_loading(
                ManifestProblem::at(self.file, spans.key(path), path, message, Some(hint)),
                || report.clone(),
            );
        }
        false
    }

    /// The location of Go's scheme for these kinds, which is part of its error messages.
    fn scheme(&self) -> &'static str {
        if self.set.is_webhooks() {
            "pkg/admission/plugin/webhook/manifest/loader/loader.go:41"
        } else {
            "pkg/admission/plugin/policy/manifest/loader/validating_loader.go:35"
        }
    }
}

/// Fields that occur more than once.
#[derive(Default)]
struct RepeatedFields {
    messages: Vec<String>,
    positions: Vec<Position>,
}

/// The kind, if it is registered in kube-apiserver's scheme for manifest files.
fn registered(gvk: &GroupVersionKind) -> Option<&str> {
    let kind = gvk.kind.as_str();
    if gvk.group.is_empty() {
        return (gvk.version == "v1" && kind == "Status").then_some(kind);
    }
    if gvk.group != groups::ADMISSION_REGISTRATION
        || !matches!(gvk.version.as_str(), "v1" | "v1beta1" | "v1alpha1")
    {
        return None;
    }
    let bare = kind.strip_suffix("List").unwrap_or(kind);
    let of_group = ManifestSet::Mixed.kinds().contains(&bare)
        && !(gvk.version == "v1alpha1" && bare.ends_with("WebhookConfiguration"));
    (of_group || META_KINDS.contains(&kind)).then_some(kind)
}

/// The path of the first `caBundle` that is not base64, if that is the error: Go's message does not say
/// which.
fn bad_base64(error: &str, object: &Value) -> Option<String> {
    if !error.starts_with("illegal base64 data") {
        return None;
    }
    let of_webhooks = |object: &Value, prefix: &str| {
        let mut webhooks = object.list_at(&["webhooks"]).iter();
        let is_bad = |webhook: &Value| {
            let bundle = webhook.str_at(&["clientConfig", "caBundle"]);
            bundle.is_some_and(|text| value::go::base64::STD.decode(text).is_err())
        };
        let index = webhooks.position(is_bad)?;
        Some(format!("{prefix}webhooks[{index}].clientConfig.caBundle"))
    };
    let mut items = object.list_at(&["items"]).iter().enumerate();
    of_webhooks(object, "")
        .or_else(|| items.find_map(|(index, item)| of_webhooks(item, &format!("items[{index}]."))))
}

/// The field path in Go's message about a value of the wrong type.
fn wrong_field(error: &str) -> String {
    let path = error.split("Go struct field ").nth(1).and_then(|rest| rest.split(' ').next());
    path.and_then(|path| path.split_once('.')).map(|(_, path)| path.to_owned()).unwrap_or_default()
}

/// Removes the quoted document from a message.
fn without_document(message: &str) -> String {
    match message.split_once(" is missing in '") {
        Some((what, _)) => format!("{what} is missing"),
        None => message.to_owned(),
    }
}
