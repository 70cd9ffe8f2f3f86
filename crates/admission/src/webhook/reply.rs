//! Decodes a webhook's HTTP response as `AdmissionReview`, with the error messages of Kubernetes' client.
//!
//! The client ignores unknown fields but checks types, so this module has a table of the Go types of a
//! review. JSON and YAML are both accepted, whatever the `Content-Type`.

use api::field::quote;
use api::{GroupVersion, Status, StatusDetails, StatusReason};
use value::{Map, Value, json, yaml};

use crate::webhook::{AdmissionReviewVersion, WebhookReply};

/// The location of Go's scheme for reviews, which is part of its error messages.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:74";
/// At most this many bytes of an unexpected response are quoted.
const MAX_QUOTED: usize = 2048;

/// The response is not a review.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReplyError {
    /// The message of Kubernetes' client.
    pub(super) message: String,
    /// The status code in metrics.
    pub(super) code: u16,
}

/// Decodes a review of `version` and checks the types of its fields.
pub(super) fn read(reply: &WebhookReply, version: AdmissionReviewVersion) -> Result<Value, ReplyError> {
    if !(200..=206).contains(&reply.status) {
        let status = status_of_reply(reply);
        return Err(ReplyError { message: status.message().to_owned(), code: status.code() });
    }
    if reply.body.is_empty() {
        let content_type =
            if reply.content_type.is_empty() { "application/json" } else { &reply.content_type };
        let message =
            format!("0-length response with status code: {} and content type: {content_type}", reply.status);
        return Err(ReplyError { message, code: 503 });
    }
    decode(&reply.body, version).map_err(|message| ReplyError { message, code: 503 })
}

/// The status for a response outside 200 to 206: the `Status` in its body, or one derived from the code.
pub fn status_of_reply(reply: &WebhookReply) -> Status {
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
        409 => (StatusReason::AlreadyExists, "the server reported a conflict".to_owned()),
        404 => (StatusReason::NotFound, "the server could not find the requested resource".to_owned()),
        400 => (StatusReason::BadRequest, "the server rejected our request for an unknown reason".to_owned()),
        401 => {
            (StatusReason::Unauthorized, "the server has asked for the client to provide credentials".to_owned())
        }
        403 => (StatusReason::Forbidden, server_said),
        406 if server_said.is_empty() || server_said == "unknown" => (
            StatusReason::NotAcceptable,
            "the server was unable to respond with a content type that the client supports".to_owned(),
        ),
        406 => (StatusReason::NotAcceptable, server_said),
        415 => (StatusReason::UnsupportedMediaType, server_said),
        405 => (
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource".to_owned(),
        ),
        422 => {
            (StatusReason::Invalid, "the server rejected our request due to an error in our request".to_owned())
        }
        503 => (
            StatusReason::ServiceUnavailable,
            "the server is currently unable to handle the request".to_owned(),
        ),
        504 => (
            StatusReason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        429 => (
            StatusReason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        500.. => {
            let report = quote(&server_said);
            (
                StatusReason::InternalError,
                format!("an error on the server ({report}) has prevented the request from succeeding"),
            )
        }
        code => (
            StatusReason::Unknown,
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    Status::failure(reply.status, reason, message).with_details(StatusDetails::default())
}

/// The body as a `Status`, if it is a failure.
fn status_body(body: &[u8]) -> Option<Status> {
    let tree = tree(body).ok()?;
    let map = tree.as_map()?;
    let text = |field: &str| map.get(field).and_then(Value::as_str);
    if text("kind") != Some("Status") || !matches!(text("apiVersion"), None | Some("" | "v1")) {
        return None;
    }
    check_types(&tree, &GoType::GoStruct(&STATUS)).ok()?;
    if text("status") != Some("Failure") {
        return None;
    }
    let code = map.get("code").and_then(Value::as_int).and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    Some(Status::failure(code, StatusReason::Unknown, text("message").unwrap_or_default()))
}

fn is_text(content_type: &str) -> bool {
    content_type.is_empty() || content_type.trim_start().to_ascii_lowercase().starts_with("text/")
}

/// Parses JSON if the body begins with `{`, else YAML.
fn tree(body: &[u8]) -> Result<Value, String> {
    const VERSION_KIND: &str = "couldn't get version/kind; json parse error";
    // A webhook can return the review that it received. It contains the object, so it may be nested deeper than objects are.
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

/// kube-apiserver quotes the whole response in this error; this limits it.
const MAX_QUOTED_DOCUMENT: usize = 8 << 10;
/// Kinds of `metav1` that are registered in every group.
const OF_EVERY_GROUP: [&str; 7] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];
/// Kinds that are registered in the core group only.
const UNVERSIONED: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

fn decode(body: &[u8], version: AdmissionReviewVersion) -> Result<Value, String> {
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
    if sent.version.is_empty() && sent.group == AdmissionReviewVersion::GROUP {
        sent = version.group_version();
    }
    if sent.version.is_empty() {
        let shown = body.get(..MAX_QUOTED_DOCUMENT).unwrap_or(body);
        return Err(format!("Object 'apiVersion' is missing in '{}'", String::from_utf8_lossy(shown)));
    }
    let kind = if kind.is_empty() { "AdmissionReview" } else { kind };
    if kind == "AdmissionReview" && sent == version.group_version() {
        check_types(&review, &GoType::GoStruct(&REVIEW))?;
        return Ok(review);
    }
    let is_review_group =
        sent.group == AdmissionReviewVersion::GROUP && matches!(sent.version.as_str(), "v1" | "v1beta1");
    let is_registered = is_review_group && (kind == "AdmissionReview" || OF_EVERY_GROUP.contains(&kind))
        || sent.group.is_empty() && sent.version == "v1" && UNVERSIONED.contains(&kind);
    if !is_registered {
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

/// The Go types of a review, as far as decoding them can fail.
enum GoType {
    Text(&'static str),
    Bool,
    Int32,
    Bytes,
    Any,
    Texts,
    TextMap,
    TextsMap,
    GoStruct(&'static GoStruct),
    List(&'static GoStruct),
}

struct GoStruct {
    name: &'static str,
    package: &'static str,
    fields: &'static [(&'static str, GoType)],
}

const TEXT: GoType = GoType::Text("string");
const UID: GoType = GoType::Text("types.UID");

static REVIEW: GoStruct = GoStruct {
    name: "AdmissionReview",
    package: "v1",
    fields: &[
        ("apiVersion", TEXT),
        ("kind", TEXT),
        ("request", GoType::GoStruct(&REQUEST)),
        ("response", GoType::GoStruct(&RESPONSE)),
    ],
};
static REQUEST: GoStruct = GoStruct {
    name: "AdmissionRequest",
    package: "v1",
    fields: &[
        ("uid", UID),
        ("kind", GoType::GoStruct(&KIND)),
        ("resource", GoType::GoStruct(&RESOURCE)),
        ("subResource", TEXT),
        ("requestKind", GoType::GoStruct(&KIND)),
        ("requestResource", GoType::GoStruct(&RESOURCE)),
        ("requestSubResource", TEXT),
        ("name", TEXT),
        ("namespace", TEXT),
        ("operation", GoType::Text("v1.Operation")),
        ("userInfo", GoType::GoStruct(&USER)),
        ("object", GoType::Any),
        ("oldObject", GoType::Any),
        ("dryRun", GoType::Bool),
        ("options", GoType::Any),
    ],
};
static KIND: GoStruct = GoStruct {
    name: "GroupVersionKind",
    package: "v1",
    fields: &[("group", TEXT), ("version", TEXT), ("kind", TEXT)],
};
static RESOURCE: GoStruct = GoStruct {
    name: "GroupVersionResource",
    package: "v1",
    fields: &[("group", TEXT), ("version", TEXT), ("resource", TEXT)],
};
static USER: GoStruct = GoStruct {
    name: "UserInfo",
    package: "v1",
    fields: &[("username", TEXT), ("uid", TEXT), ("groups", GoType::Texts), ("extra", GoType::TextsMap)],
};
static RESPONSE: GoStruct = GoStruct {
    name: "AdmissionResponse",
    package: "v1",
    fields: &[
        ("uid", UID),
        ("allowed", GoType::Bool),
        ("status", GoType::GoStruct(&STATUS)),
        ("patch", GoType::Bytes),
        ("patchType", GoType::Text("v1.PatchType")),
        ("auditAnnotations", GoType::TextMap),
        ("warnings", GoType::Texts),
    ],
};
static STATUS: GoStruct = GoStruct {
    name: "Status",
    package: "v1",
    fields: &[
        ("apiVersion", TEXT),
        ("kind", TEXT),
        ("metadata", GoType::GoStruct(&LIST_META)),
        ("status", TEXT),
        ("message", TEXT),
        ("reason", GoType::Text("v1.StatusReason")),
        ("details", GoType::GoStruct(&DETAILS)),
        ("code", GoType::Int32),
    ],
};
static LIST_META: GoStruct = GoStruct {
    name: "ListMeta",
    package: "v1",
    fields: &[("selfLink", TEXT), ("resourceVersion", TEXT), ("continue", TEXT)],
};
static DETAILS: GoStruct = GoStruct {
    name: "StatusDetails",
    package: "v1",
    fields: &[
        ("name", TEXT),
        ("group", TEXT),
        ("kind", TEXT),
        ("uid", UID),
        ("causes", GoType::List(&CAUSE)),
        ("retryAfterSeconds", GoType::Int32),
    ],
};
static CAUSE: GoStruct = GoStruct {
    name: "StatusCause",
    package: "v1",
    fields: &[("reason", GoType::Text("v1.CauseType")), ("message", TEXT), ("field", TEXT)],
};

impl GoType {
    /// The name in the messages of Go's decoder.
    fn go_name(&self) -> String {
        match self {
            GoType::Text(name) => (*name).to_owned(),
            GoType::Bool => "bool".to_owned(),
            GoType::Int32 => "int32".to_owned(),
            GoType::Bytes => "[]uint8".to_owned(),
            GoType::Any => "runtime.RawExtension".to_owned(),
            GoType::Texts => "[]string".to_owned(),
            GoType::TextMap => "map[string]string".to_owned(),
            GoType::TextsMap => "map[string]v1.ExtraValue".to_owned(),
            GoType::GoStruct(object) => format!("{}.{}", object.package, object.name),
            GoType::List(object) => format!("[]{}.{}", object.package, object.name),
        }
    }
}

/// The first value of a wrong type, with the message of Go's decoder.
fn check_types(value: &Value, expected: &GoType) -> Result<(), String> {
    check_type(value, expected, &mut Vec::new(), "")
}

fn check_type(
    value: &Value,
    expected: &GoType,
    path: &mut Vec<&'static str>,
    holder: &str,
) -> Result<(), String> {
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
        | (GoType::Any, _)
        | (GoType::Text(_), Value::String(_))
        | (GoType::Bool, Value::Bool(_)) => Ok(()),
        (GoType::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => Ok(()),
        (GoType::Int32, Value::Int(_) | Value::UInt(_) | Value::Float(_)) => {
            wrong(&format!("number {}", value::write::to_string(value)), "int32", path)
        }
        (GoType::GoStruct(object), Value::Map(map)) => {
            for (name, field) in object.fields {
                if let Some(value) = map.get(name) {
                    path.push(name);
                    check_type(value, field, path, object.name)?;
                    path.pop();
                }
            }
            Ok(())
        }
        (GoType::List(object), Value::List(items)) => {
            items.iter().try_for_each(|item| check_type(item, &GoType::GoStruct(object), path, holder))
        }
        (GoType::Texts, Value::List(items)) => each(items, path).map_or(Ok(()), Err),
        (GoType::TextMap, Value::Map(map)) => {
            map.values().find_map(|item| each(std::slice::from_ref(item), path)).map_or(Ok(()), Err)
        }
        (GoType::TextsMap, Value::Map(map)) => map.values().try_for_each(|item| match item {
            Value::Null => Ok(()),
            Value::List(items) => each(items, path).map_or(Ok(()), Err),
            other => wrong(other.json_type(), "v1.ExtraValue", path),
        }),
        (GoType::Bytes, Value::String(text)) => {
            value::go::base64::STD.decode(text).map(drop).map_err(|error| error.to_string())
        }
        // Go decodes bytes from lists of numbers, too.
        (GoType::Bytes, Value::List(items)) => items.iter().try_for_each(|item| match item {
            Value::Null => Ok(()),
            Value::Int(byte) if u8::try_from(*byte).is_ok() => Ok(()),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
                wrong(&format!("number {}", value::write::to_string(item)), "uint8", path)
            }
            other => wrong(other.json_type(), "uint8", path),
        }),
        (expected, other) => wrong(other.json_type(), &expected.go_name(), path),
    }
}

#[cfg(test)]
mod tests;
