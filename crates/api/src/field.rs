//! Errors about one field of an object, in Kubernetes' words.

use std::collections::HashSet;
use std::fmt;

pub use value::go::{float, is_printable, quote};
use value::{Path, Value, write};

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A named thing does not exist.
    NotFound,
    /// A value is missing.
    Required,
    /// A value that must be unique is not.
    Duplicate,
    /// A value is malformed.
    Invalid,
    /// A value is not one of those allowed.
    NotSupported,
    /// A value is well-formed but not permitted here.
    Forbidden,
    /// A value is too long.
    TooLong,
    /// A value is too short.
    TooShort,
    /// A list has too many items.
    TooMany,
    /// A list has too few items.
    TooFew,
    /// Not the caller's fault.
    Internal,
    /// A value has the wrong type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The `reason` of a status cause.
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

    /// The words a person reads.
    pub fn words(self) -> &'static str {
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

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What kind of wrong.
    pub kind: FieldErrorKind,
    /// The field's path: `spec.containers[0].name`. Empty only for errors about the object as a whole (`<nil>` in print).
    pub field: String,
    /// The offending value; `None` prints no value.
    pub bad_value: Option<Value>,
    /// More words.
    pub detail: String,
}

/// All that is wrong with an object, in the order it was found.
pub type FieldErrors = Vec<FieldError>;

impl FieldError {
    fn new(kind: FieldErrorKind, field: &Path, bad_value: Option<Value>, detail: impl Into<String>) -> Self {
        FieldError { kind, field: field.to_string(), bad_value, detail: detail.into() }
    }

    /// A named thing does not exist.
    pub fn not_found(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(value.into()), "")
    }

    /// A value is missing.
    pub fn required(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    /// A value that must be unique is not.
    pub fn duplicate(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    /// A value is malformed.
    pub fn invalid(field: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// A value is not one of `supported`, which are listed in the order given.
    pub fn not_supported(field: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    /// A value is not permitted here.
    pub fn forbidden(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// A text is longer than `max` bytes.
    pub fn too_long(field: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {max} {unit}"))
    }

    /// A list has `actual` items, more than `max`.
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

    /// Not the caller's fault.
    pub fn internal(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// The message without the field's name.
    pub fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
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

/// Joins errors as Go's `Aggregate` prints them: one bare, several distinct ones in brackets.
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
