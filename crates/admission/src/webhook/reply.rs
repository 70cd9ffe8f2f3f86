//! What a webhook's server sent back → a decoded `AdmissionReview`, refused in the words of Kubernetes' client.
//!
//! The client decodes leniently (unknown fields vanish) but by type, so a review passes the table of its Go types here. JSON and
//! YAML are both read, whatever the `Content-Type` says.

use api::field::quote;
use api::{Details, GroupVersion, Reason, Status};
use value::{Map, Value, json, yaml};

use crate::webhook::{Reply, ReviewVersion};

/// How the client prints the scheme that knows the kinds of reviews.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:74";
/// The most of an unexpected answer that is quoted.
const MAX_QUOTED: usize = 2048;

/// Why there is no review to look at.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unread {
    /// In the client's words.
    pub(super) message: String,
    /// The status code that counts for it.
    pub(super) code: u16,
}

/// Reads a reply as a review of `version`. The review comes back with the types of its fields checked.
pub(super) fn read(reply: &Reply, version: ReviewVersion) -> Result<Value, Unread> {
    if !(200..=206).contains(&reply.status) {
        let status = unexpected(reply);
        return Err(Unread { message: status.message().to_owned(), code: status.code() });
    }
    if reply.body.is_empty() {
        let content_type =
            if reply.content_type.is_empty() { "application/json" } else { &reply.content_type };
        let message =
            format!("0-length response with status code: {} and content type: {content_type}", reply.status);
        return Err(Unread { message, code: 503 });
    }
    decode(&reply.body, version).map_err(|message| Unread { message, code: 503 })
}

/// An answer outside 200 to 206: the `Status` in its body if there is one, or what its code alone says.
pub fn unexpected(reply: &Reply) -> Status {
    if let Some(status) = status_body(&reply.body) {
        return status;
    }
    let server_said = if is_text(&reply.content_type) {
        let head = reply.body.get(..MAX_QUOTED.min(reply.body.len())).unwrap_or_default();
        String::from_utf8_lossy(head).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    let (reason, message) = match reply.status {
        409 => (Reason::AlreadyExists, "the server reported a conflict".to_owned()),
        404 => (Reason::NotFound, "the server could not find the requested resource".to_owned()),
        400 => (Reason::BadRequest, "the server rejected our request for an unknown reason".to_owned()),
        401 => {
            (Reason::Unauthorized, "the server has asked for the client to provide credentials".to_owned())
        }
        403 => (Reason::Forbidden, server_said),
        406 if server_said.is_empty() || server_said == "unknown" => (
            Reason::NotAcceptable,
            "the server was unable to respond with a content type that the client supports".to_owned(),
        ),
        406 => (Reason::NotAcceptable, server_said),
        415 => (Reason::UnsupportedMediaType, server_said),
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource".to_owned(),
        ),
        422 => {
            (Reason::Invalid, "the server rejected our request due to an error in our request".to_owned())
        }
        503 => (
            Reason::ServiceUnavailable,
            "the server is currently unable to handle the request".to_owned(),
        ),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        500.. => {
            let said = quote(&server_said);
            (
                Reason::InternalError,
                format!("an error on the server ({said}) has prevented the request from succeeding"),
            )
        }
        code => (
            Reason::Unknown,
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    Status::failure(reply.status, reason, message).with_details(Details::default())
}

/// A `Status` that says `Failure`, if that is what the body is.
fn status_body(body: &[u8]) -> Option<Status> {
    let tree = tree(body).ok()?;
    let map = tree.as_map()?;
    let text = |field: &str| map.get(field).and_then(Value::as_str);
    if text("kind") != Some("Status") || !matches!(text("apiVersion"), None | Some("" | "v1")) {
        return None;
    }
    typed(&tree, &Type::Struct(&STATUS)).ok()?;
    if text("status") != Some("Failure") {
        return None;
    }
    let code = map.get("code").and_then(Value::as_int).and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    Some(Status::failure(code, Reason::Unknown, text("message").unwrap_or_default()))
}

fn is_text(content_type: &str) -> bool {
    content_type.is_empty() || content_type.trim_start().to_ascii_lowercase().starts_with("text/")
}

/// Bytes as a tree: JSON if they begin like an object, else YAML.
fn tree(body: &[u8]) -> Result<Value, String> {
    const VERSION_KIND: &str = "couldn't get version/kind; json parse error";
    // A webhook may answer with the review that it got, in which the object is.
    let value = if body.trim_ascii_start().starts_with(b"{") {
        json::parse_wrapped(body).map_err(|error| format!("{VERSION_KIND}: {error}"))?
    } else {
        yaml::parse_wrapped(body).map_err(|error| error.to_string())?
    };
    match value {
        Value::Map(_) => Ok(value),
        Value::Null => Ok(Value::Map(Map::new())),
        other => Err(format!(
            "{VERSION_KIND}: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            other.json_type()
        )),
    }
}

/// How much of an answer an error quotes: Kubernetes quotes all of it, and clients need not see megabytes.
const LONGEST_QUOTE: usize = 8 << 10;
/// Kinds that every group of reviews has beside the review.
const OF_EVERY_GROUP: [&str; 7] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];
/// Kinds without a group.
const UNVERSIONED: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

fn decode(body: &[u8], version: ReviewVersion) -> Result<Value, String> {
    let review = tree(body)?;
    let text = |field: &str| match review.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
            other.json_type()
        )),
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let mut sent =
        if api_version.is_empty() { version.group_version() } else { GroupVersion::parse(api_version)? };
    if sent.version.is_empty() && sent.group == ReviewVersion::GROUP {
        sent = version.group_version();
    }
    if sent.version.is_empty() {
        let shown = body.get(..LONGEST_QUOTE).unwrap_or(body);
        return Err(format!("Object 'apiVersion' is missing in '{}'", String::from_utf8_lossy(shown)));
    }
    let kind = if kind.is_empty() { "AdmissionReview" } else { kind };
    if kind == "AdmissionReview" && sent == version.group_version() {
        typed(&review, &Type::Struct(&REVIEW))?;
        return Ok(review);
    }
    let of_reviews = sent.group == ReviewVersion::GROUP && matches!(sent.version.as_str(), "v1" | "v1beta1");
    let known = of_reviews && (kind == "AdmissionReview" || OF_EVERY_GROUP.contains(&kind))
        || sent.group.is_empty() && sent.version == "v1" && UNVERSIONED.contains(&kind);
    if !known {
        return Err(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(&sent.to_string()),
            quote(SCHEME)
        ));
    }
    Err(format!(
        "converting ({}.{kind}) to ({}.AdmissionReview): unknown conversion",
        sent.version,
        version.as_str()
    ))
}

/// The Go types of a review, as far as their decoder can fail.
enum Type {
    Text(&'static str),
    Bool,
    Int32,
    Bytes,
    Any,
    Texts,
    TextMap,
    TextsMap,
    Struct(&'static Struct),
    List(&'static Struct),
}

struct Struct {
    name: &'static str,
    package: &'static str,
    fields: &'static [(&'static str, Type)],
}

const TEXT: Type = Type::Text("string");
const UID: Type = Type::Text("types.UID");

static REVIEW: Struct = Struct {
    name: "AdmissionReview",
    package: "v1",
    fields: &[
        ("apiVersion", TEXT),
        ("kind", TEXT),
        ("request", Type::Struct(&REQUEST)),
        ("response", Type::Struct(&RESPONSE)),
    ],
};
static REQUEST: Struct = Struct {
    name: "AdmissionRequest",
    package: "v1",
    fields: &[
        ("uid", UID),
        ("kind", Type::Struct(&KIND)),
        ("resource", Type::Struct(&RESOURCE)),
        ("subResource", TEXT),
        ("requestKind", Type::Struct(&KIND)),
        ("requestResource", Type::Struct(&RESOURCE)),
        ("requestSubResource", TEXT),
        ("name", TEXT),
        ("namespace", TEXT),
        ("operation", Type::Text("v1.Operation")),
        ("userInfo", Type::Struct(&USER)),
        ("object", Type::Any),
        ("oldObject", Type::Any),
        ("dryRun", Type::Bool),
        ("options", Type::Any),
    ],
};
static KIND: Struct = Struct {
    name: "GroupVersionKind",
    package: "v1",
    fields: &[("group", TEXT), ("version", TEXT), ("kind", TEXT)],
};
static RESOURCE: Struct = Struct {
    name: "GroupVersionResource",
    package: "v1",
    fields: &[("group", TEXT), ("version", TEXT), ("resource", TEXT)],
};
static USER: Struct = Struct {
    name: "UserInfo",
    package: "v1",
    fields: &[("username", TEXT), ("uid", TEXT), ("groups", Type::Texts), ("extra", Type::TextsMap)],
};
static RESPONSE: Struct = Struct {
    name: "AdmissionResponse",
    package: "v1",
    fields: &[
        ("uid", UID),
        ("allowed", Type::Bool),
        ("status", Type::Struct(&STATUS)),
        ("patch", Type::Bytes),
        ("patchType", Type::Text("v1.PatchType")),
        ("auditAnnotations", Type::TextMap),
        ("warnings", Type::Texts),
    ],
};
static STATUS: Struct = Struct {
    name: "Status",
    package: "v1",
    fields: &[
        ("apiVersion", TEXT),
        ("kind", TEXT),
        ("metadata", Type::Struct(&LIST_META)),
        ("status", TEXT),
        ("message", TEXT),
        ("reason", Type::Text("v1.StatusReason")),
        ("details", Type::Struct(&DETAILS)),
        ("code", Type::Int32),
    ],
};
static LIST_META: Struct = Struct {
    name: "ListMeta",
    package: "v1",
    fields: &[("selfLink", TEXT), ("resourceVersion", TEXT), ("continue", TEXT)],
};
static DETAILS: Struct = Struct {
    name: "StatusDetails",
    package: "v1",
    fields: &[
        ("name", TEXT),
        ("group", TEXT),
        ("kind", TEXT),
        ("uid", UID),
        ("causes", Type::List(&CAUSE)),
        ("retryAfterSeconds", Type::Int32),
    ],
};
static CAUSE: Struct = Struct {
    name: "StatusCause",
    package: "v1",
    fields: &[("reason", Type::Text("v1.CauseType")), ("message", TEXT), ("field", TEXT)],
};

/// The first value of a wrong type, in the words of Go's decoder.
fn typed(value: &Value, expected: &Type) -> Result<(), String> {
    check(value, expected, &mut Vec::new(), "")
}

fn check(value: &Value, expected: &Type, path: &mut Vec<&'static str>, holder: &str) -> Result<(), String> {
    let wrong = |found: &str, go_type: &str, path: &[&str]| {
        if path.is_empty() {
            return Err(format!("json: cannot unmarshal {found} into Go value of type {go_type}"));
        }
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field {holder}.{} of type {go_type}",
            path.join(".")
        ))
    };
    let each = |items: &[Value], path: &[&str]| {
        items.iter().find_map(|item| match item {
            Value::String(_) | Value::Null => None,
            other => wrong(other.json_type(), "string", path).err(),
        })
    };
    match (expected, value) {
        (_, Value::Null)
        | (Type::Any, _)
        | (Type::Text(_), Value::String(_))
        | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => Ok(()),
        (Type::Int32, Value::Int(_) | Value::UInt(_) | Value::Float(_)) => {
            wrong(&format!("number {}", value::write::to_string(value)), "int32", path)
        }
        (Type::Struct(object), Value::Map(map)) => {
            for (name, field) in object.fields {
                if let Some(value) = map.get(name) {
                    path.push(name);
                    check(value, field, path, object.name)?;
                    path.pop();
                }
            }
            Ok(())
        }
        (Type::List(object), Value::List(items)) => {
            items.iter().try_for_each(|item| check(item, &Type::Struct(object), path, holder))
        }
        (Type::Texts, Value::List(items)) => each(items, path).map_or(Ok(()), Err),
        (Type::TextMap, Value::Map(map)) => {
            map.values().find_map(|item| each(std::slice::from_ref(item), path)).map_or(Ok(()), Err)
        }
        (Type::TextsMap, Value::Map(map)) => map.values().try_for_each(|item| match item {
            Value::Null => Ok(()),
            Value::List(items) => each(items, path).map_or(Ok(()), Err),
            other => wrong(other.json_type(), "v1.ExtraValue", path),
        }),
        (Type::Bytes, Value::String(text)) => match schema::decode::bytes(text) {
            Ok(_) => Ok(()),
            Err(at) => Err(format!("illegal base64 data at input byte {at}")),
        },
        // Go reads bytes from numbers too.
        (Type::Bytes, Value::List(items)) => items.iter().try_for_each(|item| match item {
            Value::Null => Ok(()),
            Value::Int(byte) if u8::try_from(*byte).is_ok() => Ok(()),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
                wrong(&format!("number {}", value::write::to_string(item)), "uint8", path)
            }
            other => wrong(other.json_type(), "uint8", path),
        }),
        (expected, other) => {
            let go_type = match expected {
                Type::Text(name) => (*name).to_owned(),
                Type::Bool => "bool".to_owned(),
                Type::Int32 => "int32".to_owned(),
                Type::Bytes => "[]uint8".to_owned(),
                Type::Any => "runtime.RawExtension".to_owned(),
                Type::Texts => "[]string".to_owned(),
                Type::TextMap => "map[string]string".to_owned(),
                Type::TextsMap => "map[string]v1.ExtraValue".to_owned(),
                Type::Struct(object) => format!("{}.{}", object.package, object.name),
                Type::List(object) => format!("[]{}.{}", object.package, object.name),
            };
            wrong(other.json_type(), &go_type, path)
        }
    }
}

#[cfg(test)]
mod tests;
