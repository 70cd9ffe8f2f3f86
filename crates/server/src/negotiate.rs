//! Content negotiation: which form and encoding an answer takes, and which encoding a body is in.

use api::Status;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::request_info::Query;

/// The encodings of answers, as a 406 lists them.
pub const ANSWERS: &[&str] = &["application/json", "application/yaml"];

/// The encodings of watches.
pub const WATCHES: &[&str] = &["application/json", "application/yaml", "application/json;stream=watch"];

/// The encodings that events can be written in one after the other.
pub const STREAMS: &[&str] = &["application/json;stream=watch"];

/// The encodings of bodies, as a 415 lists them. Kubernetes' protobuf is read, because kubectl and typed clients write it, but
/// not written.
pub const BODIES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMedia {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

impl Media {
    /// The `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
        }
    }
}

/// What the client wants objects turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The objects themselves.
    Object,
    /// `meta.k8s.io` `Table`, in `v1` or `v1beta1`.
    Table(&'static str),
    /// `meta.k8s.io` `PartialObjectMetadata` or its list.
    Metadata(&'static str, List),
}

/// What answers can be turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// Nothing.
    AsTheyAre,
    /// Partial metadata: what is answered once and kept nowhere has no columns.
    Metadata,
    /// That and tables.
    All,
}

/// Whether one object or a list was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// `PartialObjectMetadata`.
    One,
    /// `PartialObjectMetadataList`.
    Many,
}

/// The outcome of negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The encoding.
    pub media: Media,
    /// The form.
    pub form: Form,
    /// Whether JSON is indented for a person.
    pub pretty: bool,
}

/// One clause of an `Accept` header.
#[derive(Debug)]
pub struct Clause<'a> {
    /// `application`, `*`, …
    pub kind: &'a str,
    /// `json`, `*`, …
    pub subtype: &'a str,
    /// `as=Table` and the like, in order.
    pub params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    /// The value of a parameter.
    pub fn param(&self, key: &str) -> Option<&'a str> {
        self.params.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    /// Whether the clause covers `kind/subtype`.
    pub fn covers(&self, kind: &str, subtype: &str) -> bool {
        (self.kind == kind || self.kind == "*") && (self.subtype == subtype || self.subtype == "*")
    }
}

/// The most clauses looked at in one `Accept` header.
const MAX_CLAUSES: usize = 32;

/// The clauses of an `Accept` header, best first. An absent header accepts anything.
pub fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let text = headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut clauses: Vec<Clause<'_>> = text
        .split(',')
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
        .take(MAX_CLAUSES)
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next()?;
            let (kind, subtype) = match media.split_once('/') {
                Some((kind, subtype)) => (kind.trim(), subtype.trim()),
                None if media == "*" => ("*", "*"),
                None => return None,
            };
            let mut quality = 1.0;
            let mut params = Vec::new();
            for (key, value) in parts.filter_map(|p| p.split_once('=')) {
                let (key, value) = (key.trim(), value.trim());
                if key == "q" { quality = value.parse().unwrap_or(1.0) } else { params.push((key, value)) }
            }
            Some(Clause { kind, subtype, params, quality })
        })
        .collect();
    if text.trim().is_empty() {
        clauses.push(Clause { kind: "*", subtype: "*", params: Vec::new(), quality: 1.0 });
    }
    let wildcards = |c: &Clause<'_>| u8::from(c.kind == "*") + u8::from(c.subtype == "*");
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(wildcards(a).cmp(&wildcards(b))));
    clauses
}

/// Decides how to answer with objects. `forms` says what can be made of them.
pub fn accept(headers: &HeaderMap, query: &Query, forms: Forms) -> Result<Accepted, Status> {
    routed(headers, ANSWERS)?;
    choose(headers, query, forms)
}

/// Decides how to answer with a page that names no resource, which tables cannot be made of.
pub fn accept_page(headers: &HeaderMap, query: &Query, path: &str) -> Result<Accepted, Status> {
    let segments = path.split('/').filter(|segment| !segment.is_empty()).count();
    match path.split('/').find(|segment| !segment.is_empty()) {
        // The lists of groups are put beside Kubernetes' router, not behind it.
        None | Some("apis") if segments < 3 => choose(headers, query, Forms::AsTheyAre),
        Some("version") => {
            routed(headers, &["application/json"])?;
            Ok(Accepted { media: Media::Json, form: Form::Object, pretty: is_pretty(headers, query) })
        }
        _ => accept(headers, query, Forms::AsTheyAre),
    }
}

/// Kubernetes' router looks first, and knows exact types and `*/*` only.
fn routed(headers: &HeaderMap, available: &[&str]) -> Result<(), Status> {
    let takes = |clause: &Clause<'_>| {
        (clause.kind == "*" && clause.subtype == "*")
            || available.iter().any(|known| known.split_once('/') == Some((clause.kind, clause.subtype)))
    };
    if clauses(headers).iter().any(takes) { Ok(()) } else { Err(Status::no_representation(available)) }
}

fn choose(headers: &HeaderMap, query: &Query, forms: Forms) -> Result<Accepted, Status> {
    let pretty = is_pretty(headers, query);
    for clause in clauses(headers) {
        let media = if clause.covers("application", "json") {
            Media::Json
        } else if clause.covers("application", "yaml") {
            Media::Yaml
        } else {
            continue;
        };
        let form = match (clause.param("as"), clause.param("g"), clause.param("v")) {
            (None, _, _) => Form::Object,
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) if forms == Forms::All => Form::Table("v1"),
            (Some("Table"), Some("meta.k8s.io"), Some("v1beta1")) if forms == Forms::All => {
                Form::Table("v1beta1")
            }
            (
                Some(kind @ ("PartialObjectMetadata" | "PartialObjectMetadataList")),
                Some("meta.k8s.io"),
                Some(version),
            ) if forms != Forms::AsTheyAre => {
                let list = if kind.ends_with("List") { List::Many } else { List::One };
                match version {
                    "v1" => Form::Metadata("v1", list),
                    "v1beta1" => Form::Metadata("v1beta1", list),
                    _ => continue,
                }
            }
            _ => continue,
        };
        return Ok(Accepted { media, form, pretty });
    }
    Err(Status::not_acceptable(ANSWERS))
}

/// Whether JSON is indented: asked for, or the client looks like a person's (as Kubernetes guesses it).
pub fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.get("pretty") {
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

/// The type of a body, without parameters; JSON where none is given.
pub fn content_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.is_empty() { "application/json".to_owned() } else { media }
}

/// How to read the body of a create, update, delete or review.
pub fn body_media(headers: &HeaderMap) -> Result<BodyMedia, Status> {
    match content_type(headers).as_str() {
        "application/json" => Ok(BodyMedia::Json),
        "application/yaml" => Ok(BodyMedia::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyMedia::Protobuf),
        _ => Err(Status::unsupported_media_type(BODIES)),
    }
}
