//! The bytes of a file → its objects, as Kubernetes' strict decoder of these kinds reads them.

use api::GroupVersionKind;
use api::field::quote;
use api::typed;
use value::yaml::{self, Document, Position, Spans};
use value::{Map, Value, write};

use super::problem::Problems;
use super::{File, Set};

/// The group of the six kinds.
const GROUP: &str = "admissionregistration.k8s.io";

/// How deep lists may hold lists.
pub(super) const MAX_LISTS: usize = 16;

/// What every version of a group has besides its own kinds.
const META_KINDS: &[&str] = &[
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// One object of a file, of the right kind and with fields of the right types.
pub(super) struct Item {
    pub(super) object: Value,
    pub(super) kind: &'static str,
    pub(super) place: Place,
}

/// Where an object is in its file.
#[derive(Clone)]
pub(super) struct Place {
    spans: std::rc::Rc<Spans>,
    /// The path of the object in its document: empty, or `items[2]`.
    prefix: String,
}

impl Place {
    /// Where a field is, or the innermost thing around it.
    pub(super) fn of(&self, field: &str) -> Position {
        self.spans.nearest(&self.path(field)).value
    }

    /// Where a field's name is.
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

    fn item(&self, index: usize) -> Place {
        Place { spans: self.spans.clone(), prefix: self.path(&format!("items[{index}]")) }
    }
}

/// Hands on every object of a file that can be used, in order (those of a typed list together); what cannot is a problem.
pub(super) fn items<'a>(
    set: Set,
    file: &File,
    content: &[u8],
    problems: &mut Problems<'a>,
    accept: &mut dyn FnMut(Vec<Item>, &mut Problems<'a>),
) {
    let parts = match yaml::split(content) {
        Ok(parts) => parts,
        Err(error) => {
            return problems.unsplittable(file, &error);
        }
    };
    let mut reader = Reader { set, file, problems, accept };
    for part in parts {
        if is_comment(part.bytes()) {
            continue;
        }
        match part.read() {
            Ok(document) => reader.document(document, part.bytes()),
            Err(error) => {
                let said = if is_json(part.bytes()) {
                    format!("couldn't get version/kind; json parse error: {}", error.message)
                } else {
                    error.message.clone()
                };
                reader.problems.at(file, error.position, "", error.message, None, || said);
            }
        }
    }
}

/// Whether a document has only comments, as a licence at the top of a file. kube-apiserver refuses it, kubectl does not.
fn is_comment(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.all(|line| line.is_empty() || line.starts_with(b"#") || line.starts_with(b"---"))
}

fn is_json(bytes: &[u8]) -> bool {
    bytes.starts_with(b"{")
}

struct Reader<'r, 'a> {
    set: Set,
    file: &'r File,
    problems: &'r mut Problems<'a>,
    accept: &'r mut dyn FnMut(Vec<Item>, &mut Problems<'a>),
}

impl Reader<'_, '_> {
    fn document(&mut self, document: Document, text: &[u8]) {
        let Document { value, duplicates, strict, spans, .. } = document;
        let place = Place { spans: std::rc::Rc::new(spans), prefix: String::new() };
        let repeated = match strict {
            Some(words) => vec![words],
            None => duplicates.iter().map(|path| format!("duplicate field {}", quote(path))).collect(),
        };
        let places = duplicates.iter().map(|path| place.of(path)).collect();
        self.object(value, text, &place, &Repeated { words: repeated, places }, "", 0);
    }

    /// An object, alone or as the item of a list; `within` is what kube-apiserver puts before a complaint about an item.
    fn object(
        &mut self,
        mut object: Value,
        text: &[u8],
        place: &Place,
        repeated: &Repeated,
        within: &str,
        depth: usize,
    ) {
        let file = self.file;
        let gvk = match typed::version_kind(&object, text) {
            Ok(gvk) => gvk,
            Err(untyped) => {
                let message = short(&untyped.message);
                let hint = "each document is one object with `apiVersion: admissionregistration.k8s.io/v1` and a `kind`";
                let said = format!("{within}{}", untyped.message);
                let at = place.of(untyped.field);
                return self.problems.at(file, at, untyped.field, message, Some(hint), || said);
            }
        };
        if gvk.group.is_empty() && gvk.version == "v1" && gvk.kind == "List" {
            return self.list(&object, place, repeated, within, depth);
        }
        let Some(kind) = registered(&gvk) else {
            let message = format!(
                "no kind {} is registered for version {}",
                quote(&gvk.kind),
                quote(&gvk.api_version())
            );
            let hint = format!("the kinds of this folder are {}", self.set.kinds().join(", "));
            let said = format!("{within}{message} in scheme {}", quote(self.scheme()));
            return self.problems.at(file, place.of("kind"), "kind", message, Some(&hint), || said);
        };
        // Fields are checked before the kind is: an object of the wrong kind with an unknown field is refused for the field.
        let schema = schema::of(&gvk.group, &gvk.version, &gvk.kind);
        if let Some(schema) = schema {
            let outcome = schema::decode::normalise(&mut object, schema);
            if let Some(error) = outcome.type_error(&[]) {
                let field = bad_base64(&error, &object).unwrap_or_else(|| wrong_field(&error));
                let said = format!("{within}{error}");
                return self.problems.at(file, place.of(&field), &field, error, None, || said);
            }
            if !self.strict(place, &outcome.unknown, repeated, within) {
                return;
            }
        }
        let single = self.set.kinds().iter().find(|k| **k == kind);
        let listed = self
            .set
            .kinds()
            .iter()
            .find(|k| kind.strip_suffix("List") == Some(**k))
            .filter(|_| single.is_none());
        match (gvk.version == "v1" && gvk.group == GROUP, single, listed) {
            (true, Some(kind), _) => {
                (self.accept)(vec![Item { object, kind, place: place.clone() }], self.problems);
            }
            (true, None, Some(kind)) => {
                let items = match object.remove_at(&["items"]) {
                    Some(Value::List(items)) => items,
                    _ => Vec::new(),
                };
                let typed = |(index, mut object): (usize, Value)| {
                    object.set_at(&["apiVersion"], "admissionregistration.k8s.io/v1");
                    object.set_at(&["kind"], *kind);
                    Item { object, kind, place: place.item(index) }
                };
                (self.accept)(items.into_iter().enumerate().map(typed).collect(), self.problems);
            }
            _ => {
                let message = format!("unsupported resource type *{}.{kind}", gvk.version);
                let hint = if gvk.group == GROUP && gvk.version != "v1" {
                    "only admissionregistration.k8s.io/v1 is read from files".to_owned()
                } else {
                    format!("the kinds of this folder are {}", self.set.kinds().join(", "))
                };
                let said = message.clone();
                self.problems.at(file, place.of("kind"), "kind", message, Some(&hint), || said);
            }
        }
    }

    /// `v1.List`: each item is an object of its own.
    fn list(&mut self, list: &Value, place: &Place, repeated: &Repeated, within: &str, depth: usize) {
        let file = self.file;
        if depth >= MAX_LISTS {
            let message = "lists are nested too deeply".to_owned();
            let said = message.clone();
            return self.problems.at(file, place.of(""), "", message, None, || said);
        }
        let empty = Map::new();
        let fields = list.as_map().unwrap_or(&empty);
        let mut unknown: Vec<String> = fields
            .iter()
            .map(|(name, _)| name.to_string())
            .filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "items"))
            .collect();
        if let Some((schema, metadata)) = schema::named("meta.v1.ListMeta").zip(fields.get("metadata")) {
            let outcome = schema::decode::normalise(&mut metadata.clone(), schema);
            if let Some(error) = outcome.type_error(&[]) {
                let said = format!("{within}{error}");
                return self.problems.at(file, place.of("metadata"), "metadata", error, None, || said);
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
                let said = format!("{within}{message}");
                return self.problems.at(file, place.of("items"), "items", message, None, || said);
            }
        };
        if !self.strict(place, &unknown, repeated, within) {
            return;
        }
        for (index, item) in items.iter().enumerate() {
            let text = if item.is_null() { Vec::new() } else { write::to_vec(item) };
            let place = place.item(index);
            self.object(
                item.clone(),
                &text,
                &place,
                &Repeated::default(),
                "failed to decode list item: ",
                depth + 1,
            );
        }
    }

    /// Whether there are neither unknown nor repeated fields.
    fn strict(&mut self, place: &Place, unknown: &[String], repeated: &Repeated, within: &str) -> bool {
        if unknown.is_empty() && repeated.words.is_empty() {
            return true;
        }
        let mut words = repeated.words.clone();
        words.extend(schema::decode::strict_errors(unknown, &[]));
        let said = format!("{within}strict decoding error: {}", words.join(", "));
        for (index, word) in repeated.words.iter().enumerate() {
            let at = repeated.places.get(index).copied().unwrap_or_else(|| place.of(""));
            self.problems.at(self.file, at, "", word.clone(), Some("say each field once"), || said.clone());
        }
        for path in unknown {
            let message = format!("unknown field {}", quote(path));
            let hint = "check the spelling and the indentation";
            self.problems.at(self.file, place.key(path), path, message, Some(hint), || said.clone());
        }
        false
    }

    /// Where Go's scheme of these kinds is declared; part of its message.
    fn scheme(&self) -> &'static str {
        if self.set.is_webhooks() {
            "pkg/admission/plugin/webhook/manifest/loader/loader.go:41"
        } else {
            "pkg/admission/plugin/policy/manifest/loader/validating_loader.go:35"
        }
    }
}

/// Fields that occur twice.
#[derive(Default)]
struct Repeated {
    words: Vec<String>,
    places: Vec<Position>,
}

/// The name of a kind that Kubernetes' decoder of these files knows.
fn registered(gvk: &GroupVersionKind) -> Option<&str> {
    let kind = gvk.kind.as_str();
    if gvk.group.is_empty() {
        return (gvk.version == "v1" && kind == "Status").then_some(kind);
    }
    if gvk.group != GROUP || !matches!(gvk.version.as_str(), "v1" | "v1beta1" | "v1alpha1") {
        return None;
    }
    let bare = kind.strip_suffix("List").unwrap_or(kind);
    let of_group = Set::Mixed.kinds().contains(&bare)
        && !(gvk.version == "v1alpha1" && bare.ends_with("WebhookConfiguration"));
    (of_group || META_KINDS.contains(&kind)).then_some(kind)
}

/// The path of the first `caBundle` that is not base64, if that is what is wrong: Go does not say where it is.
fn bad_base64(error: &str, object: &Value) -> Option<String> {
    if !error.starts_with("illegal base64 data") {
        return None;
    }
    let of_webhooks = |object: &Value, prefix: &str| {
        let mut webhooks = object.list_at(&["webhooks"]).iter();
        let is_bad = |webhook: &Value| {
            let bundle = webhook.str_at(&["clientConfig", "caBundle"]);
            bundle.is_some_and(|text| schema::decode::bytes(text).is_err())
        };
        let index = webhooks.position(is_bad)?;
        Some(format!("{prefix}webhooks[{index}].clientConfig.caBundle"))
    };
    let mut items = object.list_at(&["items"]).iter().enumerate();
    of_webhooks(object, "")
        .or_else(|| items.find_map(|(index, item)| of_webhooks(item, &format!("items[{index}]."))))
}

/// The path in Go's words about a value of the wrong type.
fn wrong_field(error: &str) -> String {
    let path = error.split("Go struct field ").nth(1).and_then(|rest| rest.split(' ').next());
    path.and_then(|path| path.split_once('.')).map(|(_, path)| path.to_owned()).unwrap_or_default()
}

/// A message that shows a whole document, without it.
fn short(message: &str) -> String {
    match message.split_once(" is missing in '") {
        Some((what, _)) => format!("{what} is missing"),
        None => message.to_owned(),
    }
}
