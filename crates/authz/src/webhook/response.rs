//! Decodes a webhook's response, with the error messages of Kubernetes' client.

use api::field::quote;
use value::{Map, Str, Value, json, yaml};

use crate::config::SubjectAccessReviewVersion;
use crate::decision::{AuthorizerDecision, Decision, DecisionReason};
use crate::webhook::review::api_version;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookResponse {
    pub status: u16,
    /// Empty if the header is missing.
    pub content_type: String,
    /// Whether the response has a `Retry-After` header.
    pub retry_after: bool,
    pub body: Vec<u8>,
}

/// The webhook did not send a response that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    Timeout(String),
    /// The request that it was about was canceled.
    Canceled(String),
    /// The connection broke; a retry may succeed.
    Reset(String),
    /// For example connection refused, untrusted certificate, response too long.
    Other(String),
}

/// The `status` of the returned review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReviewVerdict {
    pub(super) allowed: bool,
    denied: bool,
    reason: Str,
}

/// The response is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookFailure {
    /// The message of Kubernetes' client.
    pub message: String,
    /// Whether a retry may succeed.
    pub is_transient: bool,
    result: &'static str,
    /// Whether the response is malformed and contains neither an allow nor a deny. kube-apiserver treats this
    /// as no opinion.
    is_undecided: bool,
}

impl ReviewVerdict {
    /// Neither allowed nor denied.
    const NONE: ReviewVerdict = ReviewVerdict { allowed: false, denied: false, reason: Str::new_static("") };

    pub(super) fn to_decision(&self) -> AuthorizerDecision {
        let decision = match (self.denied, self.allowed) {
            (true, _) => Decision::Deny,
            (false, true) => Decision::Allow,
            (false, false) => Decision::NoOpinion,
        };
        // Contradictory: counts as a deny.
        let contradiction = self.denied && self.allowed;
        let error = contradiction
            .then(|| "webhook subject access review returned both allow and deny response".to_owned());
        AuthorizerDecision { decision, reason: DecisionReason::Text(self.reason.clone()), error }
    }
}

impl WebhookFailure {
    fn new(message: impl Into<String>) -> Self {
        WebhookFailure { message: message.into(), is_transient: false, result: "error", is_undecided: false }
    }

    /// The `result` label in metrics.
    pub(super) fn result(&self) -> &'static str {
        self.result
    }
}

pub(super) fn decode_verdict(
    sent: Result<WebhookResponse, SendError>,
    version: SubjectAccessReviewVersion,
) -> Result<ReviewVerdict, WebhookFailure> {
    read(&decode_object(sent)?, version)
}

/// Turns a response without a decision into "no opinion" without an error, as kube-apiserver does. Under a
/// failure policy of NoOpinion the decision is the same.
pub(super) fn undecided_as_no_opinion(
    outcome: Result<ReviewVerdict, WebhookFailure>,
) -> Result<ReviewVerdict, WebhookFailure> {
    match outcome {
        Err(failure) if failure.is_undecided => Ok(ReviewVerdict::NONE),
        outcome => outcome,
    }
}

/// The object in the response, of any kind.
pub fn decode_object(sent: Result<WebhookResponse, SendError>) -> Result<Value, WebhookFailure> {
    let response = sent.map_err(|error| match error {
        SendError::Timeout(message) => WebhookFailure { result: "timeout", ..WebhookFailure::new(message) },
        SendError::Canceled(message) => WebhookFailure { result: "canceled", ..WebhookFailure::new(message) },
        SendError::Reset(message) => WebhookFailure { is_transient: true, ..WebhookFailure::new(message) },
        SendError::Other(message) => WebhookFailure::new(message),
    })?;
    if !(200..=206).contains(&response.status) {
        return Err(status_failure(&response));
    }
    if response.body.is_empty() {
        return Err(WebhookFailure::new(format!(
            "0-length response with status code: {} and content type: {}",
            response.status, response.content_type
        )));
    }
    // A body that does not begin with `{` is parsed as YAML, like Kubernetes' client does.
    if response.body.trim_ascii_start().starts_with(b"{") {
        json::parse(&response.body).map_err(|error| {
            WebhookFailure::new(format!("couldn't get version/kind; json parse error: {}", error.message))
        })
    } else {
        Ok(yaml::document(&response.body).map_err(|error| WebhookFailure::new(error.message))?.value)
    }
}

/// How Go prints the type with which it reads an object's kind.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// The location of Go's scheme for all kinds, which is part of its error messages.
const SCHEME: &str = "k8s.io/client-go/kubernetes/scheme/register.go:84";
/// Versions whose kinds Kubernetes' client knows: it reports them as inconvertible rather than unknown.
const INCONVERTIBLE_VERSIONS: [&str; 8] = [
    "v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "batch/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
];

fn read(object: &Value, version: SubjectAccessReviewVersion) -> Result<ReviewVerdict, WebhookFailure> {
    let expected = api_version(version);
    check_type(object, expected)?;
    match object.get("status") {
        None | Some(Value::Null) => Err(malformed_response("status is missing", expected)),
        Some(Value::Map(status)) => read_status(status, expected),
        Some(other) => {
            let version = expected.rsplit('/').next().unwrap_or_default();
            let status = format!("{version}.SubjectAccessReviewStatus");
            Err(unmarshal_failure(other, "SubjectAccessReview", "status", &status))
        }
    }
}

/// Fails if the object is not a SubjectAccessReview of the `expected` apiVersion.
fn check_type(object: &Value, expected: &str) -> Result<(), WebhookFailure> {
    let malformed = |kind: &str, target: String| {
        WebhookFailure::new(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go {target}"
        ))
    };
    if object.as_map().is_none() {
        return Err(malformed(object.json_type(), format!("value of type {META}")));
    }
    let meta = |field: &str| match object.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(malformed(other.json_type(), format!("struct field .{field} of type string"))),
    };
    let (given, kind) = (meta("apiVersion")?, meta("kind")?);
    if (given, kind) == ("v1", "Status") {
        let message = object.str_at(&["message"]).unwrap_or_default();
        return Err(match object.str_at(&["status"]) {
            Some("Success") => malformed_response("it is a Status and has no decision", expected),
            _ => WebhookFailure::new(message),
        });
    }
    // An explicit deny counts even without apiVersion and kind, as in kube-apiserver: a failure policy of
    // NoOpinion must not weaken it.
    let denies = object.at(&["status", "denied"]).and_then(Value::as_bool) == Some(true);
    let is_untyped = given.is_empty() || kind.is_empty();
    if is_untyped && !denies {
        let missing = match (given, kind) {
            ("", "") => "apiVersion and kind are missing",
            ("", _) => "apiVersion is missing",
            _ => "kind is missing",
        };
        let allows = object.at(&["status", "allowed"]).and_then(Value::as_bool) == Some(true);
        return Err(WebhookFailure { is_undecided: !allows, ..malformed_response(missing, expected) });
    }
    if !is_untyped && (given, kind) != (expected, "SubjectAccessReview") {
        let short = |api_version: &str| api_version.rsplit('/').next().unwrap_or_default().to_owned();
        return Err(WebhookFailure::new(if INCONVERTIBLE_VERSIONS.contains(&given) {
            let (from, to) = (short(given), short(expected));
            format!("converting ({from}.{kind}) to ({to}.SubjectAccessReview): unknown conversion")
        } else {
            format!(
                "no kind {} is registered for version {} in scheme {}",
                quote(kind),
                quote(given),
                quote(SCHEME)
            )
        }));
    }
    Ok(())
}

fn read_status(status: &Map, expected: &str) -> Result<ReviewVerdict, WebhookFailure> {
    const OWNER: &str = "SubjectAccessReviewStatus";
    let flag = |field: &str| match status.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(unmarshal_failure(other, OWNER, &format!("status.{field}"), "bool")),
    };
    let reason = match status.get("reason") {
        None | Some(Value::Null) => Str::default(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => return Err(unmarshal_failure(other, OWNER, "status.reason", "string")),
    };
    let verdict = ReviewVerdict { allowed: flag("allowed")?, denied: flag("denied")?, reason };
    // `allowed` is required, but a deny is unambiguous without it.
    if !verdict.denied && status.get("allowed").is_none_or(Value::is_null) {
        return Err(malformed_response("status.allowed is missing", expected));
    }
    Ok(verdict)
}

/// The error of Go's decoder for a value of another type.
fn unmarshal_failure(value: &Value, owner: &str, path: &str, expected: &str) -> WebhookFailure {
    WebhookFailure::new(format!(
        "json: cannot unmarshal {} into Go struct field {owner}.{path} of type {expected}",
        value.json_type()
    ))
}

/// A malformed response (KEP-3221): the failure policy decides.
fn malformed_response(why: &str, wanted: &str) -> WebhookFailure {
    let message = format!(
        "the webhook's response is malformed: {why}; it must be a SubjectAccessReview of {wanted} with status.allowed"
    );
    WebhookFailure { is_undecided: true, ..WebhookFailure::new(message) }
}

/// The failure for a status code outside 200 to 206. A `Status` in the body takes precedence.
fn status_failure(response: &WebhookResponse) -> WebhookFailure {
    let status = json::parse(&response.body).ok().filter(|body| {
        body.str_at(&["kind"]) == Some("Status") && body.str_at(&["apiVersion"]) == Some("v1")
    });
    if let Some(status) = status {
        let reason = status.str_at(&["reason"]).unwrap_or_default();
        let code = status.int_at(&["code"]).unwrap_or(0);
        let waits = status.int_at(&["details", "retryAfterSeconds"]).unwrap_or(0) > 0;
        // Kubernetes' client checks the reason first, and the code only if the reason is unknown.
        let timed_out = reason == "Timeout" || (reason.is_empty() && code == 504);
        let is_transient = timed_out
            || matches!(reason, "InternalError" | "TooManyRequests")
            || (reason == "ServerTimeout" && status.at(&["details"]).is_some())
            || (reason.is_empty() && matches!(code, 500 | 429))
            || waits;
        let message = status.str_at(&["message"]).unwrap_or_default();
        let result = if timed_out || response.status == 504 { "timeout" } else { "error" };
        return WebhookFailure { is_transient, result, ..WebhookFailure::new(message) };
    }
    let is_text = response.content_type.is_empty() || response.content_type.starts_with("text/");
    let body = String::from_utf8_lossy(&response.body);
    let shown = if is_text { body.trim() } else { "unknown" };
    let message = match response.status {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 406 | 415 => shown.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        code if code >= 500 => {
            format!("an error on the server ({}) has prevented the request from succeeding", quote(shown))
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    let is_transient =
        (response.status >= 500 && response.status != 503) || response.status == 429 || response.retry_after;
    let result = if response.status == 504 { "timeout" } else { "error" };
    WebhookFailure { is_transient, result, ..WebhookFailure::new(message) }
}
