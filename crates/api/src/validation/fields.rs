//! Helpers for validation rules: reading fields and reporting errors about them.
//!
//! [`At`] is a field path: a chain of borrowed steps that is formatted only when an error is reported there.
//! [`Read`] reads a field like Go reads one of a decoded struct: an absent (or null) field is the zero value.
//! [`Report`] adds an error at a field path to the list of errors.

use std::collections::HashMap;
use std::fmt;

use value::{Map, Value};

use crate::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::quantity::Quantity;

/// A field path, formatted as Kubernetes does (`spec.containers[0].name`).
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: FieldPathStep<'a>,
}

#[derive(Clone, Copy, Debug)]
enum FieldPathStep<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> At<'a> {
    /// The path of the object itself.
    pub const ROOT: At<'static> = At { parent: None, step: FieldPathStep::Root };

    /// Reports whether this is the object itself.
    pub const fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.step, FieldPathStep::Root)
    }

    /// A path from the root: `At::new("spec.template")`.
    pub const fn new(path: &'a str) -> Self {
        At { parent: None, step: FieldPathStep::Field(path) }
    }

    /// A field below this path; `path` may contain several fields (`"httpGet.port"`).
    #[must_use]
    pub const fn field(&'a self, path: &'a str) -> Self {
        At { parent: Some(self), step: FieldPathStep::Field(path) }
    }

    /// An item of the list at this path.
    #[must_use]
    pub const fn index(&'a self, index: usize) -> Self {
        At { parent: Some(self), step: FieldPathStep::Index(index) }
    }

    /// The value for a key of the map at this path.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Self {
        At { parent: Some(self), step: FieldPathStep::Key(key) }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut inside = false;
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
            inside = !matches!(parent.step, FieldPathStep::Root);
        }
        match self.step {
            FieldPathStep::Root => Ok(()),
            FieldPathStep::Field(name) if inside => write!(f, ".{name}"),
            FieldPathStep::Field(name) => f.write_str(name),
            FieldPathStep::Index(index) => write!(f, "[{index}]"),
            FieldPathStep::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Reads fields of an object; null and values of an unexpected type count as absent.
///
/// Implemented for values, maps, and optional values: `spec.part("securityContext").flag("privileged")`.
pub trait Read<'a>: Copy {
    /// The value of a field; `None` if absent or null.
    fn part(self, field: &str) -> Option<&'a Value>;

    /// A string; empty if absent.
    fn text(self, field: &str) -> &'a str {
        self.text_if_set(field).unwrap_or_default()
    }

    /// A string that may be absent (a pointer in Go).
    fn text_if_set(self, field: &str) -> Option<&'a str> {
        self.part(field).and_then(Value::as_str)
    }

    /// An integer; zero if absent.
    fn number(self, field: &str) -> i64 {
        self.number_if_set(field).unwrap_or_default()
    }

    /// An integer that may be absent (a pointer in Go).
    fn number_if_set(self, field: &str) -> Option<i64> {
        self.part(field).and_then(Value::as_int)
    }

    /// A boolean; false if absent.
    fn flag(self, field: &str) -> bool {
        self.flag_if_set(field).unwrap_or_default()
    }

    /// A boolean that may be absent (a pointer in Go).
    fn flag_if_set(self, field: &str) -> Option<bool> {
        self.part(field).and_then(Value::as_bool)
    }

    /// A list; empty if absent.
    fn items(self, field: &str) -> &'a [Value] {
        self.part(field).and_then(Value::as_list).unwrap_or_default()
    }

    /// The strings of a list; empty if absent.
    fn texts(self, field: &str) -> impl Iterator<Item = &'a str> + Clone {
        self.items(field).iter().filter_map(Value::as_str)
    }

    /// A map; `None` if absent.
    fn map_of(self, field: &str) -> Option<&'a Map> {
        self.part(field).and_then(Value::as_map)
    }

    /// The entries of a map in key order; empty if absent.
    fn entries(self, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.map_of(field).into_iter().flat_map(|map| map.iter().map(|(k, v)| (k.as_str(), v)))
    }

    /// The entries of a map of strings in key order; empty if absent.
    fn text_entries(self, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries(field).filter_map(|(k, v)| Some((k, v.as_str()?)))
    }
}

impl<'a> Read<'a> for &'a Value {
    fn part(self, field: &str) -> Option<&'a Value> {
        self.get(field).filter(|value| !value.is_null())
    }
}

impl<'a> Read<'a> for &'a Map {
    fn part(self, field: &str) -> Option<&'a Value> {
        self.get(field).filter(|value| !value.is_null())
    }
}

impl<'a> Read<'a> for Option<&'a Value> {
    fn part(self, field: &str) -> Option<&'a Value> {
        self.and_then(|value| value.part(field))
    }
}

/// Adds errors at field paths to a list.
pub trait Report {
    fn report(&mut self, kind: FieldErrorKind, at: &At<'_>, bad_value: Option<Value>, detail: String);

    /// Reports a malformed value.
    fn invalid(&mut self, at: &At<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Invalid, at, Some(value.into()), detail.into());
    }

    /// Reports a malformed value, given as JSON text because the order of its fields matters.
    fn invalid_json(&mut self, at: &At<'_>, json: &str, detail: &str) {
        self.report(FieldErrorKind::Invalid, at, None, format!("{json}: {detail}"));
    }

    /// Reports a malformed value once for each detail.
    fn invalid_each(&mut self, at: &At<'_>, value: &str, details: impl IntoIterator<Item = String>) {
        for detail in details {
            self.report(FieldErrorKind::Invalid, at, Some(value.into()), detail);
        }
    }

    /// Reports a missing value.
    fn required(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Required, at, None, detail.into());
    }

    /// Reports a value that is not permitted here.
    fn forbidden(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Forbidden, at, None, detail.into());
    }

    /// Reports a value that must be unique but is not.
    fn duplicate(&mut self, at: &At<'_>, value: impl Into<Value>) {
        self.report(FieldErrorKind::Duplicate, at, Some(value.into()), String::new());
    }

    /// Reports a reference to something that does not exist.
    fn not_found(&mut self, at: &At<'_>, value: impl Into<Value>) {
        self.report(FieldErrorKind::NotFound, at, Some(value.into()), String::new());
    }

    /// Reports a value that is not in `supported`, which is listed in the order given.
    fn not_supported(&mut self, at: &At<'_>, value: impl Into<Value>, supported: &[&str]) {
        let error = FieldError::not_supported(&value::Path::root(), value, supported);
        self.report(error.kind, at, error.bad_value, error.detail);
    }

    /// Reports a string longer than `max` bytes.
    fn too_long(&mut self, at: &At<'_>, max: usize) {
        let error = FieldError::too_long(&value::Path::root(), max);
        self.report(error.kind, at, error.bad_value, error.detail);
    }

    /// Reports a list with `actual` items, more than `max`.
    fn too_many(&mut self, at: &At<'_>, actual: usize, max: usize) {
        let error = FieldError::too_many(&value::Path::root(), actual, max);
        self.report(error.kind, at, error.bad_value, error.detail);
    }

    /// Reports an internal error, which is not the client's fault.
    fn internal(&mut self, at: &At<'_>, detail: impl Into<String>) {
        self.report(FieldErrorKind::Internal, at, None, detail.into());
    }

    /// Reports a number below zero.
    fn not_negative(&mut self, at: &At<'_>, number: i64) {
        if number < 0 {
            self.invalid(at, number, NOT_NEGATIVE);
        }
    }

    /// Reports a field whose value in `new` differs from that in `old`.
    fn immutable(&mut self, at: &At<'_>, new: Option<&Value>, old: Option<&Value>) {
        if !same(new, old) {
            self.invalid(at, new.cloned().unwrap_or_default(), IMMUTABLE);
        }
    }
}

impl Report for FieldErrors {
    fn report(&mut self, kind: FieldErrorKind, at: &At<'_>, bad_value: Option<Value>, detail: String) {
        // A path can be as long as the object. It is not formatted for an error that is dropped.
        let field = if self.is_full() { String::new() } else { at.to_string() };
        self.push(FieldError { kind, field, bad_value, detail });
    }
}

/// Error detail for a field that cannot be changed.
pub const IMMUTABLE: &str = "field is immutable";

/// Error detail for a number below zero.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Compares two fields with Kubernetes' semantic equality: absent, null and an empty list are equal, and quantities compare as
/// numbers. An empty map is not absent: Go distinguishes a pointer to an empty struct from nil.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    equal(a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null), false)
}

/// Fields whose strings (or whose map's strings) are quantities.
const QUANTITIES: &[&str] =
    &["limits", "requests", "overhead", "allocatedResources", "capacity", "sizeLimit", "divisor"];

/// Map fields of a JSON schema: maps in Go, where an empty map equals an absent one.
const MAPS: &[&str] = &["properties", "patternProperties", "definitions", "dependencies"];

fn equal(a: &Value, b: &Value, quantities: bool) -> bool {
    match (a, b) {
        (Value::Map(x), Value::Map(y)) => {
            let inside = |key: &str| quantities || QUANTITIES.contains(&key);
            let is_none = |key: &str, value: &Value| {
                is_absent(value) || MAPS.contains(&key) && value.as_map().is_some_and(value::Map::is_empty)
            };
            x.iter().all(|(key, value)| {
                let other = y.get(key).unwrap_or(&Value::Null);
                equal(value, other, inside(key)) || is_none(key, value) && is_none(key, other)
            }) && y.iter().all(|(key, value)| x.contains_key(key) || is_none(key, value))
        }
        (Value::List(x), Value::List(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y, quantities))
        }
        (Value::String(x), Value::String(y)) if quantities => {
            x == y || Quantity::parse(x).is_ok_and(|x| Quantity::parse(y).is_ok_and(|y| x == y))
        }
        _ => a == b || (is_absent(a) && is_absent(b)),
    }
}

pub fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(list) => list.is_empty(),
        _ => false,
    }
}

/// Adds the errors of a kind's declarative validation, which replace equal errors of its handwritten rules about the same fields.
/// Kubernetes checks some rules in both ways and reports the declarative result.
pub fn supersede(mut errors: FieldErrors, declared: FieldErrors) -> FieldErrors {
    let mut by_field: HashMap<&str, Vec<&FieldError>> = HashMap::new();
    for other in &declared {
        by_field.entry(&other.field).or_default().push(other);
    }
    errors.retain(|error| {
        !by_field.get(error.field.as_str()).into_iter().flatten().any(|other| {
            error.kind == other.kind
                && (error.kind != FieldErrorKind::Invalid || error.detail.ends_with(&other.detail))
        })
    });
    errors.extend(declared);
    errors
}
