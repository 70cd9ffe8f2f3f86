//! [`ValidationResult`]: the result of validating a value, and how its problems are reported.

use std::collections::HashSet;
use std::fmt;

use api::FieldErrors;
use api::field::{FieldError, FieldErrorKind, quote};
use value::text::first_bytes;
use value::{Meter, Value, write};

use super::defaults::size;

/// Limit on reported problems, so that the response does not grow with the number of errors.
pub(super) const MAX_PROBLEMS: usize = 1000;

/// Limit on the bytes of all problems, including their values, that are stored and reported. The first problem is always reported.
pub(super) const MAX_REPORTED_BYTES: usize = 1 << 20;

/// Longest part of a key, in bytes, that is shown in a path.
const MAX_SHOWN: usize = 1024;

/// Path of a value, relative to the root of the validated value.
#[derive(Clone, Copy)]
pub(super) enum ValuePath<'a> {
    Root,
    Field(&'a ValuePath<'a>, &'a str),
    /// A map value. The library writes it with a leading dot even at the root.
    Entry(&'a ValuePath<'a>, &'a str),
    Index(&'a ValuePath<'a>, usize),
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValuePath::Root => Ok(()),
            ValuePath::Field(ValuePath::Root, name) => f.write_str(shown(name)),
            ValuePath::Field(parent, name) | ValuePath::Entry(parent, name) => {
                write!(f, "{parent}.{}", shown(name))
            }
            ValuePath::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Whether the limit of reported errors is reached.
pub(super) fn is_full(errors: &FieldErrors) -> bool {
    errors.len() >= MAX_PROBLEMS || errors.bytes() > MAX_REPORTED_BYTES
}

/// The part of a key that is shown in paths.
pub(super) fn shown(key: &str) -> &str {
    first_bytes(key, MAX_SHOWN)
}

/// One failed check of a value.
pub(super) struct ValueProblem<'a> {
    /// `None` if the problem concerns the whole object.
    pub(super) field: Option<String>,
    pub(super) kind: FieldErrorKind,
    pub(super) value: Option<Value>,
    pub(super) text: ProblemText<'a>,
}

/// The text of a problem. Text that depends on the length of the CRD is built only when it is reported, because most problems found in
/// alternatives never are.
pub(super) enum ProblemText<'a> {
    /// The message, which is also the detail.
    Plain(String),
    /// A detail that differs from the message.
    Both { detail: String, message: String },
    /// The allowed values of an `enum`.
    OneOf(&'a [Value]),
    /// The pattern that the value does not match.
    Match(&'a str),
}

impl ValueProblem<'_> {
    /// How many bytes the problem holds, including its value. Text borrowed from the CRD is not counted.
    fn bytes(&self) -> usize {
        let text = match &self.text {
            ProblemText::Plain(message) => message.len(),
            ProblemText::Both { detail, message } => detail.len() + message.len(),
            ProblemText::OneOf(_) | ProblemText::Match(_) => 0,
        };
        text + self.field.as_ref().map_or(0, String::len) + self.value.as_ref().map_or(0, size)
    }

    /// The detail, and the message that identifies duplicates.
    fn detail_and_message(&self) -> (String, String) {
        let path = self.field.as_deref().unwrap_or_default();
        match &self.text {
            ProblemText::Plain(message) => (message.clone(), message.clone()),
            ProblemText::Both { detail, message } => (detail.clone(), message.clone()),
            ProblemText::OneOf(values) => {
                let allowed: Vec<String> = values
                    .iter()
                    .map(|allowed| match allowed {
                        Value::String(text) => text.to_string(),
                        other => write::to_string(other),
                    })
                    .collect();
                let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                let detail = FieldError::not_supported(&value::Path::root(), Value::Null, &allowed).detail;
                let message = format!("{path} in body should be one of {detail}");
                (detail, message)
            }
            ProblemText::Match(pattern) => {
                let message = format!("{path} in body should match '{pattern}'");
                (message.clone(), message)
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct ValidationSettings<'b> {
    /// Counts every comparison of a value with a schema.
    pub(super) meter: &'b Meter<'b>,
    /// Whether to describe problems. Most alternatives of `oneOf` and `anyOf` fail, and only problems of the best match are reported.
    pub(super) describes: bool,
}

impl ValidationSettings<'_> {
    /// The settings without descriptions of problems.
    pub(super) fn silently(self) -> Self {
        ValidationSettings { describes: false, ..self }
    }

    /// Settings for the parts of a value, which are not described once the limit of problems is reached.
    pub(super) fn inside(self, result: &ValidationResult<'_>) -> Self {
        ValidationSettings { describes: self.describes && result.has_room(), ..self }
    }
}

/// The result of validating a value. Alternatives are compared by `matched`, the number of checks that matched.
#[derive(Default)]
pub(super) struct ValidationResult<'a> {
    /// Each problem with the number of bytes it holds.
    problems: Vec<(usize, ValueProblem<'a>)>,
    /// The bytes that all problems hold.
    bytes: usize,
    pub(super) matched: u64,
    /// Whether a check failed, even if it is not described.
    failed: bool,
    describes: bool,
}

impl<'a> ValidationResult<'a> {
    pub(super) fn new(settings: ValidationSettings<'_>) -> Self {
        ValidationResult { describes: settings.describes, ..ValidationResult::default() }
    }

    pub(super) fn is_valid(&self) -> bool {
        !self.failed
    }

    /// Whether another problem can be stored and reported.
    fn has_room(&self) -> bool {
        self.problems.len() < MAX_PROBLEMS && self.bytes <= MAX_REPORTED_BYTES
    }

    /// Discards all problems, because the value did not change.
    pub(super) fn discard_problems(&mut self) {
        self.problems.clear();
        self.bytes = 0;
        self.failed = false;
    }

    pub(super) fn merge(&mut self, other: ValidationResult<'a>) {
        self.matched += other.matched;
        self.failed |= other.failed;
        for (bytes, problem) in other.problems {
            if !self.has_room() {
                break;
            }
            self.store(bytes, problem);
        }
    }

    fn store(&mut self, bytes: usize, problem: ValueProblem<'a>) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.problems.push((bytes, problem));
    }

    pub(super) fn push(&mut self, problem: impl FnOnce() -> ValueProblem<'a>) {
        self.failed = true;
        if self.describes && self.has_room() {
            let problem = problem();
            self.store(problem.bytes(), problem);
        }
    }

    pub(super) fn add_problem(
        &mut self,
        path: &ValuePath<'_>,
        kind: FieldErrorKind,
        value: impl Into<Value>,
        message: fmt::Arguments<'_>,
    ) {
        self.push(|| ValueProblem {
            field: Some(path.to_string()),
            kind,
            value: Some(value.into()),
            text: ProblemText::Plain(message.to_string()),
        });
    }

    /// Adds a problem with the message "PATH in body REQUIREMENT".
    pub(super) fn invalid(
        &mut self,
        path: &ValuePath<'_>,
        value: impl Into<Value>,
        requirement: fmt::Arguments<'_>,
    ) {
        self.add_problem(path, FieldErrorKind::Invalid, value, format_args!("{path} in body {requirement}"));
    }

    /// Adds a problem of the object as a whole.
    pub(super) fn add_object_problem(&mut self, message: fmt::Arguments<'_>) {
        self.push(|| ValueProblem {
            field: None,
            kind: FieldErrorKind::Invalid,
            value: Some("".into()),
            text: ProblemText::Plain(message.to_string()),
        });
    }

    pub(super) fn wrong_type(&mut self, path: &ValuePath<'_>, expected: &str, found: &str) {
        if self.describes {
            let found_text = quote(found);
            let message = format_args!("{path} in body must be of type {expected}: {found_text}");
            self.add_problem(path, FieldErrorKind::TypeInvalid, found, message);
        }
        self.failed = true;
    }
}

/// Reports each distinct problem once, with fields below `base`.
pub(super) fn report(result: ValidationResult<'_>, base: &str, errors: &mut FieldErrors) {
    if !result.is_valid() && result.problems.is_empty() {
        // A failed validation must report an error even if no problem was described.
        let detail = "the value does not match its schema".to_owned();
        errors.push(FieldError {
            kind: FieldErrorKind::Forbidden,
            field: base.to_owned(),
            bad_value: None,
            detail,
        });
    }
    let mut messages: HashSet<String> = HashSet::new();
    let mut reported = 0;
    for (bytes, problem) in result.problems {
        if reported > MAX_REPORTED_BYTES {
            break;
        }
        let (detail, message) = problem.detail_and_message();
        reported += bytes + detail.len() + message.len();
        let ValueProblem { field, kind, value, .. } = problem;
        if !messages.insert(message) {
            continue;
        }
        let field = match field.as_deref().map(|field| field.strip_prefix('.').unwrap_or(field)) {
            Some(field) if !field.is_empty() => {
                if base.is_empty() {
                    field.to_owned()
                } else {
                    format!("{base}.{field}")
                }
            }
            _ => base.to_owned(),
        };
        errors.push(FieldError { kind, field, bad_value: value, detail });
    }
}
