//! Errors about a field of an object, with Kubernetes' messages.

use std::collections::HashSet;
use std::fmt;

pub use crate::field_errors::FieldErrors;
pub use value::go::{float, is_printable, quote};
use value::{Path, Value, write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    /// A value that must be unique is repeated.
    Duplicate,
    Invalid,
    /// A value is not one of the supported ones.
    NotSupported,
    /// A value is well-formed but not permitted here.
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    /// A server failure, not an error of the request.
    Internal,
    /// A value has the wrong type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The `reason` in a status cause.
    pub fn cause(self) -> &'static str {
        match self {
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooShort => "FieldValueTooShort",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::TooFew => "FieldValueTooFew",
            FieldErrorKind::Internal => "InternalError",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The start of the error message, such as `Invalid value`.
    pub fn message_prefix(self) -> &'static str {
        match self {
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooShort => "Too short",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::TooFew => "Too few",
            FieldErrorKind::Internal => "Internal error",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// Path of the field: `spec.containers[0].name`. Empty for errors about the whole object, which print `<nil>`.
    pub field: String,
    /// The offending value; `None` prints no value.
    pub bad_value: Option<Value>,
    /// Explanation at the end of the message.
    pub detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: &Path, bad_value: Option<Value>, detail: impl Into<String>) -> Self {
        FieldError { kind, field: field.to_string(), bad_value, detail: detail.into() }
    }

    pub fn not_found(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(value.into()), "")
    }

    pub fn required(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    pub fn duplicate(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    pub fn invalid(field: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// The value is not one of `supported`, which the message lists in this order.
    pub fn not_supported(field: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    pub fn forbidden(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// The text is longer than `max` bytes.
    pub fn too_long(field: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {max} {unit}"))
    }

    /// The list has `actual` items, more than `max`.
    pub fn too_many(field: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let value = i64::try_from(actual).unwrap_or(i64::MAX);
        Self::new(
            FieldErrorKind::TooMany,
            field,
            Some(value.into()),
            format!("must have at most {max} {unit}"),
        )
    }

    pub fn internal(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// The message without the field path.
    pub fn body(&self) -> String {
        let mut text = self.kind.message_prefix().to_owned();
        let with_value = !matches!(
            self.kind,
            FieldErrorKind::Required
                | FieldErrorKind::Forbidden
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooShort
                | FieldErrorKind::Internal
        );
        if with_value && let Some(value) = &self.bad_value {
            text.push_str(": ");
            match value {
                Value::String(s) => text.push_str(&quote(s)),
                Value::Float(number) => text.push_str(&float(*number)),
                other => text.push_str(&write::to_string(other)),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { "<nil>" } else { &self.field };
        write!(f, "{field}: {}", self.body())
    }
}

/// Formats errors as Go's `Aggregate`: a single one as it is, several distinct ones in brackets.
pub fn aggregate<T: fmt::Display>(errors: impl IntoIterator<Item = T>) -> String {
    let mut known: HashSet<String> = HashSet::new();
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if known.insert(text.clone()) {
            distinct.push(text);
        }
    }
    match distinct.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
