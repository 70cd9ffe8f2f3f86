//! [`Status`]: every error that a client sees, with Kubernetes' code, reason, message and details.

use value::{BudgetEnded, Map, Str, Value};

use crate::field::{FieldError, aggregate, quote};
use crate::{GroupKind, GroupResource};

/// The machine-readable reason of a `Status`, with its HTTP code below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StatusReason {
    #[default]
    Unknown,
    /// HTTP 401: authentication failed.
    Unauthorized,
    /// HTTP 403: not authorized, or refused by admission.
    Forbidden,
    /// HTTP 404: no such object or path.
    NotFound,
    /// HTTP 409: the name is taken.
    AlreadyExists,
    /// HTTP 409: the object has changed.
    Conflict,
    /// HTTP 410: no longer available.
    Gone,
    /// HTTP 422: validation failed.
    Invalid,
    /// HTTP 500, with a time to retry after.
    ServerTimeout,
    /// HTTP 504: the request timed out.
    Timeout,
    /// HTTP 429: the client should retry later.
    TooManyRequests,
    /// HTTP 400: the request is malformed.
    BadRequest,
    /// HTTP 405: the resource does not support the method.
    MethodNotAllowed,
    /// HTTP 406: no accepted media type can be served.
    NotAcceptable,
    /// HTTP 413: the request body is too large.
    RequestEntityTooLarge,
    /// HTTP 415: the request's media type is not supported.
    UnsupportedMediaType,
    /// HTTP 500: an unexpected error.
    InternalError,
    /// HTTP 410: the revision was compacted.
    Expired,
    /// HTTP 503: the service is not available.
    ServiceUnavailable,
    /// HTTP 507: the storage is full.
    StorageError,
    /// HTTP 500: stored objects cannot be read.
    StorageReadError,
}

impl StatusReason {
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusCause {
    /// Machine-readable cause, such as `FieldValueInvalid`.
    pub reason: Str,
    pub message: String,
    /// Path of the field that the cause is about.
    pub field: String,
}

/// The object or resource that a `Status` is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusDetails {
    pub name: String,
    pub group: Str,
    /// The kind or, in most errors, the resource.
    pub kind: Str,
    pub uid: String,
    pub causes: Vec<StatusCause>,
    /// Time to retry after; 0 if unset.
    pub retry_after_seconds: u32,
}

/// A `meta/v1` `Status`: an error or, rarely, a success. Boxed, so that `Result<_, Status>` stays small.
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
    /// An error with `status: Failure`.
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

    /// A `Status` with `status: Success`, the response to deleting an object.
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

    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.0.details = Some(details);
        self
    }

    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Sets the continue token with which the client can go on with a list.
    #[must_use]
    pub fn with_continue(mut self, token: impl Into<String>) -> Self {
        self.0.continue_token = token.into();
        self
    }

    #[must_use]
    pub fn with_code(mut self, code: u16) -> Self {
        self.0.code = code;
        self
    }

    /// Sets a reason that need not be a [`StatusReason`]; webhooks may invent their own.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<Str>) -> Self {
        self.0.reason = reason.into();
        self
    }

    /// Removes the time to retry after.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        if let Some(details) = &mut self.0.details {
            details.retry_after_seconds = 0;
        }
        self
    }

    pub fn code(&self) -> u16 {
        self.0.code
    }

    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

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

    /// HTTP 404: no such object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(404, StatusReason::NotFound, format!("{resource} {} not found", quote(name)))
            .with_details(Self::of(resource, name))
    }

    /// HTTP 404: no such path, as kube-apiserver answers for unknown resources.
    pub fn no_such_resource() -> Self {
        Self::failure(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(StatusDetails::default())
    }

    /// HTTP 409: the name is taken.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::failure(409, StatusReason::AlreadyExists, format!("{resource} {} already exists", quote(name)))
            .with_details(Self::of(resource, name))
    }

    /// HTTP 409: no unique name could be generated.
    pub fn generate_name_conflict(resource: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        let details = StatusDetails { retry_after_seconds: 1, ..Self::of(resource, name) };
        Self::failure(409, StatusReason::AlreadyExists, message).with_details(details)
    }

    /// HTTP 409: the object is not in the state that the request requires.
    pub fn conflict(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::failure(409, StatusReason::Conflict, message).with_details(Self::of(resource, name))
    }

    /// HTTP 401, without a reason for the failure.
    pub fn unauthorized() -> Self {
        Self::failure(401, StatusReason::Unauthorized, "Unauthorized")
    }

    /// HTTP 403: refused because of `why`.
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

    /// Like [`Status::forbidden`], with one cause in the details.
    pub fn forbidden_with_cause(
        resource: &GroupResource,
        name: &str,
        why: impl std::fmt::Display,
        cause: StatusCause,
    ) -> Self {
        let details = StatusDetails { causes: vec![cause], ..Self::of(resource, name) };
        Self::forbidden(resource, name, why).with_details(details)
    }

    /// HTTP 422: fields are invalid. Equal errors are listed once.
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

    /// Like [`Status::invalid`], with one cause per error even if two are equal: Kubernetes validates the metadata of
    /// a custom resource twice, and reports both.
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

    /// HTTP 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, StatusReason::BadRequest, message)
    }

    /// HTTP 405: the resource does not support the action.
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message =
            format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::failure(405, StatusReason::MethodNotAllowed, message).with_details(Self::of(resource, ""))
    }

    /// HTTP 405, as kube-apiserver's router words it for a method that a path does not support.
    pub fn method_not_allowed() -> Self {
        Self::failure(
            405,
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .with_details(StatusDetails::default())
    }

    /// HTTP 406: no accepted media type can be served; `available` lists those that can.
    pub fn not_acceptable(available: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", available.join(", "));
        Self::failure(406, StatusReason::NotAcceptable, message)
    }

    /// HTTP 406, as kube-apiserver's router words it for a client that accepts no served media type.
    pub fn no_representation(available: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Self::failure(406, StatusReason::NotAcceptable, message).with_details(StatusDetails::default())
    }

    /// HTTP 415, as kube-apiserver's router words it for a path that does not accept the body's media type.
    pub fn no_such_media_type() -> Self {
        Self::failure(415, StatusReason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_details(StatusDetails::default())
    }

    /// HTTP 410: the revision was compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, StatusReason::Expired, message)
    }

    /// HTTP 413: the request body is too large.
    pub fn too_large(message: impl std::fmt::Display) -> Self {
        Self::failure(
            413,
            StatusReason::RequestEntityTooLarge,
            format!("Request entity too large: {message}"),
        )
    }

    /// HTTP 415: the body's media type is not supported; `available` lists those that are.
    pub fn unsupported_media_type(available: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            available.join(", ")
        );
        Self::failure(415, StatusReason::UnsupportedMediaType, message)
    }

    /// HTTP 429, with a time to retry after.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, StatusReason::TooManyRequests, message)
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// HTTP 500: an unexpected error.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        Self::failure(500, StatusReason::InternalError, format!("Internal error occurred: {why}"))
            .with_details(StatusDetails {
                causes: vec![StatusCause { message: why, ..StatusCause::default() }],
                ..StatusDetails::default()
            })
    }

    /// HTTP 500 for a list with unreadable objects, with one cause per object; there must be at least one.
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

    /// HTTP 500 with only a message, which Kubernetes returns for an error that is not a `Status`.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::failure(500, StatusReason::Unknown, message)
    }

    /// HTTP 503: the service is not available.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, StatusReason::ServiceUnavailable, message)
    }

    /// HTTP 504, with a time to retry after.
    pub fn timeout(message: impl std::fmt::Display, retry_after_seconds: u32) -> Self {
        Self::failure(504, StatusReason::Timeout, format!("Timeout: {message}"))
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// The answer to a request whose budget ended its work: a timeout if the client no longer waits, otherwise 413.
    pub fn of_ended_budget(ended: BudgetEnded) -> Self {
        match ended {
            BudgetEnded::Canceled => Self::timeout("request did not complete within the allotted timeout", 0),
            BudgetEnded::Exhausted => {
                Self::too_large("the request takes too many steps; use a smaller object or patch")
            }
        }
    }

    /// Encodes the `Status` object.
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
