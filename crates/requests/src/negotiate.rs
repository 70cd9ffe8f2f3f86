//! Content negotiation: chooses form and encoding of a response and recognizes the encoding of a body.

use api::Status;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::request_info::Query;

/// Media types of responses, as a 406 lists them.
pub const ANSWERS: &[&str] = &["application/json", "application/yaml"];

/// Media types of watch responses.
pub const WATCHES: &[&str] = &["application/json", "application/yaml", "application/json;stream=watch"];

/// Media types in which several watch events can be written one after the other.
pub const STREAMS: &[&str] = &["application/json;stream=watch"];

/// Media types of request bodies, as a 415 lists them. Kubernetes' protobuf is read, because kubectl and typed clients send it, but
/// never written.
pub const BODIES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMedia {
    Json,
    Yaml,
    Protobuf,
}

/// Encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Json,
    Yaml,
}

impl Media {
    pub fn content_type(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
        }
    }
}

/// The form in which the client wants objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectForm {
    /// The objects themselves, in full.
    Object,
    /// `meta.k8s.io` `Table`, in `v1` or `v1beta1`.
    Table(&'static str),
    /// `meta.k8s.io` `PartialObjectMetadata` or its list, in `v1` or `v1beta1`.
    Metadata(&'static str, MetadataShape),
}

/// The forms that are available for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// Only the object itself.
    ObjectOnly,
    /// The object and partial metadata, but no table: virtual resources have no columns.
    Metadata,
    /// The object, partial metadata and tables.
    All,
}

/// The form of partial metadata that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataShape {
    One,
    Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedResponse {
    pub media: Media,
    pub form: ObjectForm,
    /// Indents JSON for human readers.
    pub pretty: bool,
}

#[derive(Debug)]
pub struct Clause<'a> {
    /// The part before the slash: `application`, `*`, …
    pub kind: &'a str,
    /// The part after the slash: `json`, `*`, …
    pub subtype: &'a str,
    /// Parameters such as `as=Table` in order, without `q`.
    pub params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    pub fn param(&self, key: &str) -> Option<&'a str> {
        self.params.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    /// Reports whether the clause, with its wildcards, matches `kind/subtype`.
    pub fn covers(&self, kind: &str, subtype: &str) -> bool {
        (self.kind == kind || self.kind == "*") && (self.subtype == subtype || self.subtype == "*")
    }
}

/// Further clauses of an `Accept` header are ignored.
const MAX_CLAUSES: usize = 32;

/// The clauses of an `Accept` header by descending quality, exact types before wildcards. A missing header accepts everything.
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

/// Negotiates a response that consists of objects. `forms` limits what they can be converted to.
pub fn accept(headers: &HeaderMap, query: &Query, forms: Forms) -> Result<NegotiatedResponse, Status> {
    routed(headers, ANSWERS)?;
    choose(headers, query, forms)
}

/// Negotiates a response outside any resource, such as discovery, which has no table form.
pub fn accept_page(headers: &HeaderMap, query: &Query, path: &str) -> Result<NegotiatedResponse, Status> {
    let segments = path.split('/').filter(|segment| !segment.is_empty()).count();
    match path.split('/').find(|segment| !segment.is_empty()) {
        // kube-apiserver installs the lists of groups beside its router, so they skip the router's check.
        None | Some("apis") if segments < 3 => choose(headers, query, Forms::ObjectOnly),
        Some("version") => {
            routed(headers, &["application/json"])?;
            Ok(NegotiatedResponse {
                media: Media::Json,
                form: ObjectForm::Object,
                pretty: is_pretty(headers, query),
            })
        }
        _ => accept(headers, query, Forms::ObjectOnly),
    }
}

/// The check of kube-apiserver's router, which runs before negotiation and knows only exact types and `*/*`.
fn routed(headers: &HeaderMap, available: &[&str]) -> Result<(), Status> {
    let takes = |clause: &Clause<'_>| {
        (clause.kind == "*" && clause.subtype == "*")
            || available.iter().any(|known| known.split_once('/') == Some((clause.kind, clause.subtype)))
    };
    if clauses(headers).iter().any(takes) { Ok(()) } else { Err(Status::no_representation(available)) }
}

fn choose(headers: &HeaderMap, query: &Query, forms: Forms) -> Result<NegotiatedResponse, Status> {
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
            (None, _, _) => ObjectForm::Object,
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) if forms == Forms::All => {
                ObjectForm::Table("v1")
            }
            (Some("Table"), Some("meta.k8s.io"), Some("v1beta1")) if forms == Forms::All => {
                ObjectForm::Table("v1beta1")
            }
            (
                Some(kind @ ("PartialObjectMetadata" | "PartialObjectMetadataList")),
                Some("meta.k8s.io"),
                Some(version),
            ) if forms != Forms::ObjectOnly => {
                let list = if kind.ends_with("List") { MetadataShape::Many } else { MetadataShape::One };
                match version {
                    "v1" => ObjectForm::Metadata("v1", list),
                    "v1beta1" => ObjectForm::Metadata("v1beta1", list),
                    _ => continue,
                }
            }
            _ => continue,
        };
        return Ok(NegotiatedResponse { media, form, pretty });
    }
    Err(Status::not_acceptable(ANSWERS))
}

/// Decides whether to indent JSON: the `pretty` parameter, or else a user agent that Kubernetes takes for a person's.
pub fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.get("pretty") {
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

/// Media type of a body in lower case, without parameters; JSON if there is none.
pub fn content_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.is_empty() { "application/json".to_owned() } else { media }
}

/// Encoding of the body of a create, update, delete or review; a 415 if it is unknown.
pub fn body_media(headers: &HeaderMap) -> Result<BodyMedia, Status> {
    match content_type(headers).as_str() {
        "application/json" => Ok(BodyMedia::Json),
        "application/yaml" => Ok(BodyMedia::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyMedia::Protobuf),
        _ => Err(Status::unsupported_media_type(BODIES)),
    }
}
