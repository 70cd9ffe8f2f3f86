//! What a service answered, or failed to → a verdict, or a failure in the words of Kubernetes' client.

use api::field::quote;
use value::{Str, Value, json, yaml};

use crate::config::ReviewVersion;
use crate::decision::{Answer, Decision, Reason};
use crate::webhook::review::api_version;

/// An answer as it came over the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The HTTP status code.
    pub status: u16,
    /// The `Content-Type` header; empty where there is none.
    pub content_type: String,
    /// Whether the answer says when to try again.
    pub retry_after: bool,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// It took too long.
    Timeout(String),
    /// The request this was about is no longer wanted.
    Canceled(String),
    /// The connection broke in a way that may pass.
    Reset(String),
    /// Anything else: no connection, no trust, too long an answer.
    Other(String),
}

/// What a service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    denied: bool,
    reason: Str,
}

/// Why there is no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In the words of Kubernetes' client.
    pub message: String,
    /// Whether another try may help.
    pub may_pass: bool,
    result: &'static str,
    /// Whether the answer is malformed and says neither that the request is allowed nor that it is denied. kube-apiserver takes that for
    /// "no opinion".
    is_undecided: bool,
}

impl Verdict {
    /// Neither allowed nor denied.
    const NONE: Verdict = Verdict { allowed: false, denied: false, reason: Str::new_static("") };

    pub(super) fn answer(&self) -> Answer {
        let decision = match (self.denied, self.allowed) {
            (true, _) => Decision::Deny,
            (false, true) => Decision::Allow,
            (false, false) => Decision::NoOpinion,
        };
        // Whoever says both is not to be believed: it stays a deny.
        let contradiction = self.denied && self.allowed;
        let error = contradiction
            .then(|| "webhook subject access review returned both allow and deny response".to_owned());
        Answer { decision, reason: Reason::Text(self.reason.clone()), error }
    }
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), may_pass: false, result: "error", is_undecided: false }
    }

    /// The label of metrics.
    pub(super) fn result(&self) -> &'static str {
        self.result
    }
}

/// What an answer means.
pub(super) fn verdict(sent: Result<Answered, SendError>, version: ReviewVersion) -> Result<Verdict, Failure> {
    read(&received(sent)?, version)
}

/// As kube-apiserver takes answers that say nothing: as no opinion, which is not even an error. With a failure policy of NoOpinion it comes
/// to the same.
pub(super) fn undecided_as_none(outcome: Result<Verdict, Failure>) -> Result<Verdict, Failure> {
    match outcome {
        Err(failure) if failure.is_undecided => Ok(Verdict::NONE),
        outcome => outcome,
    }
}

/// The object that a service answered with, whatever it is.
pub fn received(sent: Result<Answered, SendError>) -> Result<Value, Failure> {
    let answered = sent.map_err(|error| match error {
        SendError::Timeout(message) => Failure { result: "timeout", ..Failure::new(message) },
        SendError::Canceled(message) => Failure { result: "canceled", ..Failure::new(message) },
        SendError::Reset(message) => Failure { may_pass: true, ..Failure::new(message) },
        SendError::Other(message) => Failure::new(message),
    })?;
    if !(200..=206).contains(&answered.status) {
        return Err(refusal(&answered));
    }
    if answered.body.is_empty() {
        return Err(Failure::new(format!(
            "0-length response with status code: {} and content type: {}",
            answered.status, answered.content_type
        )));
    }
    // What does not begin as an object is taken for YAML, as Kubernetes' client does.
    if answered.body.trim_ascii_start().starts_with(b"{") {
        json::parse(&answered.body).map_err(|error| {
            Failure::new(format!("couldn't get version/kind; json parse error: {}", error.message))
        })
    } else {
        Ok(yaml::document(&answered.body).map_err(|error| Failure::new(error.message))?.value)
    }
}

/// How Go prints the type it reads an object's kind with.
const META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// Where Go's scheme of all kinds is declared; part of its message.
const SCHEME: &str = "k8s.io/client-go/kubernetes/scheme/register.go:84";
/// Versions whose kinds Kubernetes' client knows, and so finds unsuitable rather than unknown.
const KNOWN: [&str; 8] = [
    "v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "batch/v1",
    "networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
];

fn read(object: &Value, version: ReviewVersion) -> Result<Verdict, Failure> {
    let malformed = |kind: &str, target: String| {
        Failure::new(format!(
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
    let wanted = api_version(version);
    let (given, kind) = (meta("apiVersion")?, meta("kind")?);
    if (given, kind) == ("v1", "Status") {
        let message = object.str_at(&["message"]).unwrap_or_default();
        return Err(match object.str_at(&["status"]) {
            Some("Success") => incomplete("it is a Status and has no decision", wanted),
            _ => Failure::new(message),
        });
    }
    // An explicit deny counts even without a type, as it does in kube-apiserver: a failure policy of NoOpinion must not weaken it.
    let denies = object.at(&["status", "denied"]).and_then(Value::as_bool) == Some(true);
    let is_untyped = given.is_empty() || kind.is_empty();
    if is_untyped && !denies {
        let missing = match (given, kind) {
            ("", "") => "apiVersion and kind are missing",
            ("", _) => "apiVersion is missing",
            _ => "kind is missing",
        };
        let allows = object.at(&["status", "allowed"]).and_then(Value::as_bool) == Some(true);
        return Err(Failure { is_undecided: !allows, ..incomplete(missing, wanted) });
    }
    if !is_untyped && (given, kind) != (wanted, "SubjectAccessReview") {
        let short = |api_version: &str| api_version.rsplit('/').next().unwrap_or_default().to_owned();
        return Err(Failure::new(if KNOWN.contains(&given) {
            let (from, to) = (short(given), short(wanted));
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
    let wrong = |value: &Value, owner: &str, path: &str, wanted: &str| {
        Failure::new(format!(
            "json: cannot unmarshal {} into Go struct field {owner}.{path} of type {wanted}",
            value.json_type()
        ))
    };
    match object.get("status") {
        None | Some(Value::Null) => Err(incomplete("status is missing", wanted)),
        Some(Value::Map(status)) => {
            const OWNER: &str = "SubjectAccessReviewStatus";
            let flag = |field: &str| match status.get(field) {
                None | Some(Value::Null) => Ok(false),
                Some(Value::Bool(flag)) => Ok(*flag),
                Some(other) => Err(wrong(other, OWNER, &format!("status.{field}"), "bool")),
            };
            let reason = match status.get("reason") {
                None | Some(Value::Null) => Str::default(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => return Err(wrong(other, OWNER, "status.reason", "string")),
            };
            let verdict = Verdict { allowed: flag("allowed")?, denied: flag("denied")?, reason };
            // `allowed` is required by the API. A deny is unmistakable without it.
            if !verdict.denied && status.get("allowed").is_none_or(Value::is_null) {
                return Err(incomplete("status.allowed is missing", wanted));
            }
            Ok(verdict)
        }
        Some(other) => {
            let wanted =
                format!("{}.SubjectAccessReviewStatus", wanted.rsplit('/').next().unwrap_or_default());
            Err(wrong(other, "SubjectAccessReview", "status", &wanted))
        }
    }
}

/// A malformed answer (KEP-3221): the webhook's failure policy decides.
fn incomplete(why: &str, wanted: &str) -> Failure {
    let message = format!(
        "the webhook's response is malformed: {why}; it must be a SubjectAccessReview of {wanted} with status.allowed"
    );
    Failure { is_undecided: true, ..Failure::new(message) }
}

/// What a status code other than success means. A `Status` in the body says it better.
fn refusal(answered: &Answered) -> Failure {
    let status = json::parse(&answered.body).ok().filter(|body| {
        body.str_at(&["kind"]) == Some("Status") && body.str_at(&["apiVersion"]) == Some("v1")
    });
    if let Some(status) = status {
        let reason = status.str_at(&["reason"]).unwrap_or_default();
        let code = status.int_at(&["code"]).unwrap_or(0);
        let waits = status.int_at(&["details", "retryAfterSeconds"]).unwrap_or(0) > 0;
        // What Kubernetes' client goes by: the reason, and the code only where there is no reason it knows.
        let timed_out = reason == "Timeout" || (reason.is_empty() && code == 504);
        let may_pass = timed_out
            || matches!(reason, "InternalError" | "TooManyRequests")
            || (reason == "ServerTimeout" && status.at(&["details"]).is_some())
            || (reason.is_empty() && matches!(code, 500 | 429))
            || waits;
        let message = status.str_at(&["message"]).unwrap_or_default();
        let result = if timed_out || answered.status == 504 { "timeout" } else { "error" };
        return Failure { may_pass, result, ..Failure::new(message) };
    }
    let is_text = answered.content_type.is_empty() || answered.content_type.starts_with("text/");
    let body = String::from_utf8_lossy(&answered.body);
    let said = if is_text { body.trim() } else { "unknown" };
    let message = match answered.status {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 406 | 415 => said.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        code if code >= 500 => {
            format!("an error on the server ({}) has prevented the request from succeeding", quote(said))
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    let may_pass =
        (answered.status >= 500 && answered.status != 503) || answered.status == 429 || answered.retry_after;
    let result = if answered.status == 504 { "timeout" } else { "error" };
    Failure { may_pass, result, ..Failure::new(message) }
}
