//! [`Status`]: every refusal a client sees, with Kubernetes' code, reason, message and details.

use value::{Map, Str, Value};

use crate::field::{FieldError, aggregate, quote};
use crate::{GroupKind, GroupResource};

/// The machine-readable reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StatusReason {
    /// None given.
    #[default]
    Unknown,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409, the name is taken.
    AlreadyExists,
    /// 409, the object changed meanwhile.
    Conflict,
    /// 410.
    Gone,
    /// 422.
    Invalid,
    /// 500 with a hint when to try again.
    ServerTimeout,
    /// 504.
    Timeout,
    /// 429.
    TooManyRequests,
    /// 400.
    BadRequest,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 500.
    InternalError,
    /// 410, a revision that is no longer kept.
    Expired,
    /// 503.
    ServiceUnavailable,
    /// 507.
    StorageError,
    /// 500, stored objects that cannot be read.
    StorageReadError,
}

impl StatusReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            StatusReason::Unknown => "",
            StatusReason::Unauthorized => "Unauthorized",
            StatusReason::Forbidden => "Forbidden",
            StatusReason::NotFound => "NotFound",
            StatusReason::AlreadyExists => "AlreadyExists",
            StatusReason::Conflict => "Conflict",
            StatusReason::Gone => "Gone",
            StatusReason::Invalid => "Invalid",
            StatusReason::ServerTimeout => "ServerTimeout",
            StatusReason::Timeout => "Timeout",
            StatusReason::TooManyRequests => "TooManyRequests",
            StatusReason::BadRequest => "BadRequest",
            StatusReason::MethodNotAllowed => "MethodNotAllowed",
            StatusReason::NotAcceptable => "NotAcceptable",
            StatusReason::RequestEntityTooLarge => "RequestEntityTooLarge",
            StatusReason::UnsupportedMediaType => "UnsupportedMediaType",
            StatusReason::InternalError => "InternalError",
            StatusReason::Expired => "Expired",
            StatusReason::ServiceUnavailable => "ServiceUnavailable",
            StatusReason::StorageError => "StorageError",
            StatusReason::StorageReadError => "StorageReadError",
        }
    }
}

/// One of several reasons for a refusal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusCause {
    /// A machine-readable word, as `FieldValueInvalid`.
    pub reason: Str,
    /// The words.
    pub message: String,
    /// The field it is about.
    pub field: String,
}

/// What a refusal is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusDetails {
    /// The object's name.
    pub name: String,
    /// The group.
    pub group: Str,
    /// The kind or, in most errors, the resource.
    pub kind: Str,
    /// The object's uid.
    pub uid: String,
    /// All causes.
    pub causes: Vec<StatusCause>,
    /// When to try again; 0 says nothing.
    pub retry_after_seconds: u32,
}

/// A refusal (or, rarely, a success) as `meta/v1` `Status`. Boxed inside, so that `Result<_, Status>` stays small.
#[derive(Clone, Debug, PartialEq)]
pub struct Status(Box<StatusBody>);

#[derive(Clone, Debug, PartialEq)]
struct StatusBody {
    code: u16,
    reason: Str,
    message: String,
    details: Option<StatusDetails>,
    success: bool,
    continue_token: String,
}

impl Status {
    /// A refusal.
    pub fn failure(code: u16, reason: StatusReason, message: impl Into<String>) -> Self {
        Status(Box::new(StatusBody {
            code,
            reason: Str::new_static(reason.as_str()),
            message: message.into(),
            details: None,
            success: false,
            continue_token: String::new(),
        }))
    }

    /// `status: Success`, as deletes of whole objects answer.
    pub fn success(details: StatusDetails) -> Self {
        Status(Box::new(StatusBody {
            code: 200,
            reason: Str::default(),
            message: String::new(),
            details: Some(details),
            success: true,
            continue_token: String::new(),
        }))
    }

    /// This status with details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.0.details = Some(details);
        self
    }

    /// This status with another message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// This status with a token for going on with a list.
    #[must_use]
    pub fn with_continue(mut self, token: impl Into<String>) -> Self {
        self.0.continue_token = token.into();
        self
    }

    /// This status with another code.
    #[must_use]
    pub fn with_code(mut self, code: u16) -> Self {
        self.0.code = code;
        self
    }

    /// This status with a reason that need not be one of [`StatusReason`] (a webhook may invent its own).
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<Str>) -> Self {
        self.0.reason = reason.into();
        self
    }

    /// This status without a word about when to try again.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        if let Some(details) = &mut self.0.details {
            details.retry_after_seconds = 0;
        }
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The details, if there are any.
    pub fn details(&self) -> Option<&StatusDetails> {
        self.0.details.as_ref()
    }

    fn of(resource: &GroupResource, name: &str) -> StatusDetails {
        StatusDetails {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            ..StatusDetails::default()
        }
    }

    /// 404: no such object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(404, StatusReason::NotFound, format!("{resource} {} not found", quote(name)))
            .with_details(Self::of(resource, name))
    }

    /// 404: no such path, as kube-apiserver answers for resources it does not know.
    pub fn no_such_resource() -> Self {
        Self::failure(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::failure(409, StatusReason::AlreadyExists, format!("{resource} {} already exists", quote(name)))
            .with_details(Self::of(resource, name))
    }

    /// 409: no unique name could be generated.
    pub fn generate_name_conflict(resource: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        let details = StatusDetails { retry_after_seconds: 1, ..Self::of(resource, name) };
        Self::failure(409, StatusReason::AlreadyExists, message).with_details(details)
    }

    /// 409: the object is not as the caller expected.
    pub fn conflict(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::failure(409, StatusReason::Conflict, message).with_details(Self::of(resource, name))
    }

    /// 401: says nothing about why.
    pub fn unauthorized() -> Self {
        Self::failure(401, StatusReason::Unauthorized, "Unauthorized")
    }

    /// 403: refused for `why`.
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let message = if resource.group.is_empty() && resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::failure(403, StatusReason::Forbidden, message).with_details(Self::of(resource, name))
    }

    /// 422: fields are wrong. An error that was found twice is told once.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Self {
        let mut status = Self::invalid_with_repeats(kind, name, errors);
        if let Some(details) = &mut status.0.details {
            let mut distinct: Vec<StatusCause> = Vec::with_capacity(details.causes.len());
            for cause in details.causes.drain(..) {
                if !distinct.contains(&cause) {
                    distinct.push(cause);
                }
            }
            details.causes = distinct;
        }
        status
    }

    /// As [`Status::invalid`], with a cause for each error even where two are the same: Kubernetes judges the metadata of a
    /// custom resource twice, and says so.
    pub fn invalid_with_repeats(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Self {
        let causes = errors.iter().map(|error| StatusCause {
            reason: Str::new_static(error.kind.cause()),
            message: error.body(),
            field: error.field.clone(),
        });
        let causes = causes.collect();
        let message = if errors.is_empty() {
            format!("{kind} {} is invalid", quote(name))
        } else {
            format!("{kind} {} is invalid: {}", quote(name), aggregate(errors))
        };
        Self::failure(422, StatusReason::Invalid, message).with_details(StatusDetails {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes,
            ..StatusDetails::default()
        })
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, StatusReason::BadRequest, message)
    }

    /// 405.
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message =
            format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::failure(405, StatusReason::MethodNotAllowed, message).with_details(Self::of(resource, ""))
    }

    /// 405 as kube-apiserver's router says it for a method that a path does not take.
    pub fn method_not_allowed() -> Self {
        Self::failure(
            405,
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .with_details(StatusDetails::default())
    }

    /// 406: nothing the client accepts can be served; `available` are the types that can.
    pub fn not_acceptable(available: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", available.join(", "));
        Self::failure(406, StatusReason::NotAcceptable, message)
    }

    /// 406 as Kubernetes' router says it, for a client that accepts none of the types at all.
    pub fn no_representation(available: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Self::failure(406, StatusReason::NotAcceptable, message).with_details(StatusDetails::default())
    }

    /// 415 as Kubernetes' router says it, for a path that takes no such body.
    pub fn no_such_media_type() -> Self {
        Self::failure(415, StatusReason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_details(StatusDetails::default())
    }

    /// 410: the revision is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, StatusReason::Expired, message)
    }

    /// 413.
    pub fn too_large(message: impl std::fmt::Display) -> Self {
        Self::failure(
            413,
            StatusReason::RequestEntityTooLarge,
            format!("Request entity too large: {message}"),
        )
    }

    /// 415: the body's type cannot be read; `available` are the types that can.
    pub fn unsupported_media_type(available: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            available.join(", ")
        );
        Self::failure(415, StatusReason::UnsupportedMediaType, message)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, StatusReason::TooManyRequests, message)
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// 500.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        Self::failure(500, StatusReason::InternalError, format!("Internal error occurred: {why}"))
            .with_details(StatusDetails {
                causes: vec![StatusCause { message: why, ..StatusCause::default() }],
                ..StatusDetails::default()
            })
    }

    /// 500 for a list some of whose objects cannot be read: a cause each, of which there is at least one.
    pub fn unreadable(resource: &GroupResource, causes: Vec<StatusCause>) -> Self {
        let first = causes.first().map(|cause| cause.message.as_str()).unwrap_or_default();
        let more = match causes.iter().filter(|cause| !cause.field.is_empty()).count() {
            0 | 1 => String::new(),
            objects => format!(" (and {} more)", objects - 1),
        };
        let message = format!("failed to read one or more {resource} from the storage: {first}{more}");
        let (group, kind) = (resource.group.clone(), resource.resource.clone());
        let details =
            StatusDetails { name: "list".to_owned(), group, kind, causes, ..StatusDetails::default() };
        Self::failure(500, StatusReason::StorageReadError, message).with_details(details)
    }

    /// 500 with nothing but a message: what Kubernetes answers for an error that it has no status for.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::failure(500, StatusReason::Unknown, message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, StatusReason::ServiceUnavailable, message)
    }

    /// 504.
    pub fn timeout(message: impl std::fmt::Display, retry_after_seconds: u32) -> Self {
        Self::failure(504, StatusReason::Timeout, format!("Timeout: {message}"))
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// The object on the wire.
    pub fn to_value(&self) -> Value {
        let StatusBody { code, reason, message, details, success, continue_token } = &*self.0;
        let mut out = Map::new();
        out.insert("apiVersion", "v1");
        if !success {
            out.insert("code", i64::from(*code));
        }
        if let Some(details) = details {
            out.insert("details", details.to_value());
        }
        out.insert("kind", "Status");
        if !message.is_empty() {
            out.insert("message", message.as_str());
        }
        let mut metadata = Map::new();
        if !continue_token.is_empty() {
            metadata.insert("continue", continue_token.as_str());
        }
        out.insert("metadata", metadata);
        if !reason.is_empty() {
            out.insert("reason", reason.clone());
        }
        out.insert("status", if *success { "Success" } else { "Failure" });
        Value::Map(out)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Status {}

impl StatusDetails {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        if !self.causes.is_empty() {
            out.insert("causes", Value::List(self.causes.iter().map(StatusCause::to_value).collect()));
        }
        for (key, text) in
            [("group", self.group.as_str()), ("kind", &self.kind), ("name", &self.name), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                out.insert(key, text);
            }
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds", i64::from(self.retry_after_seconds));
        }
        Value::Map(out)
    }
}

impl StatusCause {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in
            [("field", self.field.as_str()), ("message", &self.message), ("reason", &self.reason)]
        {
            if !text.is_empty() {
                out.insert(key, text);
            }
        }
        Value::Map(out)
    }
}
